package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/shoalstore/shoal/deepstore/s3test"
	"github.com/shoalstore/shoal/internal/api"
)

// TestS3AwayForTheWholeRun has the main job's input go through while S3 is away, from
// before the first process starts until after the last commit. Away is a server that
// was killed, with nothing between it and the processes: they meet what they would meet
// in earnest, a port at which nobody listens, and later a server that has just started.
// (The proxy's way to be away, connections that break, is TestSegmentsGoToS3's.)
func TestS3AwayForTheWholeRun(t *testing.T) {
	t.Parallel()
	gateway := s3test.Start(t)
	gateway.Kill()
	f := startS3Fleet(t, gateway, gateway.Endpoint(), 3)
	flights, large, solo := newFlights(t, f.streamRoot(), "flights", 3), newLarge(t, f.streamRoot(), "large"), newProducer(t, f.streamRoot(), "solo", 2)
	f.createTable("flights", inS3("flights", map[string]any{"format": jsonFormat(flightColumns), "segment": map[string]any{"maxRows": 1000}}))
	f.createTable("large", inS3("large", nil))
	f.createTable("solo", inS3("solo", map[string]any{"replication": 1}))
	solo.add(200)
	f.awaitCommitted("solo", 400)
	f.checkRisk("solo")

	// No pause: the proof that all of the input is committed and on every node comes
	// while S3 is away.
	for table, p := range map[string]*producer{"flights": flights, "large": large} {
		f.awaitCovered(table, p.ends(), f.urls())
		f.awaitCopies(table)
	}
	tables, committed := []string{"flights", "large", "solo"}, map[string]api.SegmentView{}
	for _, table := range tables {
		for _, s := range f.committedSegments(table) {
			committed[s.Name] = s
			if table != "solo" && s.CountedCopies != 3 {
				t.Errorf("%s has %d copies, and S3 is still away", s.Name, s.CountedCopies)
			}
		}
		if n, all := f.notInDeepStore(table), len(f.committedSegments(table)); n != all {
			t.Errorf("S3 is away, and of %d segments of %s %d are not in it", all, table, n)
		}
	}
	f.checkRisk("solo")
	f.awaitWithin(drainMax, "uploads to be tried", func() (bool, string) {
		tried, waiting := 0.0, 0.0
		for _, n := range f.nodes {
			tried += f.metric(n, `shoal_node_uploads_total{result="failed"}`)
			waiting += f.metric(n, "shoal_node_uploads_waiting_bytes")
		}
		return tried > 0 && waiting > 0, fmt.Sprintf("%v failed, %v bytes wait", tried, waiting)
	})

	back := time.Now().UnixMilli()
	gateway.Restart()
	for _, table := range tables {
		f.awaitDrained(table)
		for _, s := range f.committedSegments(table) {
			was, ok := committed[s.Name]
			if !ok || was.Digest != s.Digest || was.Times.Committed != s.Times.Committed || s.Times.DeepStore < back {
				t.Errorf("S3 is back since %d, and %s is %+v; before it was %+v", back, s.Name, s, was)
			}
		}
	}
	f.awaitNothingWaits(tables)
	f.prove("flights", flights)
	f.prove("large", large)
	if n := f.checkBucket(tables...); n != len(f.committedSegments("large")) {
		t.Errorf("%d objects went up in parts, of %d large segments", n, len(f.committedSegments("large")))
	}
	f.awaitHistogram(f.controller, deepStoreTime, len(committed))
	f.awaitHistogram(f.controller, secondCopyTime, len(committed)-len(f.committedSegments("solo")))
	f.checkHistory()
}

const (
	secondCopyTime = "shoal_segment_second_copy_seconds"
	deepStoreTime  = "shoal_segment_deep_store_seconds"
)

