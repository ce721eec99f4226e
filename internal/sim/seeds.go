package sim

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say which seeds are run, and what is told of them.
type Options struct {
	First   int64
	Seeds   int
	Verbose bool
	Shrink  bool
	Stop    bool    // at the first seed that fails
	Without []Fault // left out of every plan
	Out     io.Writer
}

// ParseFaults reads a list of faults, as Result.Replay prints it. The error names one
// that there is not, and those that there are.
func ParseFaults(list string) (faults []Fault, err error) {
	var known []string
	for _, f := range allFaults {
		known = append(known, string(f.fault))
	}
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "":
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("there is no fault %q; the faults are: %s", name, strings.Join(known, ", "))
		default:
			faults = append(faults, Fault(name))
		}
	}
	return faults, nil
}

// tellEvery is after how many seeds a long run says how far it is.
const tellEvery = 1000

// RunSeeds runs seeds side by side, each in a goroutine of its own, and returns how
// many failed.
func RunSeeds(o Options) (failed int) {
	// A run makes garbage as fast as it can, and little of it is kept.
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		total = newCounts()
		seeds = make(chan int64)
		done  int
		began = time.Now()
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range seeds {
				var out io.Writer
				if o.Verbose {
					out = o.Out
				}
				res := Run(planWithout(seed, o.Without), out)
				if res.Violation != nil && o.Shrink {
					res = shrink(res)
				}
				mu.Lock()
				total.add(res.counts)
				if o.Verbose {
					fmt.Fprintf(o.Out, "seed %d: trace %016x, healed in %s\n", seed, res.Hash, res.Healed)
				}
				if res.Violation != nil {
					failed++
					fmt.Fprintf(o.Out, "seed %d: %v\n  %s\n", seed, res.Violation, res.Replay())
				}
				if done++; done%tellEvery == 0 && done < o.Seeds {
					fmt.Fprintf(o.Out, "%d of %d seeds, %d failed, %s\n", done, o.Seeds, failed, time.Since(began).Round(time.Second))
				}
				mu.Unlock()
			}
		})
	}
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return o.Stop && failed > 0
	}
	for i := 0; i < o.Seeds && !stopped(); i++ {
		seeds <- o.First + int64(i)
	}
	close(seeds)
	wg.Wait()
	took := time.Since(began)
	for _, f := range allFaults {
		total.faults[string(f.fault)] += 0 // one that never fell is to be seen
	}
	total.print(o.Out)
	fmt.Fprintf(o.Out, "%d of %d seeds failed, in %s: %.1f schedules/s, %.0f events/s\n",
		failed, o.Seeds, took.Round(time.Millisecond), float64(o.Seeds)/took.Seconds(), float64(total.events)/took.Seconds())
	return failed
}

// planWithout is the plan of a seed without some of its faults.
func planWithout(seed int64, without []Fault) *Plan {
	p := NewPlan(seed)
	p.without = without
	for _, f := range without {
		delete(p.Faults, f)
	}
	return p
}

// Replay is the command that runs the same again.
func (r *Result) Replay() string {
	cmd := fmt.Sprintf("go run ./internal/sim/simulate -seed %d -v", r.Plan.Seed)
	if len(r.Plan.without) > 0 {
		var names []string
		for _, f := range r.Plan.without {
			names = append(names, string(f))
		}
		cmd += fmt.Sprintf(" -without %q", strings.Join(names, ","))
	}
	return cmd
}

// shrink leaves faults out one by one, as long as the run still fails by the same
// invariant, and returns the shortest run that does.
func shrink(res Result) Result { return shrinkWith(res, func(*Plan) {}) }

// shrinkWith is shrink of plans that change has changed.
func shrinkWith(res Result, change func(*Plan)) Result {
	best := res
	for _, f := range slices.Sorted(maps.Keys(res.Plan.Faults)) {
		p := planWithout(res.Plan.Seed, append(slices.Clone(best.Plan.without), f))
		change(p)
		if r := Run(p, nil); r.Violation != nil && r.Violation.Invariant == res.Violation.Invariant {
			best = r
		}
	}
	return best
}
