package metalog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/meta"
)

// Recover returns the image at the log's end, from the newest snapshot that verifies
// and connects to the log, and the log's tail (METALOG §2, "On start"). With no
// snapshot it is Replay of the whole log.
//
// A damaged snapshot that the log reaches past is set aside, and the one before it is
// tried. A snapshot past the log's end empties the log: it was published, and the
// process died before it came to that. A *SnapshotMissingError says that the log
// begins later than anything that is left. Any other snapshot that does not fit is a
// *CorruptionError, and nothing is touched: there are two histories here, or what the
// log lacks is in a damaged file, and to go on from either may be to lose the other.
func Recover(log *Log, snaps *Snapshots, logger zerolog.Logger) (*meta.Image, error) {
	r := recovery{log: log, snaps: snaps, logger: logger.With().Str("component", "metalog").Logger()}
	im, err := r.newest()
	if err != nil {
		return nil, err
	}
	if im, err = Replay(log, im); err != nil {
		return nil, err
	}
	return im, snaps.Sweep(0)
}

// RecoverOriginal is Recover of a log that is not a copy of another: it has never been
// begun anew after a snapshot that came from elsewhere. A snapshot past its end was made of
// batches that it has lost, then, and is a *CorruptionError; nothing is touched.
func RecoverOriginal(log *Log, snaps *Snapshots, logger zerolog.Logger) (*meta.Image, error) {
	if latest := snaps.Latest(); latest != nil && latest.EndOffset > log.End() {
		return nil, &CorruptionError{File: log.opts.Dir, Reason: lostTail(log.End(), latest.SnapshotID)}
	}
	return Recover(log, snaps, logger)
}

// lostTail is what is wrong with a log that ends before a snapshot which was made of it.
func lostTail(end int64, id SnapshotID) string {
	return fmt.Sprintf("it ends at offset %d, and snapshot %s was made of it: batches that were committed are gone", end, id)
}

type recovery struct {
	log    *Log
	snaps  *Snapshots
	logger zerolog.Logger
}

// newest returns the image that the log's tail goes on.
func (r *recovery) newest() (*meta.Image, error) {
	start, have := r.log.Start(), int64(0)
	before, _ := r.log.positionAt(start)
	for _, ref := range slices.Backward(r.snaps.List()) {
		if ref.EndOffset < start {
			if ref.Epoch > before.LastEpoch {
				return nil, r.stranger(ref.SnapshotID, fmt.Errorf("it has epoch %d before offset %d; the log has epoch %d before offset %d",
					ref.Epoch, ref.EndOffset, before.LastEpoch, start))
			}
			have = max(have, ref.EndOffset)
			continue
		}
		im, err := r.try(ref.SnapshotID)
		if err != nil {
			return nil, err
		}
		if im != nil {
			return im, nil
		}
	}
	if start > 0 {
		return nil, &SnapshotMissingError{Have: have, Start: start}
	}
	return meta.Empty(), nil
}

// try returns the image of one snapshot, or none if it was damaged and is set aside.
func (r *recovery) try(id SnapshotID) (*meta.Image, error) {
	im, err := r.snaps.Load(id)
	var damage *CorruptionError
	if errors.As(err, &damage) {
		if end := r.log.End(); id.EndOffset > end {
			return nil, fmt.Errorf("metalog: snapshot %s is past the end %d of the log, so nothing here can stand for it: %w", id, end, err)
		}
		r.logger.Error().Err(err).Str("snapshot", id.String()).Msg("a damaged snapshot is set aside; trying the one before it")
		return nil, r.snaps.SetAside(id)
	}
	if err != nil {
		return nil, err
	}
	h := headerOf(im)
	if at, ok := r.log.positionAt(h.Offset); ok && at == h.Position {
		return im, nil
	}
	if err := r.past(h); err != nil {
		return nil, r.stranger(id, err)
	}
	r.logger.Warn().Str("snapshot", id.String()).Int64("offset", r.log.End()).Msg("a snapshot is past the end of the log; emptying the log")
	if err := r.snaps.settle(id); err != nil {
		return nil, err
	}
	return im, r.log.Reset(h.Position)
}

// stranger refuses a snapshot that is not of the log's history.
func (r *recovery) stranger(id SnapshotID, err error) error {
	return strangeSnapshot(snapshotFile(r.snaps.dir, id), err)
}

// past checks that a snapshot is later than all of the log, so that the log can go.
func (r *recovery) past(h SnapshotHeader) error {
	end := r.log.Position()
	switch {
	case h.LastEpoch < end.LastEpoch, h.Offset < end.Offset, h.LastEpoch == end.LastEpoch && h.LastTerm != end.LastTerm:
		own, _ := r.log.positionAt(min(h.Offset, end.Offset))
		return fmt.Errorf("it ends at offset %d with epoch %d, term %s; the log has epoch %d, term %s before offset %d",
			h.Offset, h.LastEpoch, h.LastTerm, own.LastEpoch, own.LastTerm, own.Offset)
	}
	cluster, err := r.cluster()
	if err != nil {
		return err
	}
	if cluster != uuid.Nil && cluster != h.Cluster {
		return fmt.Errorf("it is of cluster %s, the log of %s", h.Cluster, cluster)
	}
	return nil
}

// cluster is the one that the log's first batch names; zero if that is gone.
func (r *recovery) cluster() (uuid.UUID, error) {
	if r.log.Start() > 0 || r.log.End() == 0 {
		return uuid.Nil, nil
	}
	first, err := r.log.entryAt(0)
	if err != nil {
		return uuid.Nil, err
	}
	return ClusterIn(first.Batch), nil
}

// positionAt is where the log stands at an offset in it, its end included.
func (l *Log) positionAt(offset int64) (Position, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset < l.files[0].start.Offset || offset > l.end.Offset {
		return Position{}, false
	}
	for _, e := range l.epochs {
		if e.End >= offset && offset > 0 {
			return Position{Offset: offset, LastEpoch: e.Epoch, LastTerm: e.Term}, true
		}
	}
	return Position{}, true
}