// checkRisk checks that all segments of a table are shown as at risk, by the metrics
// and by validation: how many, how many bytes, since when. A run of validation needs
// no wait for the next one.
func (f *fleet) checkRisk(table string) {
	f.t.Helper()
	want := api.ValidationTotal{}
	oldest := int64(math.MaxInt64)
	for _, s := range f.committedSegments(table) {
		want.Segments++
		want.Bytes += s.SizeBytes
		oldest = min(oldest, s.Times.Committed)
	}
	want.Oldest = time.UnixMilli(oldest).UTC()
	if want.Segments == 0 {
		f.t.Fatal("nothing is committed")
	}
	f.post(api.PathValidationRun, nil, nil)
	var v api.ValidationView
	f.get(api.PathValidation+"?limit=1000", &v)
	i := slices.IndexFunc(v.Tables, func(at api.ValidationTable) bool { return at.Table == table })
	if i < 0 || v.Tables[i].SingleCopy != want || v.Tables[i].Awaiting != want {
		f.t.Errorf("validation says %s, want %s at risk and awaited in %s", asJSON(v.Tables, nil), asJSON(want, nil), table)
	}
	listed := int64(0)
	for _, s := range v.SingleCopy {
		if s.Table == table {
			listed++
		}
	}
	if listed != want.Segments || len(v.Awaiting) == 0 || !v.Awaiting[0].SingleCopy {
		f.t.Errorf("validation lists %s at risk, and %s awaited", asJSON(v.SingleCopy, nil), asJSON(v.Awaiting, nil))
	}
	for name, want := range map[string]float64{
		"segments": float64(want.Segments), "bytes": float64(want.Bytes), "oldest_timestamp_seconds": float64(oldest) / 1000,
	} {
		name = fmt.Sprintf("shoal_single_copy_%s{table=%q}", name, table)
		if got := f.metric(f.controller, name); got != want {
			f.t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	f.t.Logf("at risk in %s: %d segments, %d bytes, for %s", table, want.Segments, want.Bytes, time.Since(want.Oldest).Round(time.Millisecond))
}

// awaitNothingWaits waits until everybody says that no segment is at risk or waits for
// its upload.
func (f *fleet) awaitNothingWaits(tables []string) {
	f.t.Helper()
	of := map[string]*process{
		`shoal_validation_uploads{state="asked"}`: f.controller, `shoal_validation_uploads{state="waiting"}`: f.controller, "shoal_validation_failing_tables": f.controller,
	}
	for _, table := range tables {
		for _, name := range []string{"single_copy_segments", "single_copy_bytes", "single_copy_oldest_timestamp_seconds", "segments_awaiting_deep_store"} {
			of[fmt.Sprintf("shoal_%s{table=%q}", name, table)] = f.controller
		}
	}
	zero := func(p *process, name string) {
		f.awaitWithin(drainMax, name+" of "+p.name+" to be 0", func() (bool, string) {
			v := f.metric(p, name)
			return v == 0, fmt.Sprint(v)
		})
	}
	for name, p := range of {
		zero(p, name)
	}
	for _, n := range f.nodes {
		for _, name := range []string{`waiting{kind="upload"}`, "uploads_running", "uploads_waiting_bytes", "uploads_waiting_oldest_timestamp_seconds", "uploads_failing_tables"} {
			zero(n, "shoal_node_"+name)
		}
	}
	if v := f.validation(); len(v.Tables)+len(v.SingleCopy)+len(v.Awaiting)+len(v.Asks) > 0 {
		f.t.Errorf("validation finds %s", asJSON(v, nil))
	}
}

// TestFlightsGoToS3 is the main job's run while S3 is there, and what the README says of
// its times. Then somebody deletes the data of one segment and the sidecar of another,
// whose committer is dead: both are put again from another node's copy.
func TestFlightsGoToS3(t *testing.T) {
	t.Parallel()
	gateway := s3test.Start(t)
	f := startS3Fleet(t, gateway, gateway.Endpoint(), 3)
	p := newFlights(t, f.streamRoot(), "flights", 3)
	f.createTable("flights", inS3("flights", map[string]any{
		"format": jsonFormat(flightColumns), "segment": map[string]any{"maxRows": 100}, "completion": map[string]any{},
	}))
	f.awaitComplete("flights", p.ends(), f.urls())
	f.awaitDrained("flights")
	f.prove("flights", p)
	f.checkBucket("flights")
	segments := f.committedSegments("flights")
	f.checkTimes(secondCopyTime, segments, func(s api.SegmentView) int64 { return s.Times.SecondCopy })
	f.checkTimes(deepStoreTime, segments, func(s api.SegmentView) int64 { return s.Times.DeepStore })

	if !testing.Short() { // else what is deleted may be noticed sooner, by the first pass
		f.awaitWithin(drainMax, "the end of a pass through the store, and the next one a minute away", func() (bool, string) {
			var v api.ValidationView
			f.get(api.PathValidation, &v)
			audits := v.DeepStore.Tables
			return len(audits) == 1 && !audits[0].LastPass.IsZero(), asJSON(v.DeepStore, nil)
		})
	}
	committer := f.busiestCommitter(segments)
	lost := slices.DeleteFunc(slices.Clone(segments), func(s api.SegmentView) bool { return s.Committer != committer.name })[:2]
	committer.kill()
	data, _ := f.keys(lost[0])
	_, sidecar := f.keys(lost[1])
	began, client := time.Now(), f.client()
	for _, key := range []string{data, sidecar} {
		if _, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(s3test.Bucket), Key: aws.String(key)}); err != nil {
			t.Fatal(err)
		}
	}
	f.awaitWithin(drainMax, "what was deleted to be there again", func() (bool, string) {
		for _, key := range []string{data, sidecar} {
			if _, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(s3test.Bucket), Key: aws.String(key)}); err != nil {
				return false, key + ": " + err.Error()
			}
		}
		return true, ""
	})
	t.Logf("there again %s after they were deleted, %s being dead (aim: 2m0s)", time.Since(began).Round(100*time.Millisecond), committer.name)
	f.await("the loss to be counted", func() (bool, string) {
		n := f.metric(f.controller, "shoal_deep_store_copies_lost_total")
		return n == 2, fmt.Sprint(n)
	})
	f.awaitDrained("flights")
	f.checkBucket("flights")
	committer.start()
	f.awaitNodes(3)
	f.prove("flights", p)
	f.awaitNothingWaits([]string{"flights"})
	f.awaitHistogram(f.controller, deepStoreTime, len(segments)) // each segment once
	f.checkHistory()
}

