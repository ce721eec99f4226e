package node

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// metrics are what a node counts.
type metrics struct {
	seal, commit, rollOverPause prometheus.Histogram
	uploads                     *prometheus.CounterVec
	uploadBytes                 prometheus.Counter
	swept                       prometheus.Counter
}

var (
	storedDesc  = prometheus.NewDesc("shoal_node_copies", "Copies in the store by state.", []string{"state"}, nil)
	bytesDesc   = prometheus.NewDesc("shoal_node_copies_bytes", "Bytes of the copies in the store by state.", []string{"state"}, nil)
	lagRowsDesc = prometheus.NewDesc("shoal_node_lag_rows", "Rows between the builder and the end of the stream.", []string{"table", "partition"}, nil)
	lagSecDesc  = prometheus.NewDesc("shoal_node_lag_seconds", "For how long the consumer has been behind the end of the stream.", []string{"table", "partition"}, nil)
	waitingDesc = prometheus.NewDesc("shoal_node_waiting", "Downloads and uploads that wait for their turn or their next try.", []string{"kind"}, nil)
	queuedBytes = prometheus.NewDesc("shoal_node_uploads_waiting_bytes", "Bytes of the segments that wait for their upload or its next try.", nil, nil)
	oldestDesc  = prometheus.NewDesc("shoal_node_uploads_waiting_oldest_timestamp_seconds", "When the oldest segment that waits for its upload was committed, 0 for none.", nil, nil)
	runningDesc = prometheus.NewDesc("shoal_node_uploads_running", "Uploads under way.", nil, nil)
	failingDesc = prometheus.NewDesc("shoal_node_uploads_failing_tables", "Tables with more to upload whose last upload by this node has failed: they have one at a time.", nil, nil)
	appliedDesc = prometheus.NewDesc("shoal_node_applied_offset", "Next offset of the node's image of the metadata.", nil, nil)
)

func newMetrics(reg *prometheus.Registry, n *Node) *metrics {
	m := &metrics{
		seal: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_node_seal_seconds", Help: "Sealing a segment: last pages, fsync and publishing.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 14),
		}),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_node_commit_seconds", Help: "From segmentCommitEnd sent to COMMIT_SUCCESS received.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		rollOverPause: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_node_roll_over_pause_seconds", Help: "How long reading waited for room while the segment changed.",
			Buckets: append([]float64{0.0001}, prometheus.ExponentialBuckets(0.001, 2, 14)...),
		}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_node_deep_store_uploads_swept_total", Help: "Uploads to deep stores that were begun more than a day before, never ended, and were removed.",
		}),
		uploads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_node_uploads_total", Help: "Uploads to deep stores, by how they ended.",
		}, []string{"result"}),
		uploadBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_node_uploaded_bytes_total", Help: "Bytes of the segments that were uploaded, or were found to be there.",
		}),
	}
	for _, result := range []string{uploadWell, uploadFailed} {
		m.uploads.WithLabelValues(result)
	}
	reg.MustRegister(m.seal, m.commit, m.rollOverPause, m.uploads, m.uploadBytes, m.swept,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), stateCollector{n})
	return m
}

const (
	uploadWell   = "ok"
	uploadFailed = "failed"
)

// uploaded counts an upload of a segment, which may be gone by now.
func (m *metrics) uploaded(s *meta.Segment, err error) {
	size := int64(0)
	if s != nil {
		size = s.SizeBytes
	}
	m.uploadedBytes(size, err)
}

func (m *metrics) uploadedBytes(size int64, err error) {
	switch {
	case err == nil:
		m.uploads.WithLabelValues(uploadWell).Inc()
		m.uploadBytes.Add(float64(size))
	case !errors.Is(err, context.Canceled):
		m.uploads.WithLabelValues(uploadFailed).Inc()
	}
}

// stateCollector reads the node's state when it is scraped.
type stateCollector struct{ n *Node }

func (s stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storedDesc, bytesDesc, lagRowsDesc, lagSecDesc, waitingDesc, appliedDesc, queuedBytes, oldestDesc, runningDesc, failingDesc} {
		ch <- d
	}
}

func (s stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count, size := map[segment.State]int{segment.StateSealed: 0, segment.StateQuarantined: 0}, map[segment.State]int64{}
	for _, h := range s.n.store.Held() {
		count[h.State]++
		size[h.State] += h.SizeBytes
	}
	for state, n := range count {
		gauge(storedDesc, float64(n), string(state))
		gauge(bytesDesc, float64(size[state]), string(state))
	}
	for _, v := range s.n.newestViews() {
		gauge(lagRowsDesc, float64(v.LagRows), v.Table, partitionLabel(v.Partition))
		gauge(lagSecDesc, v.LagSeconds, v.Table, partitionLabel(v.Partition))
	}
	s.n.copies.seen.Lock()
	fetches, uploads := s.n.copies.seen.fetchesWaiting, s.n.copies.seen.uploadsWaiting
	queue := s.n.copies.seen.uploads
	s.n.copies.seen.Unlock()
	gauge(waitingDesc, float64(fetches), "download")
	gauge(waitingDesc, float64(uploads), "upload")
	gauge(queuedBytes, float64(queue.WaitingBytes))
	gauge(oldestDesc, float64(queue.Oldest)/1000)
	gauge(runningDesc, float64(queue.Running))
	gauge(failingDesc, float64(queue.FailingTables))
	gauge(appliedDesc, float64(s.n.currentImage().Next()))
}
