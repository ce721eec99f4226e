package controller

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/validation"
)

// world is a rig in which everything happens at random: leaderships come and go,
// effects end in any order, well or badly, done or not, also those of leaderships
// that are over; nodes beat, report and negotiate, tables and jobs are made.
type world struct {
	*rig
	t       *rapid.T
	leading bool
	open    map[Ticket]bool // asked and not answered

	ours   map[uint64]bool // effects under way of this leadership
	ids    map[uint64]bool // that were ever given
	tables []string
	// confirmed are the copies that somebody who should know said are there, in
	// this leadership.
	confirmed map[string]bool
	releases  map[uint64]release // by the Write that judges them
	// beats are the heartbeats that this leadership has accepted, by node.
	beats map[string]heard
	trace []traced
	ran   map[uint64]evaluation
}

type traced struct {
	now     Now
	event   Event
	actions []Action
}

// heard is a heartbeat and when it came.
type heard struct {
	Heartbeat
	at time.Duration
}

// walkRetention has retention at work within minutes, and walkAge is how long
// tables keep their segments.
var walkRetention = RetentionTiming{Every: 10 * time.Second, Grace: time.Minute, Keep: 2 * time.Minute}

// walkValidation has validation at work within seconds.
var walkValidation = ValidationTiming{
	First: heartbeatTimeout, Every: 20 * time.Second, Soon: 2 * time.Second,
	Manager: validation.Timing{
		Patience: 5 * time.Second, Poll: time.Second, Least: 20 * time.Second,
		Retry: schedule.BackOff{Min: 2 * time.Second, Max: 20 * time.Second}, Table: schedule.BackOff{Min: time.Second, Max: 5 * time.Second},
	},
	Limits: validation.Limits{Pool: 3, PerTable: 2, Failing: 2, Most: 5},
	Audit:  AuditTiming{Every: 10 * time.Second, PerMinute: 60, Retry: schedule.BackOff{Min: time.Second, Max: 10 * time.Second}},
}

const walkAge = 5 * time.Minute

func walkConfig(name string) *meta.Config {
	cfg := metatest.Config(name)
	withDeepStore(cfg)
	cfg.Retention.Age = config.Duration(walkAge)
	return cfg
}

func walkMachine() *Machine {
	m := NewMachine()
	m.SetRetention(walkRetention)
	m.SetValidation(walkValidation)
	return m
}

// release is what a report asked to let go, and what the leader could count on.
type release struct {
	refs       []meta.CopyRef
	expendable func(meta.SegmentKey) bool
}

// evaluation is where the function of a Write was evaluated, and what came of it.
type evaluation struct {
	image  *meta.Image
	now    int64
	change meta.Change
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, rig: newRig(t), open: map[Ticket]bool{}, ids: map[uint64]bool{}, ran: map[uint64]evaluation{}}
	w.uploads = map[string]validation.Answer{}
	w.streams["t0"], w.tables = 2, []string{"t0"}
	table := w.log.AddTable(t, walkConfig("t0"), 2)
	for p := range int32(2) {
		w.log.Do(t, meta.CommitSegment(w.log.Commit(t, meta.PartitionKey{Table: table, Partition: p}, 10)))
	}
	w.m, w.flying, w.nodesAhead = walkMachine(), nil, map[string]time.Duration{}
	w.takeOver()
	return w
}

func (w *world) takeOver() {
	w.leading, w.ours, w.confirmed = true, map[uint64]bool{}, map[string]bool{}
	w.releases, w.beats = map[uint64]release{}, map[string]heard{}
	w.happens(Lead{URL: testURL, Image: w.log.Image})
	w.shown = len(w.log.Batches)
}