// busiestCommitter is the node that has committed the most.
func (f *fleet) busiestCommitter(segments []api.SegmentView) *process {
	n := map[string]int{}
	for _, s := range segments {
		n[s.Committer]++
	}
	return slices.MaxFunc(f.nodes, func(a, b *process) int { return n[a.name] - n[b.name] })
}

// checkTimes checks that the leader's histogram has the time of each segment from its
// commit to another moment, and shows both.
func (f *fleet) checkTimes(name string, segments []api.SegmentView, until func(api.SegmentView) int64) {
	f.t.Helper()
	var times []int64
	sum := int64(0)
	for _, s := range segments {
		if until(s) == 0 {
			f.t.Errorf("%s has no time for %s: %+v", s.Name, name, s.Times)
		}
		took := max(until(s)-s.Times.Committed, 0)
		times = append(times, took)
		sum += took
	}
	slices.Sort(times)
	rank := func(q float64) int64 { return times[int(math.Ceil(q*float64(len(times))))-1] }
	h := f.awaitHistogram(f.controller, name, len(times))
	f.t.Log(h)
	f.t.Logf("by the records of the %d segments: sum %d ms, p50 %d ms, p99 %d ms, most %d ms", len(times), sum, rank(0.5), rank(0.99), times[len(times)-1])
	if math.Abs(h.sum-float64(sum)/1000) > 1e-6 {
		f.t.Errorf("%s; the records have %d ms in all: %v", h, sum, times)
	}
	for _, q := range []float64{0.5, 0.99} {
		if above, upTo := h.quantile(q); float64(rank(q)) > upTo*1000 || float64(rank(q)) < above*1000 {
			f.t.Errorf("%s; by the records the %g is %d ms", h, q, rank(q))
		}
	}
}

// newLarge makes a stream of one partition whose segment is more than 16 MiB: it goes
// to S3 in parts.
func newLarge(t *testing.T, root, name string) *producer {
	t.Helper()
	p, rnd := newProducer(t, root, name, 1), rand.New(rand.NewSource(1))
	text := make([]byte, 384<<10)
	for i := range 30 {
		rnd.Read(text) // nothing to compress
		var row bytes.Buffer
		fmt.Fprintf(&row, `{"id":%d,"text":"%s"}`, i, base64.StdEncoding.EncodeToString(text))
		p.raw(0, row.Bytes())
	}
	return p
}
