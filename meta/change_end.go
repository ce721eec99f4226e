package meta

import (
	"slices"

	"github.com/google/uuid"
)

// The reasons for which a segment is asked to end.
const (
	EndForceCommit = "forceCommit"
	EndPause       = "pause"
	EndDrain       = "drain"
	EndDelete      = "delete"
)

// RequestEnd asks the replicas of the table's IN_PROGRESS segments, of all
// partitions or of those given, to end them where they are. A segment that has
// been asked already keeps its first reason and job.
func RequestEnd(id uuid.UUID, partitions []int32, reason string, job uuid.UUID) Func {
	reason = plain(reason)
	return func(im *Image, now int64) (Change, error) {
		if im.Table(id) == nil {
			return refuse(CodeUnknownTable, "no table %s", id)
		}
		asked := slices.Clone(partitions)
		if partitions == nil {
			for p := range im.Partitions(id) {
				asked = append(asked, p.Partition)
			}
		}
		var c Change
		for _, p := range slices.Compact(slices.Sorted(slices.Values(asked))) {
			k := PartitionKey{id, p}
			if im.Partition(id, p) == nil {
				return refuse(CodeUnknownPartition, "no partition %s", k)
			}
			s := im.InProgress(k)
			if s == nil || s.EndRequested != nil {
				continue
			}
			s = s.Clone()
			s.EndRequested = &EndRequested{Reason: reason, Job: job}
			s.LeaderEpoch = im.leaderEpoch()
			s.Times.EndRequested = now
			c.Upserts = append(c.Upserts, s)
		}
		return c, nil
	}
}

// ClearEndRequested answers that every replica of the segment that is not
// stopped has reported 0 rows, so that there is nothing to commit (PROTOCOL §2).
// The segment is removed if nothing more is to come: at the end of the
// partition, or of a table that is paused or being deleted. Otherwise it goes
// on, without the request and with the partition's current replicas, as its
// successor would have. nextOffset stays.
func ClearEndRequested(k SegmentKey, endOfPartition bool) Func {
	return func(im *Image, now int64) (Change, error) {
		s := im.Segment(k)
		t, p := im.Table(k.Table), im.Partition(k.Table, k.Partition)
		if s == nil || s.Status != SegmentInProgress || t == nil || p == nil {
			return Change{}, nil // answered before, or committed after all
		}
		if s.EndRequested == nil && !endOfPartition {
			return Change{}, nil
		}
		if next := (&Commit{EndOfPartition: endOfPartition}).next(t); next != PartitionConsuming {
			p = p.Clone()
			p.State = next
			return Change{Upserts: []Record{p}, Removals: []Key{s.Key()}}, nil
		}
		s = s.Clone()
		s.EndRequested = nil
		s.Replicas = p.Replicas
		s.LeaderEpoch = im.leaderEpoch()
		s.Times.EndRequested = 0
		return upserts(s)
	}
}
