package metalog

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tableLog is a log of frames of these sizes, from start on.
type tableLog struct {
	start int64
	sizes []int64
}

func (l tableLog) Start() int64 { return l.start }
func (l tableLog) end() int64   { return l.start + int64(len(l.sizes)) }

func (l tableLog) bytesFrom(offset int64) (n int64) {
	for _, s := range l.sizes[min(max(offset-l.start, 0), int64(len(l.sizes))):] {
		n += s
	}
	return n
}

func (l tableLog) offsetBefore(n int64) int64 {
	at := l.end()
	for at > l.start && l.bytesFrom(at) < n {
		at--
	}
	return at
}

// trimmed is the log from an offset on.
func (l tableLog) trimmed(to int64) tableLog {
	if to <= l.start {
		return l
	}
	return tableLog{to, l.sizes[to-l.start:]}
}

func framesOfSize(n int, size int64) []int64 { return slices.Repeat([]int64{size}, n) }

func TestPlanClean(t *testing.T) {
	const mib, hour, day = 1 << 20, int64(3600e3), int64(24 * 3600e3)
	const now = 100 * day
	// Frames of 1 MiB, and snapshots of 10 MiB, one every 20 batches, each an hour after
	// the one before; the log goes ten batches further.
	snapshots := func(n int, change func(i int, s *cleanSnapshot)) (out []cleanSnapshot) {
		for i := range n {
			s := cleanSnapshot{id: SnapshotID{int64(20 * (i + 1)), 1}, sizeBytes: 10 * mib, time: now - int64(n-i)*hour}
			if change != nil {
				change(i, &s)
			}
			out = append(out, s)
		}
		return out
	}
	logOf := func(start, end int64) tableLog { return tableLog{start, framesOfSize(int(end-start), mib)} }
	pin := func(at int) func(int, *cleanSnapshot) {
		return func(i int, s *cleanSnapshot) { s.pinned = i == at }
	}
	days := func(ages ...int64) func(int, *cleanSnapshot) {
		return func(i int, s *cleanSnapshot) { s.time = now - ages[i]*day }
	}
	sized := func(mibs ...int64) func(int, *cleanSnapshot) {
		return func(i int, s *cleanSnapshot) { s.sizeBytes = mibs[i] * mib }
	}
	for name, c := range map[string]struct {
		snapshots []cleanSnapshot
		log       tableLog
		applied   int64 // the log's end if 0
		policy    RetentionPolicy
		gone      int
		logStart  int64
	}{
		"nothing":                                  {log: logOf(0, 10)},
		"one":                                      {snapshots: snapshots(1, nil), log: logOf(0, 200)},
		"two, however much there is":               {snapshots: snapshots(2, days(30, 20)), log: logOf(0, 500)},
		"three, and little":                        {snapshots: snapshots(3, nil), log: logOf(0, 70)},
		"three, at the limit":                      {snapshots: snapshots(3, nil), log: logOf(0, 70), policy: RetentionPolicy{BytesMax: 100 * mib}},
		"three, a byte more":                       {snapshots: snapshots(3, nil), log: logOf(0, 70), policy: RetentionPolicy{BytesMax: 100*mib - 1}, gone: 1, logStart: 40},
		"three, more than 100 MiB":                 {snapshots: snapshots(3, nil), log: logOf(0, 71), gone: 1, logStart: 40},
		"six: as many as it takes":                 {snapshots: snapshots(6, nil), log: logOf(0, 130), gone: 3, logStart: 80},
		"six, tiny: the two newest stay":           {snapshots: snapshots(6, nil), log: logOf(0, 130), policy: RetentionPolicy{BytesMax: 1}, gone: 4, logStart: 100},
		"large ones may have three times":          {snapshots: snapshots(3, sized(70, 70, 90)), log: logOf(20, 60)},
		"large ones, and a little more":            {snapshots: snapshots(3, sized(70, 70, 90)), log: logOf(19, 60), gone: 1, logStart: 19},
		"the latest decides":                       {snapshots: snapshots(3, sized(90, 90, 10)), log: logOf(20, 60), gone: 1, logStart: 40},
		"seven days":                               {snapshots: snapshots(3, days(7, 6, 5)), log: logOf(0, 70)},
		"more than seven days":                     {snapshots: snapshots(3, days(8, 6, 5)), log: logOf(0, 70), gone: 1, logStart: 40},
		"all of them old":                          {snapshots: snapshots(5, days(12, 11, 10, 9, 8)), log: logOf(0, 110), gone: 3, logStart: 80},
		"old by the policy":                        {snapshots: snapshots(4, days(4, 3, 2, 1)), log: logOf(0, 90), policy: RetentionPolicy{AgeMax: 48 * time.Hour, BytesMax: 1 << 40}, gone: 2, logStart: 60},
		"only the log before the oldest is left":   {snapshots: snapshots(3, days(8, 6, 5)), log: logOf(40, 70), gone: 1, logStart: 40},
		"the consumer is behind":                   {snapshots: snapshots(6, nil), log: logOf(0, 130), applied: 50, gone: 4, logStart: 50},
		"the consumer is before the log":           {snapshots: snapshots(6, nil), log: logOf(20, 130), applied: 5, gone: 4, logStart: 20},
		"the oldest is being sent":                 {snapshots: snapshots(6, pin(0)), log: logOf(0, 130)},
		"another one is being sent":                {snapshots: snapshots(6, pin(2)), log: logOf(0, 130), gone: 2, logStart: 60},
		"a late one is being sent":                 {snapshots: snapshots(6, pin(5)), log: logOf(0, 130), gone: 3, logStart: 80},
		"the log trails a large snapshot":          {snapshots: snapshots(3, sized(60, 60, 45)), log: logOf(0, 70), gone: 1, logStart: 25},
		"the log trails by the policy":             {snapshots: snapshots(3, nil), log: logOf(0, 71), policy: RetentionPolicy{TrailingMin: 50 * mib}, gone: 1, logStart: 21},
		"the log is shorter than it should trail":  {snapshots: snapshots(6, nil), log: logOf(115, 130), policy: RetentionPolicy{BytesMax: 1, TrailingMin: 50 * mib}, gone: 4, logStart: 115},
		"by default it trails 1 MiB":               {snapshots: snapshots(3, func(_ int, s *cleanSnapshot) { s.sizeBytes = 1; s.time = 0 }), log: logOf(0, 40), gone: 1, logStart: 39},
		"cut short after the log":                  {snapshots: snapshots(4, nil), log: logOf(60, 90), gone: 2, logStart: 60},
		"cut short, and being sent":                {snapshots: snapshots(4, pin(1)), log: logOf(60, 90), gone: 1, logStart: 60},
		"a later epoch that began earlier":         {snapshots: []cleanSnapshot{{id: SnapshotID{20, 1}}, {id: SnapshotID{50, 1}, time: now}, {id: SnapshotID{30, 2}, time: now}}, log: logOf(0, 90), gone: 1, logStart: 30},
		"nothing goes on from the two newest":      {snapshots: snapshots(2, nil), log: logOf(90, 100)},
		"one of the two newest is before the log":  {snapshots: []cleanSnapshot{{id: SnapshotID{20, 1}, time: now}, {id: SnapshotID{50, 1}, time: now}, {id: SnapshotID{80, 1}, time: now}}, log: logOf(80, 90), gone: 1, logStart: 80},
		"a clock that is behind makes nothing old": {snapshots: snapshots(3, days(-1, -2, -3)), log: logOf(0, 70)},
	} {
		t.Run(name, func(t *testing.T) {
			st := cleanState{snapshots: c.snapshots, log: c.log, applied: c.applied, now: now}
			if c.applied == 0 {
				st.applied = c.log.end()
			}
			got := planClean(st, c.policy)
			var want cleanPlan
			for _, s := range c.snapshots[:c.gone] {
				want.gone = append(want.gone, s.id)
			}
			if c.gone > 0 {
				want.oldest, want.logStart = c.snapshots[c.gone].id, c.logStart
			}
			if !slices.Equal(got.gone, want.gone) || got.oldest != want.oldest || got.logStart != want.logStart {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// drawClean is any state and policy, of small numbers so that every limit matters.
func drawClean(t *rapid.T) (cleanState, tableLog, RetentionPolicy) {
	log := tableLog{
		start: rapid.Int64Range(0, 20).Draw(t, "log start"),
		sizes: rapid.SliceOfN(rapid.Int64Range(1, 9), 0, 40).Draw(t, "frames"),
	}
	st := cleanState{
		log: log, now: rapid.Int64Range(0, 100).Draw(t, "now"),
		applied: rapid.Int64Range(0, log.end()).Draw(t, "applied"),
	}
	for range rapid.IntRange(0, 7).Draw(t, "snapshots") {
		st.snapshots = append(st.snapshots, cleanSnapshot{
			id:        SnapshotID{rapid.Int64Range(1, max(1, log.end())).Draw(t, "end"), rapid.Int64Range(1, 2).Draw(t, "epoch")},
			sizeBytes: rapid.Int64Range(0, 40).Draw(t, "bytes"),
			time:      rapid.Int64Range(0, 100).Draw(t, "time"),
			pinned:    rapid.IntRange(0, 4).Draw(t, "pinned") == 0,
		})
	}
	slices.SortFunc(st.snapshots, func(a, b cleanSnapshot) int { return a.id.Compare(b.id) })
	st.snapshots = slices.CompactFunc(st.snapshots, func(a, b cleanSnapshot) bool { return a.id == b.id })
	policy := RetentionPolicy{
		BytesMax:    rapid.Int64Range(1, 300).Draw(t, "bytes max"),
		AgeMax:      time.Duration(rapid.Int64Range(1, 100).Draw(t, "age max")) * time.Millisecond,
		TrailingMin: rapid.Int64Range(1, 100).Draw(t, "trailing min"),
	}
	return st, log, policy
}

func TestPlanCleanKeepsWhatIsNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st, log, policy := drawClean(t)
		plan := planClean(st, policy)
		n := len(plan.gone)
		kept := st.snapshots[n:]
		for i, id := range plan.gone {
			if s := st.snapshots[i]; s.id != id || s.pinned {
				t.Fatalf("%s goes, and number %d is %+v", id, i, s)
			}
		}
		// What is left must have the same reason to stay that the plan saw: another one
		// finds nothing to do, in a log that could be cut anywhere.
		after := st
		if n > 0 {
			wantLogStart(t, plan, kept, st, log, policy)
			after.snapshots, after.log = kept, log.trimmed(plan.logStart)
		}
		if again := planClean(after, policy); len(again.gone) > 0 {
			t.Fatalf("%+v, and then %+v", plan, again)
		}
		if len(kept) > snapshotsKept && !kept[0].pinned && isTooMuch(after, policy) {
			t.Fatalf("%+v leaves too much", plan)
		}
		if n > 0 {
			// The last of those that go: with it there was too much.
			before := st
			before.snapshots = st.snapshots[n-1:]
			if n > 1 {
				before.log = log.trimmed(limit(st.snapshots[n-1:], st, log, policy))
			}
			if !isTooMuch(before, policy) {
				t.Fatalf("%+v takes more than it has to", plan)
			}
		}
	})
}

// isTooMuch is METALOG §2 in so many words.
func isTooMuch(st cleanState, policy RetentionPolicy) bool {
	oldest, latest := st.snapshots[0], st.snapshots[len(st.snapshots)-1]
	total := st.log.bytesFrom(0)
	for _, s := range st.snapshots {
		total += s.sizeBytes
	}
	return total > policy.BytesMax && total > 3*latest.sizeBytes ||
		oldest.time+policy.AgeMax.Milliseconds() < st.now || oldest.id.EndOffset < st.log.Start()
}

// limit is the largest offset that the log may start at with these snapshots.
func limit(kept []cleanSnapshot, st cleanState, log tableLog, policy RetentionPolicy) int64 {
	trailing := max(policy.TrailingMin, kept[len(kept)-1].sizeBytes)
	for to := log.end(); to > log.start; to-- {
		past := func(s cleanSnapshot) bool { return s.id.EndOffset < to }
		if !slices.ContainsFunc(kept, past) && to <= st.applied && log.bytesFrom(to) >= trailing {
			return to
		}
	}
	return log.start
}

func wantLogStart(t *rapid.T, plan cleanPlan, kept []cleanSnapshot, st cleanState, log tableLog, policy RetentionPolicy) {
	if len(kept) < snapshotsKept || plan.oldest != kept[0].id {
		t.Fatalf("%+v leaves %+v", plan, kept)
	}
	if want := limit(kept, st, log, policy); plan.logStart != want {
		t.Fatalf("the log starts at %d, want %d", plan.logStart, want)
	}
	if plan.logStart > log.start && (plan.oldest.EndOffset < plan.logStart || plan.logStart > log.end()) {
		t.Fatalf("no snapshot connects: %+v", plan)
	}
}
