// Package sim runs a whole cluster of Shoal in one goroutine, on virtual time,
// under faults that a seed draws: the same seed is the same history, event for
// event.
//
// What runs is real: the machines of commit, internal/controller, internal/node,
// zkmeta and metalog (writer, fetch table, follower, snapshots), the planner of peerdl,
// the functions and the image of meta; and below them the segment store and the
// metadata log with its snapshots on files, which are the real ones on a disk in memory
// that forgets what was not fsynced. Modelled are the network, the disks, the stream, ZooKeeper,
// the deep store, the clocks, and the shells: the goroutines that carry actions out
// are here events in a heap. docs/simulation.md says what that leaves out.
//
// A run has two phases. In the first, faults fall, and whatever changes is checked
// at once against the invariants I1 to I5 of DESIGN §9 (check*.go). Then everything
// is mended, and the cluster has a bounded virtual time to come to rest as I6 says.
//
// Start at world.go (time, chance, processes), then cluster.go (what there is),
// node.go and controller.go (the shells), plan.go and faults.go (what the seed
// draws), run.go (a run from its seed to its result). It imports everything and is
// imported by nothing but its command, internal/sim/simulate.
package sim
