package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/node"
	"github.com/shoalstore/shoal/meta"
)

// drainMax is for what waits for back-offs, or for a look through a deep store, before
// it is done: minutes, on a machine that has nothing else to do.
const drainMax = 10 * time.Minute

// outage is a fleet with a second deep store that stays, while the first one goes.
type outage struct {
	*fleet
	other string // directory of the second store
}

func startOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{other: filepath.Join(t.TempDir(), "other")}
	o.fleet, _ = startFleet(t, fleetOptions{
		node:       func(_ int, cfg *node.Config) { cfg.DeepStoreRoots = append(cfg.DeepStoreRoots, o.other) },
		controller: func(cfg *controller.Config) { cfg.DeepStoreRoots = append(cfg.DeepStoreRoots, o.other) },
	})
	return o
}

// goes puts a file where the first store's directory is: whoever opens it fails.
func (o *outage) goes() {
	o.t.Helper()
	if err := os.Remove(o.deepStore()); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(o.deepStore(), []byte("this is no directory\n"), 0o644); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outage) comesBack() {
	o.t.Helper()
	if err := os.Remove(o.deepStore()); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Mkdir(o.deepStore(), 0o755); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outage) otherStore() string {
	uri, err := deepstore.FileURI(o.other)
	if err != nil {
		o.t.Fatal(err)
	}
	return uri
}

// notInDeepStore counts the committed segments of a table that the leader has not seen
// in its store.
func (f *fleet) notInDeepStore(table string) (n int) {
	for _, s := range f.committedSegments(table) {
		if !s.InDeepStore {
			n++
		}
	}
	return n
}

// awaitDrained waits until all that is committed of a table is in its deep store.
func (f *fleet) awaitDrained(table string) {
	f.t.Helper()
	f.awaitWithin(drainMax, "the deep store to have all of "+table, func() (bool, string) {
		n := f.notInDeepStore(table)
		return n == 0, fmt.Sprint(n, " are not there")
	})
}

// validation runs a look at everything now, and returns what it finds.
func (f *fleet) validation() (v api.ValidationView) {
	f.t.Helper()
	f.post(api.PathValidationRun+"?dryRun=true&limit=1000", nil, &v)
	return v
}

