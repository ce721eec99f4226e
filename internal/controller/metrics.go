package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
)

// What the controller shows is read from the image when it is scraped; what it
// counts beside that is the log's (package metalog).
var (
	leadingDesc    = prometheus.NewDesc("shoal_controller_leading", "1 while this controller leads.", nil, nil)
	nodesDesc      = prometheus.NewDesc("shoal_nodes", "Nodes by state.", []string{"state"}, nil)
	partitionsDesc = prometheus.NewDesc("shoal_partitions", "Partitions by table and state.", []string{"table", "state"}, nil)
	segmentsDesc   = prometheus.NewDesc("shoal_segments", "Segments by table and status.", []string{"table", "status"}, nil)
	singleDesc     = prometheus.NewDesc("shoal_single_copy_segments", "Committed segments at risk: not in the deep store and short of copies.", []string{"table"}, nil)
	singleBytes    = prometheus.NewDesc("shoal_single_copy_bytes", "Bytes of the segments at risk.", []string{"table"}, nil)
	singleOldest   = prometheus.NewDesc("shoal_single_copy_oldest_timestamp_seconds", "When the oldest segment at risk was committed, 0 for none.", []string{"table"}, nil)
	awaitingDesc   = prometheus.NewDesc("shoal_segments_awaiting_deep_store", "Committed segments that should be in the deep store and are not.", []string{"table"}, nil)
	appliedDesc    = prometheus.NewDesc("shoal_follower_applied_offset", "Next offset of a node's image of the metadata, as it last said.", []string{"node"}, nil)
	tombstonesDesc = prometheus.NewDesc("shoal_tombstones", "Tombstones of deleted segments: waiting, or expired, so that nodes and leader delete their copies.", []string{"state"}, nil)
)

// registerMetrics registers what the controller shows.
func registerMetrics(reg *prometheus.Registry, c *Controller) {
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), stateCollector{c},
		snapshots.Collector(c.keeper.Load))
}

// retentionMetrics count what retention does.
type retentionMetrics struct {
	expired *prometheus.CounterVec
	blocked prometheus.Gauge
}

func newRetentionMetrics(reg *prometheus.Registry) retentionMetrics {
	m := retentionMetrics{
		expired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_segments_expired_total", Help: "Segments that retention took, since this process began.",
		}, []string{"table"}),
		blocked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_retention_blocked", Help: "1 while retention takes nothing because the leader's clock and the nodes' do not agree, or no node is heard of.",
		}),
	}
	reg.MustRegister(m.expired, m.blocked)
	return m
}

// lookTimeout is how long a scrape waits for the leader's memory.
const lookTimeout = time.Second

// stateCollector reads the image when it is scraped. It costs a pass over the
// segments.
type stateCollector struct{ c *Controller }

func (s stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leadingDesc, nodesDesc, partitionsDesc, segmentsDesc, singleDesc, singleBytes, singleOldest, awaitingDesc, appliedDesc, tombstonesDesc} {
		ch <- d
	}
	describeValidation(ch)
}

func (s stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	im, err := s.c.image()
	if err != nil {
		gauge(leadingDesc, 0)
		return
	}
	gauge(leadingDesc, 1)
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	if seen, err := s.c.shell.look(ctx); err == nil {
		for node, n := range seen {
			if n.Heard {
				gauge(appliedDesc, float64(n.AppliedOffset), node)
			}
		}
	}
	if seen, err := s.c.shell.validation(ctx, func(t Ticket) Event { return LookAtValidation{Ticket: t} }); err == nil && seen.Refuse == "" {
		seen.collect(ch)
	}
	nodes := map[meta.NodeState]int{meta.NodeUp: 0, meta.NodeDown: 0, meta.NodeDraining: 0}
	for n := range im.Nodes() {
		nodes[n.State]++
	}
	for state, n := range nodes {
		gauge(nodesDesc, float64(n), string(state))
	}
	tombstones := map[string]int{"waiting": 0, "expired": 0}
	for t := range im.Tombstones() {
		if t.Expired {
			tombstones["expired"]++
		} else {
			tombstones["waiting"]++
		}
	}
	for state, n := range tombstones {
		gauge(tombstonesDesc, float64(n), state)
	}
	for t := range im.Tables() {
		partitions := map[meta.PartitionState]int{meta.PartitionConsuming: 0, meta.PartitionError: 0}
		for p := range im.Partitions(t.ID) {
			partitions[p.State]++
		}
		for state, n := range partitions {
			gauge(partitionsDesc, float64(n), t.Name, string(state))
		}
		risk := riskOf(im, t)
		for status, n := range risk.byStatus {
			gauge(segmentsDesc, float64(n), t.Name, string(status))
		}
		gauge(singleDesc, float64(risk.single), t.Name)
		gauge(singleBytes, float64(risk.singleBytes), t.Name)
		gauge(singleOldest, float64(risk.oldest)/1000, t.Name)
		gauge(awaitingDesc, float64(risk.awaiting), t.Name)
	}
}

// tableRisk sums up how safe a table's segments are.
type tableRisk struct {
	byStatus            map[meta.SegmentStatus]int
	single, singleBytes int64
	oldest              int64 // ms, committed
	awaiting            int64
}

func riskOf(im *meta.Image, t *meta.Table) tableRisk {
	r := tableRisk{byStatus: map[meta.SegmentStatus]int{meta.SegmentInProgress: 0, meta.SegmentDone: 0}}
	for s := range im.TableSegments(t.ID) {
		r.byStatus[s.Status]++
		if s.Status != meta.SegmentDone {
			continue
		}
		if meta.IsNotInDeepStore(im, s) {
			r.awaiting++
		}
		if meta.IsSingleCopy(im, s) {
			r.single++
			r.singleBytes += s.SizeBytes
			if r.oldest == 0 || s.Times.Committed < r.oldest {
				r.oldest = s.Times.Committed
			}
		}
	}
	return r
}