// happens hands in an event and checks what comes of it.
func (w *world) happens(ev Event) {
	now := Now{Mono: w.now, Wall: w.wall()}
	switch ev := ev.(type) {
	case Message:
		w.open[ev.Ticket] = true
	case Heartbeat:
		w.open[ev.Ticket] = true
		if n := w.m.image.Node(ev.Node); w.leading && n != nil && n.Incarnation == ev.Incarnation {
			w.beats[ev.Node] = heard{ev, w.now}
		}
	case Located:
		w.open[ev.Ticket] = true
	case Look:
		w.open[ev.Ticket] = true
	case LookAtValidation:
		w.open[ev.Ticket] = true
	case RunValidation:
		w.open[ev.Ticket] = true
	}
	actions := w.m.Step(now, ev)
	w.trace = append(w.trace, traced{now, ev, actions})
	for _, a := range actions {
		switch a := a.(type) {
		case ReplyTo:
			w.answered(a.Ticket)
		case AnswerHeartbeat:
			w.answered(a.Ticket)
		case AnswerLocations:
			w.answered(a.Ticket)
		case Seen:
			w.answered(a.Ticket)
		case ValidationSeen:
			w.answered(a.Ticket)
		case Survey:
			w.begins(a.ID, a)
		case AskUpload:
			w.checkAsk(a)
			w.begins(a.ID, a)
		case ListDeepStore:
			w.begins(a.ID, a)
		case Write:
			w.begins(a.ID, a)
		case ListPartitions:
			w.begins(a.ID, a)
		case CheckDeepStore:
			w.begins(a.ID, a)
		case DeleteDeepStore:
			w.checkDelete(a)
			w.begins(a.ID, a)
		}
	}
	w.count()
}

func (w *world) answered(t Ticket) {
	if !w.open[t] {
		w.t.Fatalf("ticket %d is answered twice, or was never asked", t)
	}
	delete(w.open, t)
}

func (w *world) begins(id uint64, a Action) {
	if w.ids[id] || !w.leading {
		w.t.Fatalf("effect %d: %s: its id was used, or nobody leads", id, describe([]Action{a}))
	}
	w.ids[id], w.ours[id] = true, true
	if w.m.effects[id].purpose == forExpiry {
		w.checkClocks()
	}
	w.flying = append(w.flying, a)
}

func (w *world) wall() int64 { return w.log.Now + w.leaderAhead.Milliseconds() }

// checkClocks fails unless at least half of the clocks that were heard of just now
// are not a minute ahead of the leader's, and half not a minute behind.
func (w *world) checkClocks() {
	n, notAhead, notBehind := 0, 0, 0
	for node := range w.m.image.Nodes() {
		b, ok := w.beats[node.ID]
		if !ok || node.State != meta.NodeUp || node.Incarnation != b.Incarnation || w.now-b.at > 10*time.Second {
			continue
		}
		n++
		ahead := b.WallClock + (w.now - b.at).Milliseconds() - w.wall()
		if ahead <= time.Minute.Milliseconds() {
			notAhead++
		}
		if ahead >= -time.Minute.Milliseconds() {
			notBehind++
		}
	}
	if n == 0 || 2*notAhead < n || 2*notBehind < n {
		w.t.Fatalf("segments go by a clock that %d nodes do not agree with", n)
	}
}

// checkDelete fails if an object goes that a record may still need.
func (w *world) checkDelete(a DeleteDeepStore) {
	for t := range w.log.Image.Tombstones() {
		if t.Expired && reflect.DeepEqual(t.DeepStoreKeys, a.Keys) && a.Store == "file:///deep" {
			return
		}
	}
	w.t.Fatalf("no expired tombstone lets %v go from %s", a.Keys, a.Store)
}

// checkAsk fails if a node is asked for an upload that cannot or need not be, or two
// are at once.
func (w *world) checkAsk(a AskUpload) {
	e := w.m.effects[a.ID]
	s := w.m.image.Segment(e.segment)
	if s == nil || s.Name != a.Segment || !validation.IsAwaiting(w.m.image, s) {
		w.t.Fatalf("%s is asked for %s, which is not to be uploaded", a.Node, a.Segment)
	}
	if l := s.NodeLocation(a.Node); !a.Poll && (l == nil || l.StoreID != w.m.image.Node(a.Node).StoreID || w.m.image.Node(a.Node).State == meta.NodeDown) {
		w.t.Fatalf("%s is asked for %s, and has it not, or is DOWN", a.Node, a.Segment)
	}
	for _, o := range w.flying {
		if ask, ok := o.(AskUpload); ok && w.ours[ask.ID] && ask.Segment == a.Segment && !ask.Poll && !a.Poll {
			w.t.Fatalf("%s is asked for %s, and so is %s", a.Node, a.Segment, ask.Node)
		}
	}
}

