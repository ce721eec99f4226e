package validation

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// Request is what a Survey is told beside the image.
type Request struct {
	// Most bounds each list of the findings; the totals count everything.
	Most int
	// Silent are nodes of which nothing was heard for longer than a node may be
	// silent. The image shows one that is DRAINING as DRAINING still.
	Silent []string
}

// Findings are what is wrong in one image.
type Findings struct {
	// Image is the offset that the image was at.
	Image int64
	// Tables are the totals, by name.
	Tables []Table
	// SingleCopy and Awaiting are the riskiest of those segments, riskiest first.
	// Each table that has some has a share in Awaiting, however many others have.
	SingleCopy []*meta.Segment
	Awaiting   []*meta.Segment
	// Idle are partitions that should consume and do not, Stopped those of which
	// every replica has stopped, by table and number.
	Idle    []Partition
	Stopped []Partition
	// IdleTotal and StoppedTotal count those that the lists have no room for, too.
	IdleTotal, StoppedTotal int
}

// Table is what is wrong with the segments of one table.
type Table struct {
	Name string
	ID   uuid.UUID
	// SingleCopy are the segments at risk (DESIGN §1).
	SingleCopy Total
	// Awaiting are those that should be in the deep store and are not, as far as
	// the leader has seen.
	Awaiting Total
}

// Total sums up segments. Oldest is when the first of them was committed, in
// milliseconds, 0 without any.
type Total struct {
	Segments, Bytes, Oldest int64
}

func (t *Total) add(s *meta.Segment) {
	t.Segments++
	t.Bytes += s.SizeBytes
	if t.Oldest == 0 || s.Times.Committed < t.Oldest {
		t.Oldest = s.Times.Committed
	}
}

// Partition is one that does not consume, and why.
type Partition struct {
	Table     uuid.UUID
	Partition int32
	Segment   string // that is IN_PROGRESS, "" without one
	Why       string
}

// Survey looks at the whole image. Where tables have a deep store it costs what is
// not in it, and the number of partitions; of the others it looks at every segment.
// It is for a goroutine of its own: it changes nothing, and an image never changes.
func Survey(im *meta.Image, req Request) *Findings {
	f := &Findings{Image: im.Next()}
	p := survey{im: im, req: req, findings: f, single: riskiest{most: req.Most}}
	share := max(1, req.Most/max(1, p.tablesAwaiting()))
	for t := range im.Tables() {
		p.table(t, share)
	}
	f.SingleCopy = p.single.sorted()
	slices.SortFunc(p.awaiting, compareRanked)
	f.Awaiting = segmentsOf(p.awaiting[:min(len(p.awaiting), req.Most)])
	slices.SortFunc(f.Tables, func(a, b Table) int { return cmp.Compare(a.Name, b.Name) })
	return f
}

type survey struct {
	im       *meta.Image
	req      Request
	findings *Findings
	single   riskiest
	awaiting []ranked // of all tables, each bounded by its share
}

// tablesAwaiting counts the tables that have something to be uploaded.
func (p *survey) tablesAwaiting() (n int) {
	for t := range p.im.Tables() {
		if !hasDeepStore(p.im, t) {
			continue
		}
		for range p.im.TableSegmentsAwaitingDeepStore(t.ID) {
			n++
			break
		}
	}
	return n
}

func (p *survey) table(t *meta.Table, share int) {
	if t.State == meta.TableDeleting {
		return // all of it goes
	}
	found := Table{Name: t.Name, ID: t.ID}
	deep := hasDeepStore(p.im, t)
	waiting := riskiest{most: share}
	for s := range p.im.TableSegmentsAwaitingDeepStore(t.ID) {
		risk := meta.RiskOf(p.im, s)
		if risk.Single {
			found.SingleCopy.add(s)
			p.single.add(ranked{risk, s})
		}
		if deep {
			found.Awaiting.add(s)
			waiting.add(ranked{risk, s})
		}
	}
	waiting.cut()
	p.awaiting = append(p.awaiting, waiting.items...)
	if found.SingleCopy.Segments+found.Awaiting.Segments > 0 {
		p.findings.Tables = append(p.findings.Tables, found)
	}
	for part := range p.im.Partitions(t.ID) {
		p.partition(part)
	}
}

