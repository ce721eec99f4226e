package commit

import (
	"fmt"
	"slices"
)

// ReplicaState is a state of the replica's machine.
type ReplicaState uint8

// The states of the replica's machine.
const (
	InitialConsuming  ReplicaState = iota + 1 // appending rows until a criterion is met
	ReplicaHolding                            // stopped; asks the leader, waits, asks again
	CatchingUp                                // told to go on to exactly one offset
	ReplicaCommitting                         // told COMMIT: seals, commitStart, commitEnd
	ReplicaCommitted                          // the leader wrote it
	Retaining                                 // committed elsewhere; getting to a file with the committed digest
	Retained                                  // the own file is the committed one
	Discarded                                 // a downloaded file is, or the segment is not ours any more
	ReplicaError                              // will not go on; waits for a higher attempt or a committed end
)

var replicaStateNames = map[ReplicaState]string{
	InitialConsuming: "INITIAL_CONSUMING", ReplicaHolding: "HOLDING", CatchingUp: "CATCHING_UP",
	ReplicaCommitting: "COMMITTING", ReplicaCommitted: "COMMITTED", Retaining: "RETAINING",
	Retained: "RETAINED", Discarded: "DISCARDED", ReplicaError: "ERROR",
}

func (s ReplicaState) String() string { return replicaStateNames[s] }

// replicaEdges are the legal changes of state. The docs print this table. The
// image can show the segment DONE, or gone, in any state but the last three.
var replicaEdges = map[ReplicaState][]ReplicaState{
	InitialConsuming:  {ReplicaHolding, ReplicaError, Retaining, Discarded},
	ReplicaHolding:    {InitialConsuming, CatchingUp, ReplicaCommitting, ReplicaError, Retaining, Discarded},
	CatchingUp:        {ReplicaHolding, ReplicaError, Retaining, Discarded},
	ReplicaCommitting: {ReplicaHolding, ReplicaCommitted, ReplicaError, Retaining, Discarded},
	Retaining:         {Retained, Discarded},
	ReplicaError:      {InitialConsuming, Retaining, Discarded},
}

// become is the only way to change state. An edge that is not in the table is a
// broken invariant of this package.
func (r *Replica) become(s ReplicaState) {
	if !slices.Contains(replicaEdges[r.state], s) {
		panic(fmt.Sprintf("commit: replica of %s: %s → %s is not a legal edge", r.cfg.Key, r.state, s))
	}
	r.state = s
}
