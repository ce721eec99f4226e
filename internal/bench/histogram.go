package main

import (
	"context"
	"fmt"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// histogram is one of a node's, or the sum of those of several nodes that have
// the same bounds. It says between which bounds a sample was, not where.
type histogram struct {
	count  uint64
	sum    float64
	bounds []float64 // upper ones, ascending
	below  []uint64  // samples at most bounds[i]
}

// scrape reads a histogram from the metrics of a server.
func scrape(ctx context.Context, server, name string) (h histogram, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/metrics", nil)
	if err != nil {
		return h, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return h, fmt.Errorf("metrics of %s: %w", server, err)
	}
	found := families[name]
	if found.GetType() != dto.MetricType_HISTOGRAM || len(found.GetMetric()) != 1 {
		return h, fmt.Errorf("metrics of %s: no histogram %s", server, name)
	}
	data := found.GetMetric()[0].GetHistogram()
	h.count, h.sum = data.GetSampleCount(), data.GetSampleSum()
	for _, b := range data.GetBucket() {
		h.bounds = append(h.bounds, b.GetUpperBound())
		h.below = append(h.below, b.GetCumulativeCount())
	}
	return h, nil
}

// plus adds sign times the samples of o, which has the same bounds; the zero
// value has any.
func (h histogram) plus(o histogram, sign int) histogram {
	sum := histogram{count: h.count + uint64(sign)*o.count, sum: h.sum + float64(sign)*o.sum, bounds: o.bounds}
	for i, n := range o.below {
		var mine uint64
		if h.bounds != nil {
			mine = h.below[i]
		}
		sum.below = append(sum.below, mine+uint64(sign)*n)
	}
	return sum
}

// atMost is the least bound that a share q of the samples does not exceed.
func (h histogram) atMost(q float64) float64 {
	rank := uint64(math.Ceil(q * float64(h.count)))
	for i, n := range h.below {
		if n >= rank {
			return h.bounds[i]
		}
	}
	return math.Inf(1)
}

func (h histogram) mean() float64 { return h.sum / float64(max(h.count, 1)) }
