// Package e2e holds the tests that need a whole cluster: a controller and nodes
// as they are run, with real HTTP between them, files on a real disk, and the
// coverage proof at the end. It has no code of its own and nothing imports it.
//
// What a test of one package can show is shown there. Here is what only shows
// when all of it runs: processes that die by SIGKILL at any moment
// (kill_test.go) or are paused (pause_test.go), bytes that are gone or could be taken for gone
// (deletions_test.go), bytes that are not what they should be (damage_test.go),
// and whatever people and disks hand in (badinput_test.go, directory_test.go,
// diskfull_linux_test.go). With several controllers and the real ZooKeeper it is
// faults_test.go, failover_test.go and, with metadata that have grown large,
// scale_test.go; league_test.go puts them together. What snapshots cost then, and
// spare, is measured in snapshotscale_test.go and the files beside it.
//
// A process of a cluster is this test binary, run again: see TestMain and
// process_test.go. Start reading with fleet_test.go, which puts processes
// together, then proof_test.go for what must be true in the end.
package e2e
