package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/segment"
	"github.com/shoalstore/shoal/stream"
	"github.com/shoalstore/shoal/validation"
)

// rig is the leader's machine with a log that takes its writes, streams and a
// deep store as the test says they are, and a clock that the test moves. Effects
// that the machine asks for fly until the test ends them.
type rig struct {
	rapid.TB
	log     *metatest.Log
	m       *Machine
	now     time.Duration
	shown   int // batches of the log that the machine has been told of
	ticket  Ticket
	flying  []Action
	lists   int    // that were asked for
	expired int    // segments, as the machine said
	blocked string // why retention takes nothing, as the machine said

	nodesAhead  map[string]time.Duration // how far the nodes' clocks are ahead of the log's
	leaderAhead time.Duration            // how far the leader's is

	streams map[string]int               // partitions by path; a path that is not there is an error
	ends    map[int32]int64              // of the partitions of any stream, 0 without
	deep    map[string]bool              // objects by URI; one that is not there is not found
	uploads map[string]validation.Answer // of each node that is asked
	// deletes, if not nil, deletes objects that the machine wants deleted elsewhere.
	deletes func(DeleteDeepStore) Deleted
}

const testURL = "http://127.0.0.1:7070"

// newRig founds a cluster of nodes n1, n2 and n3 that leads.
func newRig(t rapid.TB) *rig {
	t.Helper()
	r := &rig{TB: t, log: metatest.NewLog(t), m: NewMachine(), streams: map[string]int{}, deep: map[string]bool{}}
	for _, n := range []string{"n1", "n2", "n3"} {
		r.log.AddNode(t, n, "zone")
	}
	r.m.SetValidation(noValidation)
	r.lead()
	return r
}

// noValidation is that of a rig whose test is about something else.
var noValidation = ValidationTiming{
	First: 1e6 * time.Hour, Every: 1e6 * time.Hour, Soon: 1e6 * time.Hour, Limits: validation.DefaultLimits,
	Manager: validation.Timing{Patience: 1e6 * time.Hour}, Audit: DefaultAudit,
}

func (r *rig) lead() string {
	r.shown = len(r.log.Batches)
	return r.step(Lead{URL: testURL, Image: r.log.Image})
}

// step hands in an event and returns the actions, one phrase for each.
func (r *rig) step(ev Event) string {
	actions := r.m.Step(Now{Mono: r.now, Wall: r.log.Now + r.leaderAhead.Milliseconds()}, ev)
	for _, a := range actions {
		switch a.(type) {
		case Write, ListPartitions, CheckDeepStore, DeleteDeepStore, Survey, AskUpload, ListDeepStore:
			r.flying = append(r.flying, a)
		}
		switch a := a.(type) {
		case ListPartitions:
			r.lists++
		case Expired:
			r.expired += a.Segments
		case RetentionBlocked:
			r.blocked = a.Why
		}
	}
	return describe(actions)
}

// want hands in an event and fails unless exactly these actions come of it.
func (r *rig) want(actions string, ev Event) {
	r.Helper()
	if got := r.step(ev); got != actions {
		r.Fatalf("at %s, %s:\n got %s\nwant %s", r.now, describeEvent(ev), quoted(got), quoted(actions))
	}
}

func (r *rig) later(d time.Duration, actions string) {
	r.Helper()
	r.now += d
	r.want(actions, Tick{})
}

// alive is later with every node heard of just before.
func (r *rig) alive(d time.Duration, actions string) {
	r.Helper()
	r.now += d - 1
	r.ready("n1", "n2", "n3")
	r.later(1, actions)
}

