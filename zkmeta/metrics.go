package zkmeta

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label state.
const (
	stateNone         = "none"         // no session: never had, or expired
	stateConnected    = "connected"    // a session and a connection
	stateDisconnected = "disconnected" // a session that may live, no connection
	stateAuthFailed   = "auth_failed"  // ZooKeeper does not take user and password
	stateClosed       = "closed"
)

var sessionStates = []string{stateNone, stateConnected, stateDisconnected, stateAuthFailed, stateClosed}

// Metrics are the numbers of one Conn.
type Metrics struct {
	sessionState   *prometheus.GaugeVec
	reconnects     prometheus.Counter
	expiries       prometheus.Counter
	requestSeconds *prometheus.HistogramVec
	unanswered     *prometheus.CounterVec
	inFlight       prometheus.Gauge

	sinceHeard atomic.Pointer[func() time.Duration]
}

// NewMetrics registers the metrics with reg; a nil reg keeps them to themselves.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	m := &Metrics{
		sessionState: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "shoal_zookeeper_session_state", Help: "1 for the state that the session is in, 0 for the others.",
		}, []string{"state"}),
		reconnects: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_zookeeper_reconnects_total", Help: "Connections that got a session, or got it back, after the first.",
		}),
		expiries: f.NewCounter(prometheus.CounterOpts{
			Name: "shoal_zookeeper_expiries_total", Help: "Sessions that ZooKeeper has ended.",
		}),
		requestSeconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "shoal_zookeeper_request_seconds", Help: "Time from the sending of a request to its answer, by operation.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"op"}),
		unanswered: f.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_zookeeper_unanswered_total", Help: "Requests of which it is not known what became of them, by operation.",
		}, []string{"op"}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_zookeeper_requests_in_flight", Help: "Requests that wait for a session or an answer, those that nobody waits for any more included.",
		}),
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "shoal_zookeeper_since_answer_seconds", Help: "Time since the sending of the last request that was answered, or since the start.",
	}, m.sinceHeardSeconds)
	m.state(stateNone)
	return m
}

func (m *Metrics) state(now string) {
	for _, s := range sessionStates {
		v := 0.0
		if s == now {
			v = 1
		}
		m.sessionState.WithLabelValues(s).Set(v)
	}
}

func (m *Metrics) sinceHeardSeconds() float64 {
	since := m.sinceHeard.Load()
	if since == nil {
		return math.NaN()
	}
	return (*since)().Seconds()
}

func (m *Metrics) answered(op string, d time.Duration, err error) {
	if answered(err) {
		m.requestSeconds.WithLabelValues(op).Observe(d.Seconds())
	}
}

func (m *Metrics) failed(op string, err error) {
	if !answered(err) {
		m.unanswered.WithLabelValues(op).Inc()
	}
}
