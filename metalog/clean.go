package metalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Clean lets go of the oldest snapshots and of the log before those that stay, as far as
// the policy wants it and nobody needs them (METALOG §2, "Cleaning"), and unlinks what
// went a minute ago. applied is the offset of the next batch that the local consumer
// applies, now is in milliseconds since the Unix epoch. It returns what went, the oldest
// first. One Clean runs at a time, after Recover.
//
// The snapshot that becomes the oldest is read through first: what the log lacks then is
// in it, and in newer ones that nobody has read. A damaged one is set aside, and nothing
// goes. Each step is durable before the next, and after each of them Recover finds a good
// snapshot that the log goes on from.
func Clean(ctx context.Context, log *Log, snaps *Snapshots, policy RetentionPolicy, applied, now int64) ([]SnapshotID, error) {
	if err := snaps.Sweep(now); err != nil {
		return nil, err
	}
	if len(snaps.List()) <= snapshotsKept {
		return nil, nil
	}
	c := cleaner{log: log, snaps: snaps, now: now}
	st, ok, err := c.state(applied)
	if !ok {
		return nil, err
	}
	plan := planClean(st, policy)
	if len(plan.gone) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err // before what may take seconds
	}
	if ok, err := c.verify(plan.oldest); !ok {
		return nil, err
	}
	return c.carryOut(plan)
}

// cleaner carries a plan out.
type cleaner struct {
	log   *Log
	snaps *Snapshots
	now   int64
}

// state is what there is; none if a snapshot turned out to be damaged.
func (c cleaner) state(applied int64) (st cleanState, ok bool, err error) {
	st = cleanState{log: c.log, applied: applied, now: c.now}
	pinned := c.snaps.Pinned(c.now)
	for _, r := range c.snaps.List() {
		h, err := c.snaps.Header(r.SnapshotID)
		if errors.Is(err, ErrSnapshotNotFound) {
			continue // nothing rests on it any more
		}
		if err != nil {
			return cleanState{}, false, c.damaged(r.SnapshotID, err)
		}
		st.snapshots = append(st.snapshots, cleanSnapshot{
			id: r.SnapshotID, sizeBytes: r.SizeBytes, time: h.Time, pinned: slices.Contains(pinned, r.SnapshotID),
		})
	}
	return st, true, nil
}

// verify reports whether a snapshot is good, and of the history that the log tells.
func (c cleaner) verify(id SnapshotID) (ok bool, err error) {
	im, err := c.snaps.Load(id)
	if err != nil {
		return false, c.damaged(id, err)
	}
	h := headerOf(im)
	if own, ok := c.log.positionAt(h.Offset); ok && own != h.Position {
		return false, fmt.Errorf("metalog: clean: %w", &CorruptionError{
			File: snapshotFile(c.snaps.dir, id),
			Reason: fmt.Sprintf("it ends with epoch %d, term %s at offset %d; the log has epoch %d, term %s there",
				h.LastEpoch, h.LastTerm, h.Offset, own.LastEpoch, own.LastTerm),
		})
	}
	return true, nil
}

// damaged sets a snapshot aside if err says that it is damaged. Other errors are none of
// the snapshot's.
func (c cleaner) damaged(id SnapshotID, err error) error {
	var damage *CorruptionError
	if !errors.As(err, &damage) {
		return fmt.Errorf("metalog: clean: %w", err)
	}
	c.snaps.log.Error().Err(err).Str("snapshot", id.String()).
		Msg("a damaged snapshot is set aside; what is older stays until another one has been read through")
	return c.snaps.SetAside(id)
}

func (c cleaner) carryOut(plan cleanPlan) (gone []SnapshotID, err error) {
	refs, err := c.snaps.withdraw(c.now, plan.gone...)
	if errors.Is(err, ErrSnapshotPinned) {
		return nil, nil // since the plan was made; there is a next time
	}
	if err != nil {
		return nil, err
	}
	if err := c.log.Trim(plan.logStart); err != nil {
		c.snaps.putBack(refs)
		return nil, err
	}
	for i, r := range refs {
		if err := c.snaps.discard(r.SnapshotID, c.now); err != nil {
			c.snaps.putBack(refs[i+1:])
			return gone, err
		}
		gone = append(gone, r.SnapshotID)
	}
	c.snaps.log.Info().Int("snapshots", len(gone)).Str("oldest", plan.oldest.String()).Int64("offset", c.log.Start()).
		Msg("old snapshots let go")
	return gone, nil
}
