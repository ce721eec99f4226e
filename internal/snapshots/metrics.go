package snapshots

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics are the numbers of a Fetcher.
type Metrics struct {
	fetched     prometheus.Counter
	restarts    *prometheus.CounterVec
	wastedBytes prometheus.Counter
}

// NewMetrics registers the metrics with reg; a nil reg keeps them to themselves.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		fetched: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_snapshots_fetched_total", Help: "Snapshots that were downloaded and verified.",
		}),
		restarts: f.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_snapshots_restarts_total", Help: "Downloads that ended without their snapshot and are begun again, by cause.",
		}, []string{"cause"}),
		wastedBytes: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_snapshots_wasted_bytes_total", Help: "Bytes of snapshots that were fetched in vain, those of downloads that were dropped included.",
		}),
	}
	for _, c := range causes {
		m.restarts.WithLabelValues(string(c)) // there before the first one, for alarms
	}
	return m
}
