package controller

import (
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

// What the API shows of the image. All of it is pure: a view is a record and
// what follows from the image about it.

func millis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func tableView(im *meta.Image, t *meta.Table) api.TableView {
	v := api.TableView{
		Name: t.Name, ID: t.ID, State: t.State, Pause: t.Pause, ConfigVersion: t.ConfigVersion,
		CreatedAt: millis(t.CreatedAt), LastError: t.LastError, PartitionStates: map[meta.PartitionState]int{},
	}
	if cfg := im.CurrentConfig(t.ID); cfg != nil {
		v.Config = *cfg
	}
	for p := range im.Partitions(t.ID) {
		v.Partitions++
		v.PartitionStates[p.State]++
	}
	for s := range im.TableSegments(t.ID) {
		if s.EndRequested != nil {
			v.Ending++
		}
		if s.Status != meta.SegmentDone {
			continue
		}
		v.Segments++
		v.Rows += s.Rows
		v.SizeBytes += s.SizeBytes
		if meta.IsSingleCopy(im, s) {
			v.SingleCopy++
		}
		if meta.IsUnderReplicated(im, s) {
			v.UnderReplicated++
		}
		if meta.IsNotInDeepStore(im, s) {
			v.NotInDeepStore++
		}
	}
	return v
}

func partitionView(im *meta.Image, t *meta.Table, p *meta.Partition) api.PartitionView {
	v := api.PartitionView{
		Partition: p.Partition, State: p.State, Replicas: p.Replicas, FirstRetained: p.FirstRetained,
		NextOffset: p.NextOffset, NextSeq: p.NextSeq, StreamEpoch: p.StreamEpoch, Holes: p.Holes,
	}
	if s := im.InProgress(p.PartitionKey()); s != nil {
		sv := segmentView(im, t, s)
		v.Consuming = &sv
	}
	return v
}

func segmentView(im *meta.Image, t *meta.Table, s *meta.Segment) api.SegmentView {
	counted := meta.CountedCopies(im, s)
	v := api.SegmentView{
		Segment: *s, TableName: t.Name, Sources: []api.SourceView{},
		CountedCopies: len(counted.Nodes), InDeepStore: len(counted.DeepStore) > 0,
		SingleCopy: meta.IsSingleCopy(im, s), UnderReplicated: meta.IsUnderReplicated(im, s),
	}
	if s.Status == meta.SegmentDone {
		for _, src := range meta.Sources(im, s, policy(im, s), "") {
			v.Sources = append(v.Sources, sourceView(t, s, src))
		}
	}
	return v
}

func policy(im *meta.Image, s *meta.Segment) meta.DownloadPolicy {
	if cfg := im.CurrentConfig(s.Table); cfg != nil {
		return cfg.Download
	}
	return meta.DeepStoreFirst
}

func sourceView(t *meta.Table, s *meta.Segment, src meta.Source) api.SourceView {
	if src.URI != "" {
		return api.SourceView{URL: src.URI}
	}
	return api.SourceView{Node: src.Node, Zone: src.Zone, URL: src.URL + api.SegmentPath(t.Name, s.Name)}
}

// nodeView shows a node; partitions are those that name each node.
func nodeView(im *meta.Image, n *meta.Node, seen NodeSeen, partitions map[string]int) api.NodeView {
	v := api.NodeView{Node: *n, AppliedOffset: seen.AppliedOffset, Busy: seen.Busy, Partitions: partitions[n.ID]}
	for range im.SegmentsConsuming(n.ID) {
		v.Consuming++
	}
	if seen.Heard {
		v.LastHeartbeat = time.UnixMilli(seen.HeardAt).UTC()
	}
	for s := range im.SegmentsListed(n.ID) {
		if l := s.NodeLocation(n.ID); l.StoreID == n.StoreID {
			v.Segments++
			v.SizeBytes += s.SizeBytes
		}
	}
	return v
}
