package e2e

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
)

// histogram is one of a process's, without labels.
type histogram struct {
	name       string
	count, sum float64
	bounds     []float64 // upper, rising; the last is infinite
	below      []float64 // observations up to that bound
}

// histogram reads one of a process's histograms.
func (o *observer) histogram(p *process, name string) histogram {
	o.t.Helper()
	h, err := parseHistogram(o.metrics(p), name)
	if err != nil {
		o.t.Fatalf("%s: %v", p.name, err)
	}
	return h
}

// awaitHistogram waits until a process has observed so much. A change can be read a
// moment before it is.
func (o *observer) awaitHistogram(p *process, name string, count int) (h histogram) {
	o.t.Helper()
	o.await(fmt.Sprintf("%d observations of %s", count, name), func() (bool, string) {
		h = o.histogram(p, name)
		return h.count == float64(count), h.String()
	})
	return h
}

func parseHistogram(text, name string) (histogram, error) {
	h := histogram{name: name}
	found := map[string]float64{}
	lines := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `_(?:bucket\{le="(.+)"\}|(count|sum)) (\S+)$`)
	for _, m := range lines.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return h, err
		}
		if m[2] != "" {
			found[m[2]] = v
			continue
		}
		bound, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return h, err
		}
		h.bounds, h.below = append(h.bounds, bound), append(h.below, v)
	}
	h.count, h.sum = found["count"], found["sum"]
	if n := len(h.bounds); len(found) != 2 || n == 0 || !math.IsInf(h.bounds[n-1], 1) || h.below[n-1] != h.count {
		return h, fmt.Errorf("%s is not there, or no histogram", name)
	}
	return h, nil
}

// quantile returns the bounds of the bucket that a quantile lies in, by nearest rank.
func (h histogram) quantile(q float64) (above, upTo float64) {
	rank := max(1, math.Ceil(q*h.count))
	for i, n := range h.below {
		if n >= rank {
			if i > 0 {
				above = h.bounds[i-1]
			}
			return above, h.bounds[i]
		}
	}
	return math.NaN(), math.NaN()
}

func (h histogram) String() string {
	lies := func(q float64) string {
		above, upTo := h.quantile(q)
		return fmt.Sprintf("above %g s, up to %g s", above, upTo)
	}
	return fmt.Sprintf("%s: n %.0f, sum %.3f s, p50 %s, p99 %s", h.name, h.count, h.sum, lies(0.5), lies(0.99))
}

func TestHistogramIsRead(t *testing.T) {
	const text = `# TYPE x_seconds histogram
x_seconds_bucket{le="0.1"} 1
x_seconds_bucket{le="0.2"} 98
x_seconds_bucket{le="0.4"} 98
x_seconds_bucket{le="+Inf"} 100
x_seconds_sum 1.25
x_seconds_count 100
xx_seconds_count 3
`
	h, err := parseHistogram(text, "x_seconds")
	if err != nil || h.count != 100 || h.sum != 1.25 {
		t.Fatalf("%+v, %v", h, err)
	}
	for q, want := range map[float64][2]float64{0: {0, 0.1}, 0.01: {0, 0.1}, 0.011: {0.1, 0.2}, 0.98: {0.1, 0.2}, 0.99: {0.4, math.Inf(1)}} {
		if above, upTo := h.quantile(q); [2]float64{above, upTo} != want {
			t.Errorf("%g: (%g, %g], want %v", q, above, upTo, want)
		}
	}
	for _, name := range []string{"y_seconds", "xx_seconds", "x"} {
		if h, err := parseHistogram(text, name); err == nil {
			t.Errorf("%s: %+v", name, h)
		}
	}
}
