package zkmeta

import (
	"fmt"
	"slices"
)

// ElectionState is what a controller does about leading.
type ElectionState uint8

// The states of an election.
const (
	Connecting    ElectionState = iota + 1 // there is no session
	Joining                                // a session, and no candidate known to be ours
	Standing                               // a candidate; its place in the line is to be looked up
	Watching                               // not the first: watches the one before
	Syncing                                // the first: reads the head, after a sync
	CatchingUp                             // brings its own image to exactly that head
	WritingLeader                          // the conditional Leader batch is under way
	Leading                                // it was written
	Resigning                              // out of office or never in: its candidate is being removed
	Resting                                // no candidate, for a moment, so that others come first
	Retired                                // for good: the process stops
)

var electionStateNames = map[ElectionState]string{
	Connecting: "CONNECTING", Joining: "JOINING", Standing: "STANDING", Watching: "WATCHING",
	Syncing: "SYNCING", CatchingUp: "CATCHING_UP", WritingLeader: "WRITING_LEADER", Leading: "LEADING",
	Resigning: "RESIGNING", Resting: "RESTING", Retired: "RETIRED",
}

func (s ElectionState) String() string { return electionStateNames[s] }

// electionEdges are the legal changes of state.
//
//	CONNECTING → JOINING → STANDING ⇄ WATCHING
//	                          ⇅          ↓
//	                       SYNCING ←─────┘
//	                          ↓
//	                       CATCHING_UP → WRITING_LEADER → LEADING
//
// A step of the take-over that fails goes back to STANDING, which looks whether
// it is still the first; so does a leader whose deadline passed. From every state
// an expired session leads to CONNECTING. What has a candidate can resign:
// RESIGNING → RESTING → JOINING, at the end of the line, or → RETIRED. A
// candidate that somebody else removed leads to RESTING as well.
var electionEdges = map[ElectionState][]ElectionState{
	Connecting:    {Joining, Retired},
	Joining:       {Standing, Connecting, Retired},
	Standing:      {Watching, Syncing, Resting, Resigning, Connecting},
	Watching:      {Standing, Syncing, Resting, Resigning, Connecting},
	Syncing:       {CatchingUp, Standing, Resigning, Connecting},
	CatchingUp:    {WritingLeader, Standing, Resigning, Connecting},
	WritingLeader: {Leading, Standing, Resigning, Connecting},
	Leading:       {Standing, Resting, Resigning, Connecting},
	Resigning:     {Resting, Connecting, Retired},
	Resting:       {Joining, Connecting, Retired},
}

// become is the only way to change state. An edge that is not in the table is a
// broken invariant of this package.
func (e *Election) become(s ElectionState) {
	if !slices.Contains(electionEdges[e.state], s) {
		panic(fmt.Sprintf("zkmeta: election of %s: %s → %s is not a legal edge", e.cfg.Controller, e.state, s))
	}
	e.state = s
}
