// Package zkmeta keeps the metadata of many controllers in ZooKeeper: who leads, the
// tail of the log, and every record as a znode that people can read (DESIGN §4.3).
//
// It owns
//
//   - the connection (conn.go and conn_*.go: a session, calls with a time-out and a
//     certain outcome; hosts.go and address.go: where the servers are; clock_linux.go:
//     time that goes on while the machine sleeps);
//   - the tree (docs/format/zookeeper.md draws it; paths.go has the names, tree.go what
//     a batch does to the record znodes, head.go the fence, found.go whose tree it is);
//   - the log device of a leader (device.go, device_plan.go: the one multi of an append;
//     batchsize.go: how large a batch may be) and what others read of it (tail.go,
//     rebuild.go);
//   - the election (election.go and election_*.go, a machine; elector.go, its shell);
//   - moving metadata into such a tree and out of it (migrate.go and migrate_*.go), and
//     telling what is wrong with an address (probe.go and probe_*.go).
//
// It does not own the records (package meta), the writer that makes batches of changes
// (package metalog), nor what a leader decides (package controller).
//
// Election is pure: Step(now, event) answers with actions for the shell to carry out,
// and an effect's result comes back as another event. It has no clock, no goroutine, no
// I/O and no chance, so that the simulator can run it against a model of ZooKeeper.
// `now` is monotonic time since a moment that the process fixed once, on a clock
// that goes on while the machine is suspended (CLOCK_BOOTTIME): a leader that
// slept must find its deadline passed.
//
// To know how metadata is written, start at Device in device.go. To know who may write
// it, start at election_state.go, which draws the states, then election_io.go, which
// has the driving contract, then election.go; election_queue.go has the line of
// candidates.
package zkmeta