func quoted(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// land takes the oldest effect out of the air.
func (r *rig) land() Action {
	r.Helper()
	if len(r.flying) == 0 {
		r.Fatalf("no effect is under way")
	}
	a := r.flying[0]
	r.flying = r.flying[1:]
	return a
}

// result is what comes of an effect when all goes well: a Write is written, or
// refused by its function; the outside answers what is there.
func (r *rig) result(a Action) Event {
	switch a := a.(type) {
	case Write:
		err := r.log.Try(r, a.Func)
		if err != nil {
			return Wrote{ID: a.ID, Outcome: commit.WriteRefused, Err: err}
		}
		return Wrote{ID: a.ID, Outcome: commit.Written, Image: r.log.Image}
	case ListPartitions:
		n, ok := r.streams[a.Stream.Path]
		if !ok {
			return Listed{ID: a.ID, Err: fmt.Errorf("no stream %s", a.Stream.Path)}
		}
		var ps []stream.Partition
		for p := range int32(n) {
			ps = append(ps, stream.Partition{Partition: p, Epoch: "0", End: r.ends[p]})
		}
		return Listed{ID: a.ID, Partitions: ps}
	case CheckDeepStore:
		return Checked{ID: a.ID, Found: r.deep[a.URI]}
	case DeleteDeepStore:
		if r.deletes != nil {
			return r.deletes(a)
		}
		for _, key := range a.Keys {
			delete(r.deep, deepstore.URI(a.Store, key))
		}
		return Deleted{ID: a.ID}
	case Survey:
		return Surveyed{ID: a.ID, Findings: validation.Survey(a.Image, a.Request)}
	case AskUpload:
		return UploadAnswered{ID: a.ID, Answer: r.uploads[a.Node]}
	case ListDeepStore:
		return ListObjects(context.Background(), a, listed{r.deep, a.Image})
	}
	panic(fmt.Sprintf("no result of %T", a))
}

// failure is what comes of an effect when nobody knows.
func failure(a Action) Event {
	err := fmt.Errorf("it failed")
	switch a := a.(type) {
	case Write:
		return Wrote{ID: a.ID, Outcome: commit.WriteFailed, Err: err}
	case ListPartitions:
		return Listed{ID: a.ID, Err: err}
	case CheckDeepStore:
		return Checked{ID: a.ID, Err: err}
	case DeleteDeepStore:
		return Deleted{ID: a.ID, Err: err}
	case Survey: // cannot fail
		return Surveyed{ID: a.ID, Findings: validation.Survey(a.Image, a.Request)}
	case AskUpload:
		return UploadAnswered{ID: a.ID, Err: err}
	case ListDeepStore:
		return ObjectsListed{ID: a.ID, After: a.After, Err: err}
	}
	panic(fmt.Sprintf("no failure of %T", a))
}

// listed is a store that only lists what the rig says is there.
type listed struct {
	deep  map[string]bool
	image *meta.Image
}

func (l listed) List(_ context.Context, prefix, after string, limit int) ([]deepstore.Info, error) {
	var all []deepstore.Info
	for t := range l.image.Tables() {
		for s := range l.image.TableSegments(t.ID) {
			key, err := deepstore.KeyOf("file:///deep", uri(s))
			if err != nil || !l.deep[uri(s)] {
				continue
			}
			all = append(all, deepstore.Info{Key: key, SizeBytes: s.SizeBytes},
				deepstore.Info{Key: deepstore.PiecesKey(key), SizeBytes: segment.SidecarSize(s.SizeBytes)})
		}
	}
	all = slices.DeleteFunc(all, func(i deepstore.Info) bool { return !strings.HasPrefix(i.Key, prefix) || i.Key <= after })
	slices.SortFunc(all, func(a, b deepstore.Info) int { return strings.Compare(a.Key, b.Key) })
	return all[:min(len(all), limit)], nil
}

// well ends the oldest effect well, and returns what the machine does then.
func (r *rig) well() string { r.Helper(); return r.step(r.result(r.land())) }

func (r *rig) fail() string { r.Helper(); return r.step(failure(r.land())) }

// settle ends every effect well, and what they lead to, and has the machine told
// of all that was written.
func (r *rig) settle() {
	r.Helper()
	for rounds := 0; len(r.flying) > 0 || r.shown < len(r.log.Batches); rounds++ {
		if rounds == 10_000 {
			r.Fatalf("it does not come to rest: %s", describe(r.flying))
		}
		for len(r.flying) > 0 {
			r.well()
		}
		r.step(r.committed())
	}
}

// committed is the event that tells the machine of the log's newest batches.
func (r *rig) committed() Committed {
	ev := Committed{Image: r.log.Image, Touched: []meta.Key{}}
	for _, b := range r.log.Batches[r.shown:] {
		for k := range b.Keys() {
			ev.Touched = append(ev.Touched, k)
		}
	}
	slices.SortFunc(ev.Touched, meta.Key.Compare)
	ev.Touched = slices.Compact(ev.Touched)
	r.shown = len(r.log.Batches)
	return ev
}

// do writes into the log beside the machine, as the API does, and tells it.
func (r *rig) do(fn meta.Func) string {
	r.Helper()
	r.log.Do(r, fn)
	return r.step(r.committed())
}

func (r *rig) next() Ticket { r.ticket++; return r.ticket }

// beat is a heartbeat of a node that has applied everything, less so many batches.
func (r *rig) beat(node string, behind int64) Heartbeat {
	hb := Heartbeat{Ticket: r.next(), Heartbeat: api.Heartbeat{
		Node: node, AppliedOffset: r.log.Image.Next() - behind, WallClock: r.log.Now + r.nodesAhead[node].Milliseconds(),
	}}
	if n := r.log.Image.Node(node); n != nil {
		hb.Incarnation = n.Incarnation
	}
	return hb
}

// ready has nodes heard of that have caught up.
func (r *rig) ready(nodes ...string) {
	for _, n := range nodes {
		r.step(r.beat(n, 0))
	}
}

// table makes an ACTIVE table whose stream has so many partitions.
func (r *rig) table(name string, partitions int, change ...func(*meta.Config)) uuid.UUID {
	r.Helper()
	cfg := metatest.Config(name)
	for _, c := range change {
		c(cfg)
	}
	r.streams[name] = partitions
	id := r.log.AddTable(r, cfg, partitions)
	r.step(r.committed())
	r.settle()
	return id
}

func withDeepStore(c *meta.Config) { c.DeepStore = &meta.DeepStoreConfig{URI: "file:///deep"} }

// done commits the consuming segment of a partition beside the machine.
func (r *rig) done(table uuid.UUID, partition int32) *meta.Segment {
	r.Helper()
	c := r.log.Commit(r, meta.PartitionKey{Table: table, Partition: partition}, 10)
	r.do(meta.CommitSegment(c))
	return r.log.Image.Segment(c.Key)
}

// expire takes the segment and those before it, as if they were old enough.
func expire(l *metatest.Log, s *meta.Segment) meta.Func {
	age := time.Duration(l.Image.CurrentConfig(s.Table).Retention.Age)
	return meta.ExpireSegments(s.SegmentKey().PartitionKey(), s.Seq, l.Now+2*age.Milliseconds(), deepstore.DataKey)
}

// uri is where the deep store has a segment.
func uri(s *meta.Segment) string {
	return fmt.Sprintf("file:///deep/%s/%d/%s-%s.parquet", s.Name[:strings.Index(s.Name, "__")], s.Partition, s.Name, s.Digest.Short())
}

func (r *rig) report(node string) *meta.LocationReport {
	n := r.log.Image.Node(node)
	return &meta.LocationReport{Node: node, Incarnation: n.Incarnation, StoreID: n.StoreID, Sequence: n.LocationsSeq + 1}
}

func refOf(s *meta.Segment) meta.CopyRef {
	return meta.CopyRef{Table: s.Table, Partition: s.Partition, Seq: s.Seq, Digest: s.Digest}
}

func (r *rig) located(report *meta.LocationReport) Located {
	return Located{Ticket: r.next(), Report: *report}
}

func describe(actions []Action) string {
	var out []string
	for _, a := range actions {
		switch a := a.(type) {
		case ReplyTo:
			out = append(out, fmt.Sprintf("%d %s", a.Ticket, a.Reply.Status))
		case AnswerHeartbeat:
			out = append(out, fmt.Sprintf("%d beat %s", a.Ticket, a.Refuse))
		case AnswerLocations:
			out = append(out, fmt.Sprintf("%d locations %s", a.Ticket, a.Refuse))
		case Seen:
			out = append(out, fmt.Sprintf("%d seen %d", a.Ticket, len(a.Nodes)))
		case Write:
			out = append(out, "write "+a.What)
		case ListPartitions:
			out = append(out, "list "+a.Stream.Path)
		case CheckDeepStore:
			out = append(out, "check "+a.Name[:strings.LastIndex(a.Name, "__")])
		case DeleteDeepStore:
			out = append(out, "delete "+strings.Join(shortNames(a.Keys), " "))
		case Expired:
			out = append(out, fmt.Sprintf("expired %d of %s", a.Segments, a.Table))
		case RetentionBlocked:
			out = append(out, "blocked: "+a.Why)
		case Survey:
			out = append(out, "survey")
		case AskUpload:
			out = append(out, "ask "+a.Node+" "+a.Segment[:strings.LastIndex(a.Segment, "__")])
			if a.Poll {
				out[len(out)-1] = "poll" + strings.TrimPrefix(out[len(out)-1], "ask")
			}
		case ListDeepStore:
			out = append(out, "list "+a.Name+" after "+a.After)
		case ValidationSeen:
			out = append(out, fmt.Sprintf("%d validation %s", a.Ticket, a.Refuse))
		}
		out[len(out)-1] = strings.TrimSpace(out[len(out)-1])
	}
	return strings.Join(out, "; ")
}

// shortNames are those of segments in keys, without their times and digests.
func shortNames(keys []string) (names []string) {
	for _, key := range keys {
		names = append(names, key[strings.LastIndex(key, "/")+1:strings.LastIndex(key, "__")])
	}
	return names
}

func describeEvent(ev Event) string { return fmt.Sprintf("%T", ev)[len("controller."):] }

func TestRigDescribes(t *testing.T) {
	got := describe([]Action{
		AnswerHeartbeat{Ticket: 1}, AnswerLocations{Ticket: 2, Refuse: RefuseUnknown}, Write{What: "x"},
		CheckDeepStore{Name: "t__0__3__20260101T000000Z"}, ReplyTo{Ticket: 3, Reply: commit.Reply{Status: commit.Hold}},
	})
	if want := "1 beat; 2 locations UNKNOWN; write x; check t__0__3; 3 HOLD"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
}
