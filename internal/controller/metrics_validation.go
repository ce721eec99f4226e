package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shoalstore/shoal/meta"
)

// copyTimes are how long committed segments wait for their other copies. The leader
// that applies a change observes each segment once: a record's times are set once.
type copyTimes struct {
	second, deepStore prometheus.Histogram
}

func newCopyTimes(reg *prometheus.Registry) copyTimes {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.1, 2, 18), // to 3.6 h
		})
	}
	t := copyTimes{
		second:    histogram("shoal_segment_second_copy_seconds", "From the commit of a segment to its second counted node copy."),
		deepStore: histogram("shoal_segment_deep_store_seconds", "From the commit of a segment to its verified deep-store copy."),
	}
	reg.MustRegister(t.second, t.deepStore)
	return t
}

// observe looks at what a batch has changed. A segment that has its second copy, or its
// deep-store copy, in the image after and had it in none before, has it by this batch.
func (t copyTimes) observe(before, after *meta.Image, b *meta.Batch) {
	for k := range b.Keys() {
		if k.Kind != meta.KindSegment {
			continue
		}
		key := meta.SegmentKey{Table: k.Table, Partition: k.Partition, Seq: k.Num}
		is := after.Segment(key)
		if is == nil || is.Times.Committed == 0 {
			continue
		}
		var was meta.Times
		if s := before.Segment(key); s != nil {
			was = s.Times
		}
		since := func(at int64) float64 {
			return (time.Duration(max(at-is.Times.Committed, 0)) * time.Millisecond).Seconds()
		}
		if was.SecondCopy == 0 && is.Times.SecondCopy != 0 {
			t.second.Observe(since(is.Times.SecondCopy))
		}
		if was.DeepStore == 0 && is.Times.DeepStore != 0 {
			t.deepStore.Observe(since(is.Times.DeepStore))
		}
	}
}

// What validation shows is read from the leader's memory when it is scraped.
var (
	findingsDesc = prometheus.NewDesc("shoal_validation_findings", "What the last look at the whole image has found, by kind.", []string{"kind"}, nil)
	ranDesc      = prometheus.NewDesc("shoal_validation_last_run_timestamp_seconds", "When the last look at the whole image began, 0 for none yet.", nil, nil)
	poolDesc     = prometheus.NewDesc("shoal_validation_uploads", "Uploads that validation sees to: a node is asked, or one will be.", []string{"state"}, nil)
	failingDesc  = prometheus.NewDesc("shoal_validation_failing_tables", "Tables whose last upload that validation asked for has failed.", nil, nil)
	askedDesc    = prometheus.NewDesc("shoal_validation_uploads_total", "Uploads that validation asked nodes for, by what became of them, in this leadership.", []string{"result"}, nil)
	pagesDesc    = prometheus.NewDesc("shoal_deep_store_pages_listed_total", "Pages of deep stores that were compared with the metadata, in this leadership.", nil, nil)
	lostDesc     = prometheus.NewDesc("shoal_deep_store_copies_lost_total", "Verified deep-store copies that proved to be gone, in this leadership.", nil, nil)
)

func describeValidation(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{findingsDesc, ranDesc, poolDesc, failingDesc, askedDesc, pagesDesc, lostDesc} {
		ch <- d
	}
}

func (s ValidationSeen) collect(ch chan<- prometheus.Metric) {
	v := s.View
	show := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	ran := 0.0
	if !v.RanAt.IsZero() {
		ran = float64(v.RanAt.UnixMilli()) / 1000
	}
	show(ranDesc, prometheus.GaugeValue, ran)
	show(findingsDesc, prometheus.GaugeValue, float64(v.NotConsumingTotal), "partition_not_consuming")
	show(findingsDesc, prometheus.GaugeValue, float64(v.StoppedTotal), "partition_stopped")
	show(poolDesc, prometheus.GaugeValue, float64(v.Pool.Running), "asked")
	show(poolDesc, prometheus.GaugeValue, float64(v.Pool.Waiting), "waiting")
	show(failingDesc, prometheus.GaugeValue, float64(len(v.Pool.FailingTables)))
	show(askedDesc, prometheus.CounterValue, float64(v.Pool.Asked), "asked")
	show(askedDesc, prometheus.CounterValue, float64(v.Pool.Failed), "failed")
	show(askedDesc, prometheus.CounterValue, float64(v.Pool.Done), "done")
	show(pagesDesc, prometheus.CounterValue, float64(v.DeepStore.PagesListed))
	show(lostDesc, prometheus.CounterValue, float64(v.DeepStore.Lost))
}
