package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
)

// observer sees a cluster as its users do: through the API.
type observer struct {
	t      *testing.T
	client *api.Client
	http   *httpx.Client // for the nodes
}

// newObserver returns one of patience: a call that is made once must not fail because a
// disk or a processor is slow. Of several controllers one may be frozen, and a call has to
// go on to the next one.
func newObserver(t *testing.T, controllers ...string) observer {
	patient, h := &httpx.Client{Timeout: awaitMax}, &httpx.Client{}
	t.Cleanup(patient.Close)
	t.Cleanup(h.Close)
	if len(controllers) == 1 {
		h = patient
	}
	return observer{t: t, client: api.NewClient(h, controllers...), http: patient}
}

const (
	// awaitMax is for what a healthy cluster does in seconds at most. It only
	// bounds how long a broken one is watched.
	awaitMax  = 3 * time.Minute
	awaitPoll = 30 * time.Millisecond
)

// await waits until ok says yes; the string is what it sees meanwhile.
func (o *observer) await(what string, ok func() (bool, string)) {
	o.t.Helper()
	o.awaitWithin(awaitMax, what, ok)
}

// awaitWithin is await for what takes its time in a healthy cluster, too.
func (o *observer) awaitWithin(most time.Duration, what string, ok func() (bool, string)) {
	o.t.Helper()
	began, state := time.Now(), ""
	for time.Since(began) < most {
		good, now := ok()
		if good {
			return
		}
		state = now
		time.Sleep(awaitPoll)
	}
	o.t.Fatalf("waited for %s in vain; last seen: %s", what, state)
}

// get reads a path of the controller; it must be there, if not at once after a
// start.
func (o *observer) get(path string, out any) {
	o.t.Helper()
	o.led(func() error { return o.client.Get(context.Background(), path, out) })
}

func (o *observer) post(path string, in, out any) {
	o.t.Helper()
	o.led(func() error { return o.client.Post(context.Background(), path, in, out) })
}

// led makes a call that needs a leader once there is one.
func (o *observer) led(call func() error) {
	o.t.Helper()
	var err error
	o.await("a leader", func() (bool, string) {
		err = call()
		return err == nil || !strings.Contains(err.Error(), api.CodeNotLeader), asJSON(nil, err)
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

// list reads all pages of a list.
func list[T any](get func(path string, out any) error, path string) ([]T, error) {
	var all []T
	for after := ""; ; {
		page := httpx.List[T]{}
		query := url.Values{"limit": {"1000"}}
		if after != "" {
			query.Set("after", after)
		}
		if err := get(path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

// listLed reads all pages of a list of the controller.
func listLed[T any](o *observer, path string) (all []T) {
	o.t.Helper()
	o.led(func() (err error) {
		all, err = list[T](o.fromController, path)
		return err
	})
	return all
}

func (o *observer) fromController(path string, out any) error {
	return o.client.Get(context.Background(), path, out)
}

// fromNode reads from the node with that base URL.
func (o *observer) fromNode(base string) func(path string, out any) error {
	return func(path string, out any) error { return o.http.GetJSON(context.Background(), base+path, out) }
}

func (o *observer) nodeViews() ([]api.NodeView, error) {
	return list[api.NodeView](o.fromController, "/nodes")
}

func (o *observer) coverage(table string) (cov meta.TableCoverage, err error) {
	return cov, o.fromController("/tables/"+table+"/coverage", &cov)
}

// segments lists the records of a table; committedSegments keeps those that are committed.
func (o *observer) segments(table string) []api.SegmentView {
	o.t.Helper()
	return listLed[api.SegmentView](o, "/segments/"+table)
}

func (o *observer) committedSegments(table string) (out []api.SegmentView) {
	o.t.Helper()
	for _, s := range o.segments(table) {
		if s.Status == meta.SegmentDone {
			out = append(out, s)
		}
	}
	return out
}

func (o *observer) partitions(table string) []api.PartitionView {
	o.t.Helper()
	return listLed[api.PartitionView](o, "/tables/"+table+"/partitions")
}

// committed is how many rows of the table are in segments.
func (o *observer) committed(table string) (rows int64, err error) {
	cov, err := o.coverage(table)
	for _, p := range cov.Partitions {
		rows += p.Rows
	}
	return rows, err
}

// awaitNodes waits until so many nodes are UP.
func (o *observer) awaitNodes(n int) {
	o.t.Helper()
	o.await(fmt.Sprintf("%d nodes UP", n), func() (bool, string) {
		views, err := o.nodeViews()
		if err != nil {
			return false, err.Error()
		}
		up := 0
		for _, v := range views {
			if v.State == meta.NodeUp {
				up++
			}
		}
		return up == n, fmt.Sprintf("%d of %d", up, len(views))
	})
}

// awaitCommitted waits for at least so many committed rows.
func (o *observer) awaitCommitted(table string, rows int64) {
	o.t.Helper()
	o.await(fmt.Sprintf("%d committed rows of %s", rows, table), func() (bool, string) {
		n, err := o.committed(table)
		return err == nil && n >= rows, fmt.Sprint(n, " ", err)
	})
}

// awaitCopies waits until every committed segment has all its copies on nodes, whatever
// is in the deep store.
func (o *observer) awaitCopies(table string) {
	o.t.Helper()
	o.await("every node's copy of "+table, func() (bool, string) {
		cov, err := o.coverage(table)
		short := 0
		for _, p := range cov.Partitions {
			short += p.UnderReplicated
		}
		return err == nil && len(cov.Partitions) > 0 && short == 0, asJSON(cov, err)
	})
}

// awaitReplicated is awaitCopies, and what should be in the deep store is there, too.
func (o *observer) awaitReplicated(table string) {
	o.t.Helper()
	o.await("every copy of "+table, func() (bool, string) {
		cov, err := o.coverage(table)
		return err == nil && cov.Replicated, asJSON(cov, err)
	})
}

// awaitComplete waits for the coverage proof of all that is in the stream, and for
// every copy. The stream must not grow any more.
func (o *observer) awaitComplete(table string, ends map[int32]int64, nodes []string) {
	o.t.Helper()
	o.awaitCovered(table, ends, nodes)
	o.awaitReplicated(table)
}

// awaitCovered asks for the end of the table's open segments, once all that is in the
// stream has been read by every replica, and waits for the coverage proof.
func (o *observer) awaitCovered(table string, ends map[int32]int64, nodes []string) {
	o.t.Helper()
	o.await("every replica of "+table+" at the end of the stream", func() (bool, string) {
		for _, base := range nodes {
			var views []api.ConsumingView
			if err := o.fromNode(base)("/partitions", &views); err != nil {
				return false, err.Error()
			}
			at := map[int32]int64{}
			for _, v := range views {
				if v.Table == table {
					at[v.Partition] = max(at[v.Partition], v.Offset)
				}
			}
			for p, end := range ends {
				if at[p] != end {
					return false, fmt.Sprintf("%s is at %d of %d in partition %d: %s", base, at[p], end, p, asJSON(views, nil))
				}
			}
		}
		return true, ""
	})
	o.post("/tables/"+table+"/forceCommit", nil, nil)
	o.await("complete coverage of "+table, func() (bool, string) {
		cov, err := o.coverage(table)
		return err == nil && cov.Complete, asJSON(cov, err)
	})
}

// inventory is what a node holds.
func (o *observer) inventory(base string) ([]api.InventoryItem, error) {
	return list[api.InventoryItem](o.fromNode(base), "/segments")
}

func asJSON(v any, err error) string {
	if err != nil {
		return err.Error()
	}
	b, _ := json.Marshal(v)
	return string(b)
}