// TestDeepStoreOutage: the store is away from before the first row until after the last
// one. Commits go on and everything is replicated; what is at risk is told; a table
// with another store is not held up; and when the store is back, what waited drains.
func TestDeepStoreOutage(t *testing.T) {
	t.Parallel()
	o := startOutage(t)
	o.goes()
	tables := map[string]*producer{}
	for name, changes := range map[string]map[string]any{
		"events": {"deepStore": o.withDeepStore()},
		"solo":   {"deepStore": o.withDeepStore(), "replication": 1},
		// It waits for its uploads before it commits, but not for long.
		"patient": {"deepStore": map[string]any{"uri": o.withDeepStore()["uri"], "uploadWait": "1s"}},
		// Its store is there, and each of its segments in it before it is committed.
		"well": {"deepStore": map[string]any{"uri": o.otherStore(), "uploadWait": "60s"}},
	} {
		tables[name] = newProducer(t, o.streamRoot(), name, 2)
		o.createTable(name, changes)
	}
	for _, p := range tables {
		p.add(1000)
	}
	for name := range tables {
		o.awaitCommitted(name, 2000)
		o.awaitCopies(name)
	}
	o.awaitDrained("well")
	for _, s := range o.committedSegments("well") {
		if s.Times.Uploaded != s.Times.Committed {
			t.Errorf("%s was to be uploaded before it was committed: %+v", s.Name, s.Times)
		}
	}
	for name := range tables {
		if n := o.notInDeepStore(name); name != "well" && n != len(o.committedSegments(name)) {
			t.Errorf("%d of %s are not in a deep store that is away", n, name)
		}
	}

	t.Log("what is at risk is told")
	o.awaitWithin(drainMax, "validation and metrics to say what is at risk", func() (bool, string) {
		v := o.validation()
		at := map[string]api.ValidationTable{}
		for _, x := range v.Tables {
			at[x.Table] = x
		}
		solo, events := int64(len(o.committedSegments("solo"))), int64(len(o.committedSegments("events")))
		oldest := at["solo"].SingleCopy.Oldest
		return at["solo"].SingleCopy.Segments == solo && at["solo"].SingleCopy.Bytes > 0 && !oldest.IsZero() && time.Since(oldest) < time.Hour &&
			at["events"].SingleCopy.Segments == 0 && at["events"].Awaiting.Segments == events && at["well"].Awaiting.Segments == 0 &&
			len(v.Awaiting) >= int(solo+events) && v.Awaiting[0].SingleCopy &&
			o.metric(o.controller, `shoal_single_copy_segments{table="solo"}`) == float64(solo) &&
			o.metric(o.controller, `shoal_segments_awaiting_deep_store{table="events"}`) == float64(events), asJSON(v, nil)
	})
	o.awaitWithin(drainMax, "the nodes' queues to show", func() (bool, string) {
		waiting, size, failed := 0.0, 0.0, 0.0
		for _, n := range o.nodes {
			waiting += max(0, o.metric(n, `shoal_node_waiting{kind="upload"}`))
			size += max(0, o.metric(n, "shoal_node_uploads_waiting_bytes"))
			if o.metric(n, `shoal_node_uploads_total{result="failed"}`) > 0 && o.metric(n, "shoal_node_uploads_failing_tables") > 0 &&
				o.metric(n, "shoal_node_uploads_waiting_oldest_timestamp_seconds") > 0 {
				failed++
			}
		}
		return waiting > 0 && size > 0 && failed > 0, fmt.Sprint(waiting, size, failed)
	})
	o.awaitWithin(drainMax, "an upload that validation has asked for to fail, and to be told", func() (bool, string) {
		v := o.validation()
		return slices.ContainsFunc(v.Awaiting, func(s api.ValidationSegment) bool {
			return s.LastNode != "" && strings.Contains(s.LastError, o.deepStore())
		}), asJSON(v.Awaiting, nil)
	})

	for path, want := range map[string]string{
		api.PathValidation + "?limit=0":         "GET",
		api.PathValidation + "?limit=1001":      "GET",
		api.PathValidationRun + "?dryRun=maybe": "POST",
	} {
		if err := request(t, want, o.controller.url+path, ""); err == nil || !namesAll(err.Error(), api.CodeInvalidRequest) {
			t.Errorf("%s %s: %v", want, path, err)
		}
	}
	at := o.nodes[slices.IndexFunc(o.nodes, func(n *process) bool { return n.name == o.committedSegments("solo")[0].Committer })]
	o.await("a node to say what became of an upload", func() (bool, string) {
		var state api.UploadState
		err := o.fromNode(at.url)(api.SegmentPath("solo", o.committedSegments("solo")[0].Name, "upload"), &state)
		return err == nil && state.Failures > 0 && strings.Contains(state.LastError, o.deepStore()) && !state.LastErrorAt.IsZero(), asJSON(state, err)
	})

	var run api.ValidationView
	o.post(api.PathValidationRun, nil, &run)
	if len(run.Asks)+run.Pool.Running == 0 {
		t.Errorf("a run asks for nothing, and %d wait: %+v", len(run.Awaiting), run.Pool)
	}

	t.Log("the store is back")
	o.comesBack()
	for name := range tables {
		o.awaitDrained(name)
	}
	for name, p := range tables {
		if name != "solo" { // its segments are on one node each
			o.prove(name, p)
		}
		o.awaitDrained(name)
	}
	want := []string{}
	for name := range tables {
		for _, s := range o.committedSegments(name) {
			if name == "well" {
				continue
			}
			o.checkDeepStore(o.deepStore(), s)
			key, err := deepstore.DataKey(s.Name, s.Digest)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, filepath.Join(o.deepStore(), key), filepath.Join(o.deepStore(), deepstore.PiecesKey(key)))
		}
	}
	slices.Sort(want)
	o.await("what is committed, and nothing else, in the deep store", func() (bool, string) { // somebody may be at a second upload
		have := filesBelow(t, o.deepStore())
		slices.Sort(have)
		return slices.Equal(have, want), fmt.Sprintf("there are %v, and committed are %v", have, want)
	})
	all := 0
	for name := range tables {
		all += len(o.committedSegments(name))
	}
	o.awaitHistogram(o.controller, deepStoreTime, all)
	o.awaitHistogram(o.controller, secondCopyTime, all-len(o.committedSegments("solo")))
	o.checkHistory()
}

