package snapshots

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	startDesc  = prometheus.NewDesc("shoal_metalog_log_start_offset", "First offset that the log here holds (LSO).", nil, nil)
	highDesc   = prometheus.NewDesc("shoal_metalog_high_watermark", "First offset that is not known here to be committed (HW).", nil, nil)
	endDesc    = prometheus.NewDesc("shoal_metalog_log_end_offset", "First offset that the log here does not hold (LEO).", nil, nil)
	bytesDesc  = prometheus.NewDesc("shoal_metalog_log_bytes", "Bytes of batches that the log here holds.", nil, nil)
	countDesc  = prometheus.NewDesc("shoal_metalog_snapshots", "Snapshots that are here.", nil, nil)
	pinnedDesc = prometheus.NewDesc("shoal_metalog_snapshots_pinned", "Snapshots that stay because they are being sent.", nil, nil)
)

// Collector shows the log and the snapshots of the Keeper that a process has at the moment;
// nil, it shows nothing.
type Collector func() *Keeper

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{startDesc, highDesc, endDesc, bytesDesc, countDesc, pinnedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	k := c()
	if k == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	high := k.Log.End()
	if k.applied != nil {
		high = k.applied()
	}
	gauge(startDesc, int(k.Log.Start()))
	gauge(highDesc, int(high))
	gauge(endDesc, int(k.Log.End()))
	gauge(bytesDesc, int(k.Log.Bytes()))
	gauge(countDesc, len(k.Snapshots.List()))
	gauge(pinnedDesc, len(k.Snapshots.Pinned(time.Now().UnixMilli())))
}