func idOf(a Action) uint64 {
	switch a := a.(type) {
	case Survey:
		return a.ID
	case AskUpload:
		return a.ID
	case ListDeepStore:
		return a.ID
	case Write:
		return a.ID
	case ListPartitions:
		return a.ID
	case CheckDeepStore:
		return a.ID
	case DeleteDeepStore:
		return a.ID
	}
	return 0
}

// count compares the machine's books with what is under way.
func (w *world) count() {
	looks, lists, deletes, audits, surveys := 0, 0, 0, 0, 0
	for _, a := range w.flying {
		switch a.(type) {
		case CheckDeepStore:
			if w.ours[idOf(a)] {
				looks++
			}
		case ListPartitions:
			if w.ours[idOf(a)] {
				lists++
			}
		case DeleteDeepStore:
			if w.ours[idOf(a)] {
				deletes++
			}
		case ListDeepStore:
			if w.ours[idOf(a)] {
				audits++
			}
		case Survey:
			if w.ours[idOf(a)] {
				surveys++
			}
		}
	}
	if audits != w.m.audits.running || audits > auditsMax || surveys != w.m.validation.running || surveys > surveysMax {
		w.t.Fatalf("%d listings and %d surveys are under way; the machine says %d and %d", audits, surveys, w.m.audits.running, w.m.validation.running)
	}
	if pool := w.m.validation.manager.Pool(); pool.Running > walkValidation.Limits.Pool || pool.Waiting > walkValidation.Limits.Most+walkValidation.Limits.Pool {
		w.t.Fatalf("%+v", pool)
	}
	if deletes != w.m.retention.deletes || deletes > deletesMax {
		w.t.Fatalf("%d deletions are under way; the machine says %d", deletes, w.m.retention.deletes)
	}
	if looks != w.m.checks.running || looks > checksMax || lists != w.m.tables.lists || lists > listsMax {
		w.t.Fatalf("%d looks and %d lists are under way; the machine says %d and %d", looks, lists, w.m.checks.running, w.m.tables.lists)
	}
	if len(w.m.effects) != len(w.ours) {
		w.t.Fatalf("%d effects are under way, the machine waits for %d", len(w.ours), len(w.m.effects))
	}
}

// ends ends an effect: well, badly, or done without anybody knowing.
func (w *world) ends(i int, how string) {
	a := w.flying[i]
	w.flying = slices.Delete(w.flying, i, i+1)
	ours := w.ours[idOf(a)]
	ev := failure(a)
	_, isWrite := a.(Write)
	_, isDelete := a.(DeleteDeepStore)
	switch {
	case isWrite && !ours: // fenced: it is not in the log
	case how == "well":
		ev = w.result(a)
	case how == "unknown" && (isWrite || isDelete):
		w.result(a)
	}
	delete(w.ours, idOf(a))
	w.happens(ev)
}

// result evaluates a Write, and checks the releases that it grants.
func (w *world) result(a Action) Event {
	write, ok := a.(Write)
	if !ok {
		return w.rig.result(a)
	}
	id, fn := write.ID, write.Func
	write.Func = func(im *meta.Image, now int64) (meta.Change, error) {
		c, err := fn(im, now)
		w.ran[id] = evaluation{im, now, c}
		return c, err
	}
	ev := w.rig.result(write)
	if e := w.m.effects[id]; e.purpose == forLocations && e.verdicts != nil {
		for i, v := range e.verdicts.Release {
			if k := w.releases[id].refs[i].SegmentKey(); v.Accepted && !w.releases[id].expendable(k) {
				w.t.Fatalf("%s: the release of %s is granted on copies that nobody confirmed", write.What, k)
			}
		}
	}
	return ev
}

