package metalog

import (
	"cmp"
	"time"
)

// GenerationPolicy says when the leader asks for a snapshot (METALOG §1). Zero values
// of the fields mean their defaults.
type GenerationPolicy struct {
	// BytesMin is how many bytes of batches after the last snapshot are enough, if that
	// is not larger; 20 MiB.
	BytesMin int64
	// AgeMax is how old the last snapshot may become while there are batches after it; 1 h.
	AgeMax time.Duration
}

func (p GenerationPolicy) orDefault() GenerationPolicy {
	return GenerationPolicy{BytesMin: cmp.Or(p.BytesMin, 20<<20), AgeMax: cmp.Or(p.AgeMax, time.Hour)}
}

// Growth is what has come since the last snapshot. All of it is durable, so that a
// restart does not postpone the next one.
type Growth struct {
	Bytes    int64 // of batches after it
	Batches  int64 // their number
	Snapshot int64 // the size of the last snapshot, 0 without
	// Since is the time of the last snapshot's last batch, or of the log's first batch
	// if there is no snapshot, in milliseconds since the Unix epoch.
	Since int64
	// Bare says that no snapshot is left, and that the log does not begin at 0: a restart
	// would be refused.
	Bare bool
	// Damaged says that one of the batches was found damaged: a follower that has not read
	// it cannot go on, and a restart would be refused. The leader's image has it, as
	// it was applied before.
	Damaged bool
}

// IsDue reports whether it is time for the next snapshot; now is in milliseconds since
// the Unix epoch.
func (p GenerationPolicy) IsDue(g Growth, now int64) bool {
	p = p.orDefault()
	switch {
	case g.Bare, g.Damaged:
		return true
	case g.Batches == 0:
		return false
	case g.Bytes >= max(p.BytesMin, g.Snapshot):
		return true
	}
	return now-g.Since >= p.AgeMax.Milliseconds()
}
