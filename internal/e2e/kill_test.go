package e2e

import (
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// drawSeed returns the seed of a test's choices: that of SHOAL_SEED, to make
// the same choices again, or a new one. What the processes are just doing when
// they are struck is not in the seed.
func drawSeed(t *testing.T) *rand.Rand {
	t.Helper()
	seed := time.Now().UnixNano()
	if s := os.Getenv("SHOAL_SEED"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("SHOAL_SEED: %v", err)
		}
		seed = n
	}
	t.Logf("the same choices again: SHOAL_SEED=%d go test ./internal/e2e -run '^%s$'", seed, t.Name())
	return rand.New(rand.NewSource(seed))
}

// TestKillsLoseNothing kills the controller and the nodes at random moments
// while rows arrive, starts them again, and proves that every row is committed
// exactly once. One table's segments end at a number of rows, the other's by
// time, where the replicas stop at different offsets and have to agree; one has
// a deep store, the other its peers only, and fetches instead of building.
func TestKillsLoseNothing(t *testing.T) {
	rnd := drawSeed(t)
	f, _ := startFleet(t, fleetOptions{})
	events := newProducer(t, f.streamRoot(), "events", 2)
	clicks := newProducer(t, f.streamRoot(), "clicks", 1)
	f.createTable("events", map[string]any{
		"segment":   map[string]any{"maxRows": 150, "rowGroupRows": 40},
		"deepStore": f.withDeepStore(),
	})
	f.createTable("clicks", map[string]any{
		"segment":    map[string]any{"maxAge": "1s"},
		"completion": map[string]any{"mode": "download", "holdTime": "200ms", "commitTimeout": "5s"},
		"download":   "peersFirst",
	})
	f.awaitNodes(3)
	stopEvents := events.keepAdding(rnd.Int63(), 5*time.Millisecond)
	stopClicks := clicks.keepAdding(rnd.Int63(), 10*time.Millisecond)
	f.awaitCommitted("events", 1)
	f.awaitCommitted("clicks", 1)

	kills := 26
	if testing.Short() {
		kills = 8
	}
	k := killer{fleet: f, rnd: rnd, made: func() int64 { return events.made.Load() + clicks.made.Load() }}
	for k.kills < kills {
		k.round()
	}
	stopEvents()
	stopClicks()
	t.Logf("%d kills: %s", k.kills, strings.Join(k.log, ", "))
	f.prove("events", events)
	f.prove("clicks", clicks)
	f.checkHistory()
}

// killer strikes, and heals what it struck.
type killer struct {
	*fleet
	rnd   *rand.Rand
	made  func() int64 // rows written so far
	kills int
	log   []string
}

// round waits for a moment, kills one process or several, and starts them again
// in any order, at once or after a while.
func (k *killer) round() {
	k.t.Helper()
	k.moment()
	victims := k.victims()
	var names []string
	for _, v := range victims {
		v.kill()
		k.kills++
		names = append(names, v.name)
	}
	k.log = append(k.log, strings.Join(names, "+"))
	k.rnd.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, v := range victims {
		k.produced(k.rnd.Intn(200))
		v.start()
	}
}

// moment waits until the cluster has got somewhere: so many rows written, or, to
// strike when something has just been committed, rows committed.
func (k *killer) moment() {
	k.t.Helper()
	n := k.rnd.Intn(600)
	table := []string{"events", "clicks"}[k.rnd.Intn(2)]
	if k.rnd.Intn(2) == 0 {
		k.produced(n)
		return
	}
	var have int64
	k.await("the controller", func() (bool, string) {
		var err error
		have, err = k.committed(table)
		return err == nil, asJSON(nil, err)
	})
	k.awaitCommitted(table, have+int64(n/4))
}

// produced waits until so many more rows are written.
func (k *killer) produced(n int) {
	k.t.Helper()
	until := k.made() + int64(n)
	k.await(fmt.Sprintf("%d more rows", n), func() (bool, string) {
		made := k.made()
		return made >= until, fmt.Sprint(made)
	})
}

// victims draws whom to kill: mostly one, sometimes two, sometimes all.
func (k *killer) victims() []*process {
	all := append([]*process{k.controller}, k.nodes...)
	k.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	switch n := k.rnd.Intn(10); {
	case n < 6:
		return all[:1]
	case n < 9:
		return all[:2]
	default:
		return all
	}
}
