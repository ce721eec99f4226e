package sim

import (
	"math/rand"
	"time"

	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/validation"
)

// Plan is what a seed draws before a run: the shape of the cluster, and how often
// which fault falls. A fault whose mean is 0 does not.
type Plan struct {
	Seed        int64
	Controllers int // 1: embedded; more: ZooKeeper
	Nodes       int
	Partitions  int
	Replication int
	FaultFor    time.Duration // phase 1
	HealFor     time.Duration // phase 2, at most

	Hold, CommitTimeout, MaxAge time.Duration
	MaxRows                     int64
	DownloadMode                bool
	DeepStore                   bool
	UploadWait                  time.Duration
	Download                    meta.DownloadPolicy
	OtherClass                  float64 // share of nodes whose builder makes other bytes

	Produce  time.Duration // mean time between bursts of rows
	Gaps     float64
	FetchMax time.Duration
	SealMax  time.Duration
	DeepSlow time.Duration

	Net                   netRates
	DeepBefore, DeepAfter float64
	DeepAwayMax           time.Duration
	// RetentionAge is how long the table keeps segments; 0: for ever, as far as a run
	// goes.
	RetentionAge time.Duration
	Retention    controller.RetentionTiming
	Validation   controller.ValidationTiming
	// When a snapshot of the metadata is due and when old ones go; zero values are the
	// defaults, by which hardly one is made in a run. SnapshotJitter is how long each
	// process waits at most before it makes one, SnapshotAsk how often a leader looks
	// whether one is due.
	Generation                  metalog.GenerationPolicy
	SnapshotRetention           metalog.RetentionPolicy
	SnapshotJitter, SnapshotAsk time.Duration
	// ChunkSlow is how long a chunk of a snapshot takes at most.
	ChunkSlow time.Duration
	// TailMax is how many entries ZooKeeper keeps; 0: all.
	TailMax int64
	// Faults are the mean times between them; they are switched off one by one to
	// shrink a run that failed.
	Faults  map[Fault]time.Duration
	without []Fault // left out of what the seed drew
	// sabotage, in tests of the simulator itself, does something to a node just
	// before it starts.
	sabotage func(*simNode)
}

// Fault is a kind of fault that falls by itself.
type Fault string

// The faults.
const (
	KillNode         Fault = "kill -9 of a node"
	CutNode          Fault = "power cut at a node"
	CutNodeInside    Fault = "power cut at a node within an operation"
	PauseNode        Fault = "node stopped for a while"
	KillController   Fault = "kill -9 of a controller"
	CutController    Fault = "power cut at a controller"
	CutControlInside Fault = "power cut at a controller within an operation"
	PauseController  Fault = "controller stopped for a while"
	CutLink          Fault = "link cut in one direction"
	Isolate          Fault = "process cut off"
	DeepAway         Fault = "deep store away"
	StreamDown       Fault = "stream away"
	BitRot           Fault = "bit rot in a copy"
	FullDisk         Fault = "full disk"
	ClockJump        Fault = "wall clock jumps"
	Trim             Fault = "stream trimmed at the front"
	ReplaceDisk      Fault = "disk replaced"
	WipeCache        Fault = "cache of the log dropped"
	Join             Fault = "node joins"
	Drain            Fault = "node drains"
	Vanish           Fault = "node gone for ever"
	Lie              Fault = "peer lies"
	NewConfig        Fault = "table config changed"
	ForceCommit      Fault = "force commit"
	Pause            Fault = "consumption paused"
	Release          Fault = "release asked"
	ExpireSession    Fault = "ZooKeeper session expired"
	ZooKeeperDown    Fault = "ZooKeeper away"
	BreakBuilder     Fault = "builder fails"
	LoseUpload       Fault = "upload acknowledged and lost"
	SlowReader       Fault = "reader lags"
	KillCommitter    Fault = "kill -9 of a committer"
	KillReporter     Fault = "kill -9 of a replica that has reported"
	DeleteTable      Fault = "another table made and deleted"
	RotSnapshot      Fault = "bit rot in a snapshot"
	RotLog           Fault = "bit rot in a copy of the log"
	CutInSnapshots   Fault = "power cut within work on snapshots"
	LoseLogs         Fault = "leader dies when no other controller has its log"
	DeleteObject     Fault = "object deleted behind our back"
)

