package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestPercentileIsOneOfTheSamples(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // unsorted: from the top down
	}
	for _, c := range []struct {
		samples []float64
		q, want float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{1, 2}, 0.5, 1},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
		{hundred[:99], 0.99, 100}, // of 99 samples the p99 is the largest
	} {
		before := slices.Clone(c.samples)
		if got := percentile(c.samples, c.q); got != c.want {
			t.Errorf("p%g of %v is %g, want %g", c.q*100, c.samples, got, c.want)
		}
		if !slices.Equal(before, c.samples) {
			t.Error("the samples were sorted in place")
		}
	}
}

func TestHistogramsOfNodesAddUpAndSubtract(t *testing.T) {
	bounds := []float64{0.001, 0.002, 0.004}
	one := histogram{count: 4, sum: 0.008, bounds: bounds, below: []uint64{2, 3, 3}} // one sample is above all bounds
	two := histogram{count: 6, sum: 0.004, bounds: bounds, below: []uint64{6, 6, 6}}
	sum := histogram{}.plus(one, +1).plus(two, +1)
	if sum.count != 10 || !slices.Equal(sum.below, []uint64{8, 9, 9}) || math.Abs(sum.mean()-0.0012) > 1e-12 {
		t.Errorf("the sum is %+v", sum)
	}
	for q, want := range map[float64]float64{0.5: 0.001, 0.8: 0.001, 0.81: 0.002, 0.9: 0.002, 0.91: math.Inf(1), 1: math.Inf(1)} {
		if got := sum.atMost(q); got != want {
			t.Errorf("p%g is at most %g, want %g", q*100, got, want)
		}
	}
	if back := sum.plus(two, -1); back.count != one.count || !slices.Equal(back.below, one.below) {
		t.Errorf("one + two - two is %+v, want %+v", back, one)
	}
}

func TestOnlyWhatIsBetweenTheMarksIsReplaced(t *testing.T) {
	job, moving := beginMark(jobTable), beginMark(movingTable)
	first := "# Benchmarks\n" + job + "\none\n" + endMark + "\nwords\n"
	second := "\n" + endMark + "\nmore\n"
	doc := first + moving + "\nold" + second
	for range 2 { // the second time over its own work
		out, err := replaceBetween([]byte(doc), movingTable, []byte("new\n"))
		if err != nil {
			t.Fatal(err)
		}
		if doc = string(out); doc != first+moving+"\nnew"+second {
			t.Fatalf("the document is now\n%s", doc)
		}
	}
	for _, bad := range []string{"", moving, endMark + moving, job + endMark} {
		if out, err := replaceBetween([]byte(bad), movingTable, nil); err == nil {
			t.Errorf("%q became %q", bad, out)
		}
	}
}

func TestOnlyLeavesPartsOrTables(t *testing.T) {
	parts := []part{{name: "download"}, {name: "upload"}}
	for only, want := range map[string]int{"": 2, movingTable: 2, jobTable: 0, "upload": 1, "ingest": 0} {
		if got := wanted(parts, movingTable, only); len(got) != want {
			t.Errorf("-only %q leaves %d parts, want %d", only, len(got), want)
		}
	}
	if parts[0].name != "download" || parts[1].name != "upload" {
		t.Errorf("the list itself was changed: %v", parts)
	}
}

func TestTheTableSaysWhatWasMissed(t *testing.T) {
	table := table{load: 1.25}
	table.add("speed", "99 MB/s", aim(false, "≥ 100 MB/s"), "one round")
	table.add("memory", "64 MiB", aim(true, "≤ 64 MiB"), "")
	var text strings.Builder
	table.write(&text)
	for _, want := range []string{"| speed | 99 MB/s | ≥ 100 MB/s: **missed** | 1.2 | one round |", "≤ 64 MiB: met"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
}

func TestRowsRepeatAndEndWithNewlines(t *testing.T) {
	rows := rowSet{lines: generateRows(3), generated: true}
	var text strings.Builder
	if err := rows.write(&text, 1, 5); err != nil {
		t.Fatal(err)
	}
	want := []int{1, 2, 0, 1}
	got := strings.SplitAfter(text.String(), "\n")
	if len(got) != len(want)+1 || got[len(want)] != "" {
		t.Fatalf("%d lines", len(got)-1)
	}
	for i, n := range want {
		if got[i] != string(rows.lines[n]) {
			t.Errorf("row %d is %q", i, got[i])
		}
	}
}
