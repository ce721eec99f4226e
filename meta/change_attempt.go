package meta

// RecordError keeps the last error of a segment that a replica stopped
// consuming; allStopped says that no replica is left, and makes the partition
// ERROR until the attempt is raised.
func RecordError(k SegmentKey, node, text string, allStopped bool) Func {
	node, text = plain(node), plain(text)
	return func(im *Image, now int64) (Change, error) {
		s := im.Segment(k)
		switch {
		case s == nil:
			return refuse(CodeUnknownSegment, "no segment %s", k)
		case s.Status != SegmentInProgress:
			return Change{}, nil // it was committed meanwhile: the error is past
		}
		s = s.Clone()
		s.LastError = &LastError{Node: node, At: now, Error: text}
		s.LeaderEpoch = im.leaderEpoch()
		c := Change{Upserts: []Record{s}}
		if p := im.Partition(k.Table, k.Partition); allStopped && p != nil && p.State == PartitionConsuming {
			p = p.Clone()
			p.State = PartitionError
			c.Upserts = append(c.Upserts, p)
		}
		return c, nil
	}
}

// RaiseAttempt lets the replicas that stopped at the attempt start afresh. If
// the segment is past it already, it changes nothing.
func RaiseAttempt(k SegmentKey, attempt int) Func {
	return func(im *Image, now int64) (Change, error) {
		s := im.Segment(k)
		switch {
		case s == nil:
			return refuse(CodeUnknownSegment, "no segment %s", k)
		case s.Status != SegmentInProgress || s.Attempt != attempt:
			return Change{}, nil
		}
		s = s.Clone()
		s.Attempt++
		s.LeaderEpoch = im.leaderEpoch()
		c := Change{Upserts: []Record{s}}
		if p := im.Partition(k.Table, k.Partition); p != nil && p.State == PartitionError {
			p = p.Clone()
			p.State = PartitionConsuming
			c.Upserts = append(c.Upserts, p)
		}
		return c, nil
	}
}