// TestObjectDeletedBehindOurBack: somebody deletes objects that the leader has
// verified, and the nodes that committed them are gone. It is noticed, and they are
// uploaded again from whoever has the segments.
func TestObjectDeletedBehindOurBack(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 2)
	f.createTable("events", map[string]any{"deepStore": f.withDeepStore()})
	p.add(500)
	f.awaitCommitted("events", 1000)
	f.awaitReplicated("events")
	f.awaitDrained("events")
	segments := f.committedSegments("events")
	committer := f.nodes[slices.IndexFunc(f.nodes, func(n *process) bool { return n.name == segments[0].Committer })]
	committer.kill()
	began := time.Now()
	paths := map[string]api.SegmentView{}
	for i, s := range segments[:3] {
		key, err := deepstore.DataKey(s.Name, s.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			key = deepstore.PiecesKey(key) // its sidecar alone
		}
		path := filepath.Join(f.deepStore(), key)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		paths[path] = s
	}
	f.awaitWithin(drainMax, "what was deleted to be there again", func() (bool, string) {
		for path := range paths {
			if _, err := os.Stat(path); err != nil {
				return false, err.Error()
			}
		}
		return true, ""
	})
	t.Logf("there again after %s", time.Since(began).Round(time.Second))
	f.awaitDrained("events")
	for _, s := range paths {
		f.checkDeepStore(f.deepStore(), s)
	}
	f.await("the loss to be counted", func() (bool, string) {
		lost := f.metric(f.controller, "shoal_deep_store_copies_lost_total")
		return lost == float64(len(paths)), fmt.Sprint(lost)
	})
	committer.start()
	f.awaitNodes(len(f.nodes))
	f.prove("events", p)
	f.checkHistory()
}

// TestCompletionModeDownload: in mode download the other replicas fetch the committer's
// bytes, and never publish a build of their own.
func TestCompletionModeDownload(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 2)
	f.createTable("events", map[string]any{
		// Who has found no source for ten times as long seals what it has.
		"completion": map[string]any{"mode": "download", "holdTime": "6s"}, "download": "peersFirst",
	})
	p.add(550)
	f.prove("events", p)
	sealed, fetched := 0, 0
	for _, s := range f.committedSegments("events") {
		for _, n := range f.nodes {
			var events []api.SegmentEvent
			if err := f.fromNode(n.url)(api.SegmentPath("events", s.Name, "events"), &events); err != nil {
				t.Fatal(err)
			}
			did := func(what string) bool {
				return slices.ContainsFunc(events, func(e api.SegmentEvent) bool { return e.What == what && e.Error == "" })
			}
			switch {
			case n.name == s.Committer && did("seal"):
				sealed++
			case n.name == s.Committer:
				t.Errorf("%s has committed %s, and does not say that it has sealed it: %+v", n.name, s.Name, events)
			case did("seal"):
				t.Errorf("%s has sealed %s, which %s has committed: %+v", n.name, s.Name, s.Committer, events)
			case did("download"):
				fetched++
			default:
				t.Errorf("%s has not fetched %s: %+v", n.name, s.Name, events)
			}
		}
		if s.Status != meta.SegmentDone || s.CountedCopies != len(f.nodes) {
			t.Errorf("%s is %s, with %d copies", s.Name, s.Status, s.CountedCopies)
		}
	}
	t.Logf("%d sealed by their committers, %d fetched", sealed, fetched)
	f.checkHistory()
}
