package node

import (
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// downloadsFound gives up the downloads that were begun and that nobody wants any
// more: the copy came about in another way, or the segment is not this node's by
// now. A download that only failed is not among them: it is continued.
func (m *Machine) downloadsFound(found []segment.Download) {
	if !m.caughtUp {
		return
	}
	for _, d := range found {
		name, err := segment.ParseName(d.Name)
		if err != nil {
			continue // the store lists no such
		}
		if !m.wantsDownload(meta.SegmentKey{Table: d.Table, Partition: d.Partition, Seq: name.Seq}, d.Short) {
			m.do(DropDownload{Download: d})
		}
	}
}

func (m *Machine) wantsDownload(k meta.SegmentKey, short string) bool {
	s, w := m.image.Segment(k), m.works[k]
	switch {
	case m.claimed[k], w != nil && w.tries[fetch].running:
		return true // somebody may be at it
	case s == nil:
		return false
	case s.Status != meta.SegmentDone:
		return true
	}
	return s.Digest.Short() == short && m.judge(k).fetch
}
