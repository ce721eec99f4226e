package metalog

import (
	"cmp"
	"time"
)

// RetentionPolicy says when old snapshots and the log before them may go (METALOG §2).
// Zero values of the fields mean their defaults.
type RetentionPolicy struct {
	// BytesMax is how many bytes log and snapshots may have together, if three times the
	// latest snapshot is not more; 100 MiB.
	BytesMax int64
	// AgeMax is how old the last batch in the oldest snapshot may become; 7 days.
	AgeMax time.Duration
	// TrailingMin is how many bytes of batches stay in the log, if the size of the latest
	// snapshot is not more; 1 MiB. A slow follower goes on there after its download.
	TrailingMin int64
}

func (p RetentionPolicy) orDefault() RetentionPolicy {
	return RetentionPolicy{
		BytesMax:    cmp.Or(p.BytesMax, 100<<20),
		AgeMax:      cmp.Or(p.AgeMax, 7*24*time.Hour),
		TrailingMin: cmp.Or(p.TrailingMin, 1<<20),
	}
}

// cleanState is what cleaning is decided on. Times are in milliseconds since the Unix
// epoch.
type cleanState struct {
	snapshots []cleanSnapshot // oldest first
	log       logSizes
	applied   int64 // offset of the next batch that the local consumer applies
	now       int64
}

type cleanSnapshot struct {
	id        SnapshotID
	sizeBytes int64
	time      int64 // of its last batch
	pinned    bool
}

// logSizes is what cleaning has to know of a Log.
type logSizes interface {
	Start() int64
	// bytesFrom is how many bytes of frames there are from an offset on.
	bytesFrom(offset int64) int64
	// offsetBefore is the largest offset with at least n bytes after it, else Start.
	offsetBefore(n int64) int64
}

// cleanPlan is what goes.
type cleanPlan struct {
	gone     []SnapshotID // the oldest first; with none of them the rest says nothing
	oldest   SnapshotID   // becomes the oldest, so it must be good
	logStart int64        // batches before it may go
}

// planClean decides what goes: the oldest snapshots, as long as there is too much, and
// the log before those that stay.
//
// What holds the log back does not hold snapshots: where much is kept and little is
// written there is a snapshot of the whole an hour, and the log that has to trail them
// comes together in days.
func planClean(st cleanState, p RetentionPolicy) (plan cleanPlan) {
	c := cleaning{cleanState: st, policy: p.orDefault()}
	n := 0
	for len(st.snapshots)-n > snapshotsKept && !st.snapshots[n].pinned && c.tooMuch(n) {
		plan.gone = append(plan.gone, st.snapshots[n].id)
		n++
	}
	if n > 0 {
		plan.oldest, plan.logStart = st.snapshots[n].id, c.logStart(n)
	}
	return plan
}

// cleaning decides with the first n snapshots gone.
type cleaning struct {
	cleanState
	policy RetentionPolicy
}

// tooMuch reports whether the oldest snapshot that is left has to go.
func (c cleaning) tooMuch(n int) bool {
	oldest := c.snapshots[n]
	if oldest.id.EndOffset < c.log.Start() {
		return true // no log goes on from it: its cleaning was cut short
	}
	if c.now-oldest.time > c.policy.AgeMax.Milliseconds() {
		return true
	}
	bytes := c.log.bytesFrom(c.logStart(n))
	for _, s := range c.snapshots[n:] {
		bytes += s.sizeBytes
	}
	return bytes > max(c.policy.BytesMax, 3*c.latestBytes())
}

// logStart is where the log begins: at the end of the oldest snapshot that is left, or
// before that.
func (c cleaning) logStart(n int) int64 {
	if n == 0 {
		return c.log.Start()
	}
	to := min(c.applied, c.log.offsetBefore(max(c.policy.TrailingMin, c.latestBytes())))
	// All of them, because a later epoch may have begun at an earlier offset.
	for _, s := range c.snapshots[n:] {
		to = min(to, s.id.EndOffset)
	}
	return max(to, c.log.Start())
}

func (c cleaning) latestBytes() int64 { return c.snapshots[len(c.snapshots)-1].sizeBytes }
