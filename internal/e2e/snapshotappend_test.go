package e2e

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/shoalstore/shoal/metalog"
)

// appenders is how many callers commit at a time, each in a partition of its own and one
// commit after another.
const appenders = 4

// appends measures how long a commit takes while a snapshot is being written, against how
// long it takes otherwise, in turns.
func (s *snapshotScale) appends() {
	s.t.Helper()
	var with, without []time.Duration
	var ratios []string
	var wrote int
	for round := range s.rounds {
		var a, b []time.Duration
		halves := []func(){
			func() { a = s.commitDuring(s.writeSnapshots(round, &wrote)) },
			func() { b = s.commitDuring(func() { time.Sleep(s.phaseMin) }) },
		}
		if round%2 == 1 {
			slices.Reverse(halves)
		}
		for _, half := range halves {
			half()
		}
		ratios = append(ratios, fmt.Sprintf("%.2f", ratio(quantile(a, 0.99), quantile(b, 0.99))))
		with, without = append(with, a...), append(without, b...)
	}
	s.table.add(fmt.Sprintf("append by %d callers", appenders), spread(without), "")
	s.table.add("the same while a snapshot is written", fmt.Sprintf("%s; %d snapshots", spread(with), wrote), "")
	r := ratio(quantile(with, 0.99), quantile(without, 0.99))
	s.table.add("p99 with ÷ without", fmt.Sprintf("%.2f; by rounds %v", r, ratios), aimed("≤ 2", r <= 2))
}

// writeSnapshots writes snapshots of what the leader has by then, one at least, for the
// time of half a round.
func (s *snapshotScale) writeSnapshots(round int, wrote *int) func() {
	return func() {
		for began, i := time.Now(), 0; i == 0 || time.Since(began) < s.phaseMin; i++ {
			disk := openDisk(s.t, s.dir, "rounds")
			dir := fmt.Sprintf("%d-%d", round, i)
			if _, err := metalog.WriteSnapshot(s.t.Context(), disk, dir, s.writer.Image()); err != nil {
				s.t.Fatal(err)
			}
			*wrote++
		}
	}
}

// commitDuring commits while do runs, each caller once at least, and returns how long each
// commit took.
func (s *snapshotScale) commitDuring(do func()) (took []time.Duration) {
	s.t.Helper()
	stop := make(chan struct{})
	var mu sync.Mutex
	var work sync.WaitGroup
	for _, k := range s.seeder.partitions()[:appenders] {
		work.Go(func() {
			var mine []time.Duration
			for {
				began := time.Now()
				s.writer.submit(s.seeder.commitOne(k))
				mine = append(mine, time.Since(began))
				select {
				case <-stop:
					mu.Lock()
					took = append(took, mine...)
					mu.Unlock()
					return
				default:
				}
			}
		})
	}
	do()
	close(stop)
	work.Wait()
	removeAll(s.t, s.dir+"/rounds")
	return took
}

func spread(d []time.Duration) string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s of %d", millis(quantile(d, 0.5)), millis(quantile(d, 0.99)), millis(quantile(d, 1)), len(d))
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// quantile is by nearest rank.
func quantile(d []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
