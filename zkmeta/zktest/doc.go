// Package zktest runs the real Apache ZooKeeper for tests, alone or as an
// ensemble, and puts faults between a client and a server, and between servers.
//
// It owns the processes, their files and ports, and two proxies: Proxy fails as
// networks do (cut, black hole, latency); WireProxy knows ZooKeeper's frames and
// fails one chosen request (its answer lost, the request itself lost, either of
// them late). It does not own a client: tests bring theirs.
//
// Everything listens on 127.0.0.1, on free ports below the range that the kernel
// gives to outgoing connections, so that a server comes back to its own port.
// No server outlives the process that started it.
//
// Start at Start and StartEnsemble (server.go, ensemble.go), which are for
// tests; Open and OpenGroup (process.go, group.go) are the same without a test,
// for commands, and return errors. Then proxy.go, peers.go, and wire.go with
// trap.go. Java and ZooKeeper come from the Debian package `zookeeper`; see
// Required.
package zktest