func confirmation(l meta.Location, k meta.SegmentKey) string {
	return fmt.Sprint(l.Node, l.StoreID, l.URI, k)
}

// reports hands in a report and keeps what it confirms.
func (w *world) reports(r *meta.LocationReport) {
	n := w.m.image.Node(r.Node)
	counts := w.leading && n != nil && n.Incarnation == r.Incarnation && n.StoreID == r.StoreID && r.Sequence > n.LocationsSeq
	if counts {
		for _, ref := range r.Withdraw {
			delete(w.confirmed, confirmation(meta.Location{Node: r.Node, StoreID: r.StoreID}, ref.SegmentKey()))
		}
		for _, refs := range [][]meta.CopyRef{r.Add, r.Confirm} {
			for _, ref := range refs {
				w.confirmed[confirmation(meta.Location{Node: r.Node, StoreID: r.StoreID}, ref.SegmentKey())] = true
			}
		}
	}
	before := w.m.lastEffect
	w.happens(w.located(r))
	said := map[string]bool{}
	for c := range w.confirmed {
		said[c] = true
	}
	for id := before + 1; id <= w.m.lastEffect; id++ {
		w.releases[id] = release{r.Release, func(k meta.SegmentKey) bool {
			im := w.ran[id].image
			s, others := im.Segment(k), 0
			for _, l := range meta.CountedCopies(im, s).Nodes {
				if l.Node != r.Node && said[confirmation(l, k)] {
					others++
				}
			}
			for _, l := range meta.CountedCopies(im, s).DeepStore {
				if w.m.confirmed.has(l, k) {
					others++
				}
			}
			return others >= min(meta.Replication(im, s), 2)
		}}
	}
}

func (w *world) node() string {
	return rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(w.t, "node")
}

// segment picks one of a table's, nil if there is none.
func (w *world) segment() *meta.Segment {
	var all []*meta.Segment
	for t := range w.log.Image.Tables() {
		all = slices.AppendSeq(all, w.log.Image.TableSegments(t.ID))
	}
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(w.t, "segment")
}

func (w *world) randomReport() {
	node := w.node()
	if w.log.Image.Node(node) == nil {
		return
	}
	r := w.report(node)
	r.Sequence += rapid.Int64Range(-2, 2).Draw(w.t, "sequence")
	for _, refs := range []*[]meta.CopyRef{&r.Add, &r.Withdraw, &r.Confirm, &r.Release} {
		if s := w.segment(); s != nil && s.Status == meta.SegmentDone && rapid.Bool().Draw(w.t, "has items") {
			*refs = append(*refs, refOf(s))
		}
	}
	if s := w.segment(); s != nil && s.Status == meta.SegmentDone && rapid.Bool().Draw(w.t, "uploaded") {
		r.Uploaded = []meta.UploadRef{{CopyRef: refOf(s), URI: uri(s)}}
	}
	if rapid.IntRange(0, 9).Draw(w.t, "stale") == 0 {
		r.Incarnation--
	}
	w.reports(r)
}

func (w *world) randomMessage() {
	s := w.segment()
	if s == nil {
		return
	}
	kind := rapid.SampledFrom([]commit.Kind{
		commit.SegmentConsumed, commit.SegmentConsumed, commit.SegmentConsumed, commit.SegmentCommitStart,
		commit.SegmentCommitEnd, commit.SegmentCommitEnd, commit.SegmentStoppedConsuming, commit.ExtendBuildTime,
	}).Draw(w.t, "kind")
	m := w.sayOf(kind, s, w.node(), s.Start+rapid.Int64Range(0, 2).Draw(w.t, "offset"))
	m.Message.Reason = rapid.SampledFrom([]commit.Reason{commit.RowLimit, commit.TimeLimit, commit.ForceCommit}).Draw(w.t, "reason")
	m.Message.ExtraTimeSec = 10
	w.happens(m)
}

