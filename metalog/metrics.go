package metalog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the numbers of one log, its writer or its follower.
type Metrics struct {
	appendSeconds  prometheus.Histogram
	appendBytes    prometheus.Counter
	groupChanges   prometheus.Histogram
	refusals       prometheus.Counter
	fetches        *prometheus.CounterVec
	followerLag    prometheus.Gauge
	followerFaults prometheus.Counter

	snapshotSeconds  prometheus.Histogram
	snapshotBytes    prometheus.Gauge
	snapshotTime     prometheus.Gauge
	snapshotFailures prometheus.Counter
}

// NewMetrics registers the metrics with reg; a nil reg keeps them to themselves.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	return &Metrics{
		appendSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_metalog_append_seconds", Help: "Time from the start of an append to the end of its fsync.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		appendBytes: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_metalog_append_bytes_total", Help: "Bytes of frames appended and synced.",
		}),
		groupChanges: f.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_metalog_group_changes", Help: "Changes that went into one batch.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		}),
		refusals: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_metalog_refusals_total", Help: "Changes that were refused by their own precondition or by an invariant.",
		}),
		fetches: f.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_metalog_fetches_total", Help: "Fetches of the follower, by what they were answered.",
		}, []string{"answer"}),
		followerLag: f.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_metalog_follower_lag_batches", Help: "Batches between the follower's image and the leader's high watermark.",
		}),
		followerFaults: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_metalog_follower_faults_total", Help: "Answers that the follower could not accept.",
		}),
		snapshotSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_metalog_snapshot_seconds", Help: "Time that it took to write a snapshot.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
		snapshotBytes: f.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_metalog_snapshot_bytes", Help: "Size of the newest snapshot.",
		}),
		snapshotTime: f.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_metalog_snapshot_timestamp_seconds", Help: "Unix time of the last batch in the newest snapshot; 0 without one.",
		}),
		snapshotFailures: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_metalog_snapshot_failures_total", Help: "Snapshots that could not be written.",
		}),
	}
}

func (m *Metrics) appended(d time.Duration, bytes int64) {
	m.appendSeconds.Observe(d.Seconds())
	m.appendBytes.Add(float64(bytes))
}