func hasDeepStore(im *meta.Image, t *meta.Table) bool {
	cfg := im.CurrentConfig(t.ID)
	return t.State != meta.TableDeleting && cfg != nil && cfg.DeepStore != nil
}

// IsAwaiting reports whether a segment is still to be put into its table's deep store:
// those of a table that is being deleted are not.
func IsAwaiting(im *meta.Image, s *meta.Segment) bool {
	t := im.Table(s.Table)
	return t != nil && t.State != meta.TableDeleting && meta.IsNotInDeepStore(im, s)
}

func (p *survey) partition(part *meta.Partition) {
	s := p.im.InProgress(part.PartitionKey())
	found := Partition{Table: part.Table, Partition: part.Partition}
	if s != nil {
		found.Segment = s.Name
	}
	f := p.findings
	switch {
	case part.State == meta.PartitionError:
		found.Why = "every replica has stopped"
		if s != nil && s.LastError != nil {
			found.Why += ": " + s.LastError.Node + ": " + s.LastError.Error
		}
		if f.StoppedTotal++; len(f.Stopped) < p.req.Most {
			f.Stopped = append(f.Stopped, found)
		}
	case part.State == meta.PartitionConsuming:
		if found.Why = p.idle(s); found.Why == "" {
			return
		}
		if f.IdleTotal++; len(f.Idle) < p.req.Most {
			f.Idle = append(f.Idle, found)
		}
	}
}

// idle says why nobody consumes a segment, "" if somebody does. A node that is
// DRAINING does until the segment ends.
func (p *survey) idle(s *meta.Segment) string {
	switch {
	case s == nil: // no batch makes that so
		return "it has no segment that is IN_PROGRESS"
	case len(s.Replicas) == 0:
		return "its segment has no replica"
	}
	for _, id := range s.Replicas {
		n := p.im.Node(id)
		if n != nil && n.State != meta.NodeDown && !slices.Contains(p.req.Silent, id) {
			return ""
		}
	}
	return "no replica of its segment is UP"
}

// Holders are the nodes that have the segment to upload, in the order in which they
// are asked: the committer, the others whose copy counts, and then those that are
// DRAINING.
func Holders(im *meta.Image, s *meta.Segment) []*meta.Node {
	type holder struct {
		node *meta.Node
		rank int
	}
	var all []holder
	for _, l := range s.Locations {
		n := im.Node(l.Node)
		if l.URI != "" || n == nil || n.StoreID != l.StoreID || n.State == meta.NodeDown {
			continue
		}
		h := holder{n, 1}
		switch {
		case n.State != meta.NodeUp:
			h.rank = 2
		case n.ID == s.Committer:
			h.rank = 0
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b holder) int { return cmp.Compare(a.rank, b.rank) })
	nodes := make([]*meta.Node, len(all))
	for i, h := range all {
		nodes[i] = h.node
	}
	return nodes
}

// ranked is a segment with its risk.
type ranked struct {
	risk    meta.Risk
	segment *meta.Segment
}

func compareRanked(a, b ranked) int {
	return cmp.Or(a.risk.Compare(b.risk), a.segment.SegmentKey().Compare(b.segment.SegmentKey()))
}

// riskiest keeps the riskiest of what it is given, in bounded room.
type riskiest struct {
	most  int
	items []ranked
}

func (r *riskiest) add(x ranked) {
	if r.items = append(r.items, x); len(r.items) >= 2*r.most+64 {
		r.cut()
	}
}

// cut sorts, and drops what is too much.
func (r *riskiest) cut() {
	slices.SortFunc(r.items, compareRanked)
	r.items = r.items[:min(len(r.items), max(r.most, 0))]
}

func (r *riskiest) sorted() []*meta.Segment {
	r.cut()
	return segmentsOf(r.items)
}

func segmentsOf(items []ranked) []*meta.Segment {
	out := make([]*meta.Segment, len(items))
	for i, x := range items {
		out[i] = x.segment
	}
	return out
}
