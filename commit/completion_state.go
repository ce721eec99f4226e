package commit

import (
	"fmt"
	"slices"
)

// CompletionState is a state of the controller's machine.
type CompletionState uint8

// The states of the controller's machine.
const (
	PartialConsuming   CompletionState = iota + 1 // the first message was a stop
	Holding                                       // collecting reports
	CommitterDecided                              // a winner is picked, it does not know yet
	CommitterNotified                             // it was told COMMIT and seals
	CommitterUploading                            // it has sealed (the name is the original's)
	Committing                                    // the metadata write is in flight
	Committed                                     // the record is DONE
	Aborted                                       // the round is over, nothing was committed
)

var completionStateNames = map[CompletionState]string{
	PartialConsuming: "PARTIAL_CONSUMING", Holding: "HOLDING", CommitterDecided: "COMMITTER_DECIDED",
	CommitterNotified: "COMMITTER_NOTIFIED", CommitterUploading: "COMMITTER_UPLOADING",
	Committing: "COMMITTING", Committed: "COMMITTED", Aborted: "ABORTED",
}

func (s CompletionState) String() string { return completionStateNames[s] }

// completionEdges are the legal changes of state. The docs print this table.
// HOLDING → COMMITTING is the batch that ends a segment without rows.
var completionEdges = map[CompletionState][]CompletionState{
	PartialConsuming:   {Holding},
	Holding:            {CommitterDecided, Committing},
	CommitterDecided:   {CommitterNotified, Aborted},
	CommitterNotified:  {CommitterUploading, Aborted},
	CommitterUploading: {Committing, Aborted},
	Committing:         {Committed, Aborted},
}

// become is the only way to change state. An edge that is not in the table is a
// broken invariant of this package.
func (c *Completion) become(s CompletionState) {
	if !slices.Contains(completionEdges[c.state], s) {
		panic(fmt.Sprintf("commit: completion of %s: %s → %s is not a legal edge", c.key, c.state, s))
	}
	c.state = s
}
