package peerdl

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what is sent and fetched. One Metrics serves all servers and
// downloaders of a process.
type Metrics struct {
	sending      prometheus.Gauge
	sentBytes    prometheus.Counter
	refused      prometheus.Counter
	cut          prometheus.Counter
	downloads    prometheus.Gauge
	fetchedBytes prometheus.Counter
	wastedBytes  prometheus.Counter
	faults       *prometheus.CounterVec
}

// NewMetrics returns metrics registered with reg; with nil they count unseen.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		sending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_peerdl_sending", Help: "Resources being sent now."}),
		sentBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_peerdl_sent_bytes_total", Help: "Bytes sent."}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_peerdl_refused_total", Help: "Requests answered 503 because too many were being sent."}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_peerdl_cut_total", Help: "Sends cut off because their reader was slow while others were refused."}),
		downloads: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_peerdl_downloads", Help: "Downloads running now."}),
		fetchedBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_peerdl_fetched_bytes_total", Help: "Verified bytes fetched."}),
		wastedBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_peerdl_wasted_bytes_total", Help: "Bytes fetched in vain: damaged, cut off or too late."}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_peerdl_source_faults_total", Help: "What sources did instead of sending: busy, lie, stall, failure."}, []string{"kind"}),
	}
	for _, kind := range []string{"busy", "lie", "stall", "failure"} {
		m.faults.WithLabelValues(kind) // there before the first one, for alarms
	}
	if reg != nil {
		reg.MustRegister(m.sending, m.sentBytes, m.refused, m.cut, m.downloads, m.fetchedBytes, m.wastedBytes, m.faults)
	}
	return m
}

func (m *Metrics) countRefused() {
	if m != nil {
		m.refused.Inc()
	}
}

func (m *Metrics) countCut() {
	if m != nil {
		m.cut.Inc()
	}
}

func (m *Metrics) countSent(bytes int64) {
	if m != nil {
		m.sentBytes.Add(float64(bytes))
	}
}

// countSending counts one send until the function it returns is called.
func (m *Metrics) countSending() (end func()) {
	if m == nil {
		return func() {}
	}
	m.sending.Inc()
	return m.sending.Dec
}