// allFaults, in the order in which a seed draws them, with the mean times between
// which it draws.
var allFaults = []struct {
	fault  Fault
	lo, hi time.Duration
}{
	{KillNode, 20 * time.Second, 4 * time.Minute},
	{CutNode, 30 * time.Second, 6 * time.Minute},
	{CutNodeInside, 20 * time.Second, 4 * time.Minute},
	{PauseNode, time.Minute, 6 * time.Minute},
	{KillController, 30 * time.Second, 5 * time.Minute},
	{CutController, 40 * time.Second, 6 * time.Minute},
	{CutControlInside, 30 * time.Second, 5 * time.Minute},
	{PauseController, time.Minute, 6 * time.Minute},
	{CutLink, 30 * time.Second, 4 * time.Minute},
	{Isolate, time.Minute, 6 * time.Minute},
	{DeepAway, 2 * time.Minute, 10 * time.Minute},
	{StreamDown, 2 * time.Minute, 10 * time.Minute},
	{BitRot, 20 * time.Second, 4 * time.Minute},
	{FullDisk, 2 * time.Minute, 10 * time.Minute},
	{ClockJump, 30 * time.Second, 5 * time.Minute},
	{Trim, 40 * time.Second, 5 * time.Minute},
	{ReplaceDisk, 30 * time.Second, 4 * time.Minute},
	{WipeCache, time.Minute, 6 * time.Minute},
	{Join, 3 * time.Minute, 10 * time.Minute},
	{Drain, 3 * time.Minute, 15 * time.Minute},
	{Vanish, 5 * time.Minute, 20 * time.Minute},
	{Lie, 2 * time.Minute, 10 * time.Minute},
	{NewConfig, time.Minute, 6 * time.Minute},
	{ForceCommit, 30 * time.Second, 4 * time.Minute},
	{Pause, 2 * time.Minute, 8 * time.Minute},
	{Release, 10 * time.Second, 2 * time.Minute},
	{ExpireSession, time.Minute, 5 * time.Minute},
	{ZooKeeperDown, 2 * time.Minute, 8 * time.Minute},
	{BreakBuilder, 20 * time.Second, 3 * time.Minute},
	{LoseUpload, 20 * time.Second, 3 * time.Minute},
	{SlowReader, 10 * time.Second, 2 * time.Minute},
	{KillCommitter, 20 * time.Second, 3 * time.Minute},
	{KillReporter, 20 * time.Second, 3 * time.Minute},
	{DeleteTable, 30 * time.Second, 3 * time.Minute},
	{RotSnapshot, 10 * time.Second, 2 * time.Minute},
	{RotLog, 20 * time.Second, 4 * time.Minute},
	{CutInSnapshots, 10 * time.Second, 2 * time.Minute},
	{LoseLogs, 40 * time.Second, 4 * time.Minute},
	{DeleteObject, 5 * time.Second, 2 * time.Minute},
}

// NewPlan draws a plan.
func NewPlan(seed int64) *Plan {
	rnd := rand.New(rand.NewSource(seed ^ 0x5ea1))
	between := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(rnd.Int63n(int64(hi-lo)+1)) }
	rare := func(most float64) float64 {
		if rnd.Intn(2) == 0 {
			return 0
		}
		return rnd.Float64() * most
	}
	p := &Plan{
		Seed: seed, Controllers: 1, Nodes: 3 + rnd.Intn(4), Partitions: 1 + rnd.Intn(3),
		Replication: 2 + rnd.Intn(2), FaultFor: between(75*time.Second, 225*time.Second), HealFor: time.Hour,
		Hold: between(500*time.Millisecond, 3*time.Second), CommitTimeout: between(10*time.Second, time.Minute),
		MaxAge: between(10*time.Second, 90*time.Second), MaxRows: 5 + rnd.Int63n(25),
		DownloadMode: rnd.Intn(4) == 0, DeepStore: rnd.Intn(4) > 0,
		Download:   []meta.DownloadPolicy{meta.DeepStoreFirst, meta.PeersFirst, meta.BothAtOnce}[rnd.Intn(3)],
		OtherClass: rare(0.3),
		Produce:    between(500*time.Millisecond, 4*time.Second), Gaps: rare(0.2),
		FetchMax: between(100*time.Millisecond, time.Second), SealMax: between(50*time.Millisecond, 3*time.Second),
		DeepSlow: between(50*time.Millisecond, 5*time.Second),
		Net: netRates{
			drop: rare(0.05), double: rare(0.05), delayMin: time.Millisecond, delayMax: between(5*time.Millisecond, 100*time.Millisecond),
			slow: rare(0.05), slowMax: between(time.Second, 20*time.Second),
		},
		DeepBefore: rare(0.2), DeepAfter: rare(0.2),
		Faults: map[Fault]time.Duration{},
	}
	p.DeepAwayMax = between(30*time.Second, 4*time.Minute)
	if rnd.Intn(4) == 0 {
		p.DeepAwayMax = 6 * time.Hour // until the faults end
	}
	if rnd.Intn(3) == 0 {
		p.Partitions = 1 + rnd.Intn(8)
	}
	if rnd.Intn(2) == 0 {
		p.Controllers = 2 + rnd.Intn(2)
	}
	if p.DeepStore && rnd.Intn(4) == 0 {
		p.UploadWait = between(500*time.Millisecond, 5*time.Second)
	}
	// A calm run finds what a wild one hides: each has a share of the faults.
	share := rnd.Float64()
	for _, f := range allFaults {
		if f.fault == DeleteTable {
			break // it and what follows came later, and are drawn last
		}
		mean, taken := between(f.lo, f.hi), rnd.Float64() < share
		if taken {
			p.Faults[f.fault] = mean
		}
	}
	p.Retention = controller.RetentionTiming{
		Every: between(5*time.Second, 20*time.Second), Grace: between(10*time.Second, time.Minute), Keep: between(10*time.Second, 2*time.Minute),
	}
	if rnd.Intn(3) == 0 {
		p.RetentionAge = between(30*time.Second, 3*time.Minute)
	}
	if rnd.Intn(3) == 0 {
		p.Faults[DeleteTable] = between(30*time.Second, 3*time.Minute)
	}
	p.drawSnapshots(rnd, share, between)
	p.drawValidation(rnd, share, between)
	return p
}