// negotiate has the partition's replicas agree on an end, as long as the machine
// goes along.
func (w *world) negotiate() {
	s := w.segment()
	if s == nil || s.Status != meta.SegmentInProgress || len(s.Replicas) == 0 {
		return
	}
	for _, kind := range []commit.Kind{commit.SegmentConsumed, commit.SegmentCommitStart, commit.SegmentCommitEnd} {
		m := w.sayOf(kind, s, s.Replicas[0], s.Start+3)
		m.Message.Reason = commit.RowLimit
		w.happens(m)
	}
}

func (w *world) changeTheWorld() {
	t := w.t
	try := func(fn meta.Func) { _ = w.log.Try(t, fn) }
	switch rapid.IntRange(0, 14).Draw(t, "change") {
	case 0:
		if len(w.tables) < 3 {
			name := fmt.Sprint("t", len(w.tables))
			cfg := walkConfig(name)
			cfg.Replication = rapid.IntRange(1, 3).Draw(t, "replication")
			w.tables = append(w.tables, name)
			try(meta.CreateTable(cfg, metatest.ID("table "+name)))
		}
	case 1:
		if len(w.tables) > 0 {
			w.streams[rapid.SampledFrom(w.tables).Draw(t, "table")] = rapid.IntRange(0, 3).Draw(t, "partitions")
		}
	case 2:
		if len(w.tables) > 0 {
			delete(w.streams, rapid.SampledFrom(w.tables).Draw(t, "table"))
		}
	case 3:
		for table := range w.log.Image.Tables() {
			try(meta.CreateJob(metatest.ID(fmt.Sprint("job", w.log.Now)), JobForceCommit, map[string]string{argTable: table.ID.String()}))
		}
	case 4:
		for table := range w.log.Image.Tables() {
			if rapid.Bool().Draw(t, "pause") {
				try(meta.PauseTable(table.ID, meta.Pause{}))
			} else {
				try(meta.ResumeTable(table.ID, rapid.SampledFrom([]meta.ConsumeFrom{
					meta.FromLastConsumed, meta.FromSmallest, meta.FromLargest,
				}).Draw(t, "from")))
			}
		}
	case 5:
		var incarnation int64
		r := meta.Registration{ID: w.node(), URL: "http://n", BootID: metatest.ID(fmt.Sprint("boot", w.log.Now)), StoreID: metatest.ID("store of x")}
		if old := w.log.Image.Node(r.ID); old != nil && rapid.Bool().Draw(t, "same store") {
			r.StoreID = old.StoreID
		}
		try(meta.RegisterNode(r, &incarnation))
	case 6:
		if rapid.Bool().Draw(t, "upload fails") {
			node := w.node()
			a := w.uploads[node]
			w.uploads[node] = validation.Answer{Failures: a.Failures + rapid.IntRange(-1, 1).Draw(t, "failures"), LastError: "503"}
		} else if s := w.segment(); s != nil && s.Status == meta.SegmentDone {
			w.deep[uri(s)] = !w.deep[uri(s)]
		}
	case 7:
		if s := w.segment(); s != nil {
			try(meta.SetDeepStoreLocation(s.SegmentKey(), s.Digest, uri(s), rapid.Bool().Draw(t, "verified")))
		}
	case 8:
		if s := w.segment(); s != nil {
			try(meta.ClearEndRequested(s.SegmentKey(), false))
		}
	case 9: // retention takes a partition's first segment
		if s := w.segment(); s != nil && s.Status == meta.SegmentDone && s.Start == w.log.Image.Partition(s.Table, s.Partition).FirstRetained {
			try(expire(w.log, s))
		}
	case 10:
		try(meta.RemoveNode(w.node()))
	case 12:
		try(meta.SetNodeState(w.node(), meta.AnyIncarnation, meta.NodeDraining))
	case 13:
		try(meta.UndrainNode(w.node(), rapid.Bool().Draw(t, "alive")))
	case 14: // the first table stays
		if table := w.log.Image.TableByName(rapid.SampledFrom(w.tables).Draw(t, "table")); table != nil && table.Name != "t0" {
			try(meta.DeleteTable(table.ID))
		}
	case 11: // a clock is set
		ahead := rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second, 2 * time.Hour, -2 * time.Hour}).Draw(t, "ahead")
		if rapid.Bool().Draw(t, "leader's") {
			w.leaderAhead = ahead
		} else {
			w.nodesAhead[w.node()] = ahead
		}
	}
}

