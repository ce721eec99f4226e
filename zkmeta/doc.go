// Package zkmeta keeps the metadata of many controllers in ZooKeeper: who leads,
// and the tail of the log (DESIGN §4.3).
//
// It owns Election, the machine of one controller's leadership. Election is
// pure: Step(now, event) answers with actions for a shell to carry out, and an
// effect's result comes back as another event. It has no clock, no goroutine, no
// I/O and no chance, so that the simulator can run it against a model of
// ZooKeeper.
//
// It does not own the records (package meta), nor what a leader decides (package
// controller).
//
// `now` is monotonic time since a moment that the process fixed once, on a clock
// that goes on while the machine is suspended (CLOCK_BOOTTIME): a leader that
// slept must find its deadline passed.
//
// Start reading at election_state.go, which draws the states, then
// election_io.go, which has the driving contract, then election.go;
// election_queue.go has the line of candidates.
package zkmeta