// drawValidation has half of the plans look at everything many times in a run, ask after
// a short patience, and keep little in mind.
func (p *Plan) drawValidation(rnd *rand.Rand, share float64, between func(lo, hi time.Duration) time.Duration) {
	p.Validation = controller.DefaultValidation
	if rnd.Intn(2) == 0 {
		v := &p.Validation
		v.First, v.Every, v.Soon = between(time.Second, 10*time.Second), between(5*time.Second, 30*time.Second), between(time.Second, 5*time.Second)
		v.Manager.Patience, v.Manager.Poll = between(time.Second, 15*time.Second), between(500*time.Millisecond, 5*time.Second)
		v.Limits = validation.Limits{Pool: 1 + rnd.Intn(4), PerTable: 1 + rnd.Intn(3), Failing: 1 + rnd.Intn(2), Most: 1 + rnd.Intn(20)}
		v.Audit.Every = between(5*time.Second, 30*time.Second)
	}
	if p.DeepStore && rnd.Float64() < max(share, 0.6) {
		p.Faults[DeleteObject] = between(5*time.Second, 2*time.Minute)
	}
}

// drawSnapshots has half of the plans make many snapshots of the metadata, and draws the
// faults that have to do with them.
func (p *Plan) drawSnapshots(rnd *rand.Rand, share float64, between func(lo, hi time.Duration) time.Duration) {
	p.SnapshotJitter, p.SnapshotAsk = 10*time.Second, 10*time.Second
	if rnd.Intn(2) > 0 {
		return
	}
	p.Generation = metalog.GenerationPolicy{BytesMin: 2<<10 + rnd.Int63n(30<<10), AgeMax: between(10*time.Second, 90*time.Second)}
	p.SnapshotRetention = metalog.RetentionPolicy{
		BytesMax: 1<<10 + rnd.Int63n(100<<10), AgeMax: between(15*time.Second, 3*time.Minute), TrailingMin: 1 + rnd.Int63n(8<<10),
	}
	p.SnapshotJitter, p.SnapshotAsk = between(0, 10*time.Second), between(time.Second, 10*time.Second)
	if rnd.Intn(2) == 0 {
		p.TailMax = 8 + rnd.Int63n(150)
	}
	if rnd.Intn(2) == 0 {
		p.ChunkSlow = between(500*time.Millisecond, 10*time.Second)
	}
	if rnd.Intn(2) == 0 {
		p.Faults[WipeCache] = between(15*time.Second, time.Minute)
	}
	for _, f := range allFaults {
		switch f.fault {
		case RotSnapshot, RotLog, CutInSnapshots, LoseLogs:
			if mean := between(f.lo, f.hi); rnd.Float64() < max(share, 0.5) {
				p.Faults[f.fault] = mean
			}
		}
	}
}