func (w *world) step() {
	t := w.t
	switch what := rapid.IntRange(0, 15).Draw(t, "what"); what {
	case 0, 1:
		w.happens(w.beat(w.node(), rapid.Int64Range(0, 1).Draw(t, "behind")))
	case 2, 3:
		w.randomReport()
	case 4, 5:
		w.randomMessage()
	case 6:
		w.negotiate()
	case 7:
		w.happens(rapid.SampledFrom([]Event{
			Look{Ticket: w.next()}, LookAtValidation{Ticket: w.next(), Limit: 2},
			RunValidation{Ticket: w.next(), DryRun: true, Limit: 3}, RunValidation{Ticket: w.next(), Limit: 3},
		}).Draw(t, "look"))
	case 8, 9:
		w.changeTheWorld()
	case 10:
		w.happens(w.committed())
	case 11, 12, 13:
		if len(w.flying) > 0 {
			w.ends(rapid.IntRange(0, len(w.flying)-1).Draw(t, "effect"), rapid.SampledFrom([]string{"well", "well", "badly", "unknown"}).Draw(t, "how"))
		}
	case 14:
		w.pass(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
		w.happens(Tick{})
	case 15:
		if w.leading {
			w.leading, w.ours = false, map[uint64]bool{}
			w.happens(Depose{Leader: "http://other"})
			if len(w.open) > 0 {
				t.Fatalf("%d tickets are not answered by the end of the leadership", len(w.open))
			}
			w.log.TakeOver(t)
		} else {
			w.takeOver()
		}
	}
}

// pass lets time pass on every clock.
func (w *world) pass(d time.Duration) {
	w.now += d
	w.log.Now += d.Milliseconds()
}

// heal lets everything go well for a quarter of an hour.
func (w *world) heal() {
	if !w.leading {
		w.takeOver()
	}
	w.leaderAhead = 0
	clear(w.nodesAhead)
	for _, name := range w.tables {
		w.streams[name] = max(w.streams[name], 1)
		_ = w.log.Try(w.t, meta.ResumeTable(metatest.ID("table "+name), meta.FromLastConsumed))
	}
	for t := range w.log.Image.Tables() {
		for s := range w.log.Image.TableSegments(t.ID) {
			if s.Status == meta.SegmentDone {
				w.deep[uri(s)] = true
			}
		}
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if w.log.Image.Node(n) == nil {
			w.log.AddNode(w.t, n, "zone")
		}
		_ = w.log.Try(w.t, meta.UndrainNode(n, true))
	}
	for range 900 {
		w.pass(time.Second)
		if int(w.now/time.Second)%2 == 0 {
			for _, n := range []string{"n1", "n2", "n3"} {
				w.happens(w.beat(n, 0))
			}
		}
		w.happens(Tick{})
		for len(w.flying) > 0 || w.shown < len(w.log.Batches) {
			for len(w.flying) > 0 {
				w.ends(0, "well")
			}
			w.happens(w.committed())
		}
		for t := range w.log.Image.Tables() { // every asked segment answers that it has no rows
			for p := range w.log.Image.Partitions(t.ID) {
				if s := w.log.Image.InProgress(p.PartitionKey()); s != nil && s.EndRequested != nil {
					_ = w.log.Try(w.t, meta.ClearEndRequested(s.SegmentKey(), false))
				}
			}
		}
	}
}

func (w *world) checkHealed() {
	im := w.log.Image
	for n := range im.Nodes() {
		if n.State != meta.NodeUp {
			w.t.Fatalf("node %s is %s", n.ID, n.State)
		}
	}
	for t := range im.Tables() {
		if t.State != meta.TableActive || t.LastError != "" {
			w.t.Fatalf("table %s is %s, %q", t.Name, t.State, t.LastError)
		}
		for p := range im.Partitions(t.ID) {
			if len(p.Replicas) < im.CurrentConfig(t.ID).Replication {
				w.t.Fatalf("partition %d of %s is on %v", p.Partition, t.Name, p.Replicas)
			}
		}
		for s := range im.TableSegments(t.ID) {
			for _, l := range s.Locations {
				if l.URI != "" && !l.Verified {
					w.t.Fatalf("%s has a deep-store copy that nobody looked at", s.Name)
				}
			}
		}
	}
	for j := range im.Jobs() {
		if j.State == meta.JobRunning {
			w.t.Fatalf("%+v", j)
		}
	}
	w.checkRetained()
	if b := &w.m.bulk; len(b.work)+b.due.Len()+b.writing > 0 {
		w.t.Fatalf("bulk changes are left: %+v", b)
	}
	if v := meta.CheckInvariants(im); len(v) > 0 {
		w.t.Fatalf("%v", v)
	}
	if len(w.open)+len(w.m.effects)+len(w.m.jobs)+len(w.m.checks.of)+w.m.checks.waiting.Len() > 0 {
		w.t.Fatalf("left: %d tickets, %d effects, %d jobs, %d checks", len(w.open), len(w.m.effects), len(w.m.jobs), len(w.m.checks.of))
	}
}

// checkRetained fails if something is there for much longer than it should be.
func (w *world) checkRetained() {
	im := w.log.Image
	explained := map[string]bool{}
	for t := range im.Tables() {
		for s := range im.TableSegments(t.ID) {
			explained[uri(s)] = true
			if s.Status == meta.SegmentDone && s.IsOlderThan(walkAge+time.Minute, w.wall()) {
				w.t.Fatalf("%s was committed at %d, it is %d", s.Name, s.Times.Committed, w.wall())
			}
		}
	}
	most := walkRetention.Grace + walkRetention.Keep + time.Minute
	for t := range im.Tombstones() {
		explained["file:///deep/"+t.DeepStoreKeys[0]] = true
		if w.wall()-t.DeletedAt > most.Milliseconds() {
			w.t.Fatalf("%+v is there, it is %d", t, w.wall())
		}
	}
	for uri, there := range w.deep {
		if there && !explained[uri] {
			w.t.Fatalf("nobody deleted %s", uri)
		}
	}
	r := &w.m.retention
	if r.blocked != "" || r.writing || len(r.tombs) != r.toExpire.Len()+r.toDelete.Len()+r.toRemove.Len() {
		w.t.Fatalf("%+v", r)
	}
}

// replay hands the same events to another machine and demands the same actions,
// and of the same functions the same changes.
func (w *world) replay() {
	m, written := walkMachine(), map[uint64]meta.Func{}
	for i, tr := range w.trace {
		if ev, ok := tr.event.(Wrote); ok {
			if was, ok := w.ran[ev.ID]; ok && written[ev.ID] != nil {
				if c, _ := written[ev.ID](was.image, was.now); !reflect.DeepEqual(c, was.change) {
					w.t.Fatalf("effect %d:\n first %+v\n again %+v", ev.ID, was.change, c)
				}
			}
		}
		actions := m.Step(tr.now, tr.event)
		if len(actions) != len(tr.actions) {
			w.t.Fatalf("event %d (%s):\n first %s\n again %s", i, describeEvent(tr.event), describe(tr.actions), describe(actions))
		}
		for j, a := range actions {
			first := tr.actions[j]
			if write, ok := a.(Write); ok {
				written[write.ID] = write.Func
				f, ok := first.(Write)
				a, first = Write{ID: write.ID, What: write.What}, Write{ID: f.ID, What: f.What}
				if !ok {
					w.t.Fatalf("event %d: %s", i, describe(actions))
				}
			}
			if !reflect.DeepEqual(a, first) {
				w.t.Fatalf("event %d (%s):\n first %+v\n again %+v", i, describeEvent(tr.event), first, a)
			}
		}
	}
}

func TestRandomWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			w.step()
		}
		w.heal()
		w.checkHealed()
		w.replay()
	})
}
