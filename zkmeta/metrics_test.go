package zkmeta

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// value returns a gauge or counter, with that value of its only label.
func value(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s{%s}", name, label)
	return 0
}

func TestMetricsState(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	if v := value(t, reg, "shoal_zookeeper_since_answer_seconds", ""); !math.IsNaN(v) {
		t.Errorf("without a connection, heard %v ago", v)
	}
	m.state(stateConnected)
	for _, s := range sessionStates {
		want := 0.0
		if s == stateConnected {
			want = 1
		}
		if v := value(t, reg, "shoal_zookeeper_session_state", s); v != want {
			t.Errorf("%s is %v", s, v)
		}
	}
}
