package up

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// at is a look at a partition of which three replicas have read to offset.
func at(n int32, committed, offset int64) partitionLook {
	p := partitionLook{PartitionCoverage: meta.PartitionCoverage{Partition: n, NextOffset: committed}, state: meta.PartitionConsuming}
	for _, id := range []string{"node-1", "node-2", "node-3"} {
		p.readers = append(p.readers, reader{node: id, offset: offset, state: "INITIAL_CONSUMING"})
	}
	return p
}

func lookAt(ps ...partitionLook) *tableLook { return &tableLook{partitions: ps} }

func TestSealing(t *testing.T) {
	lagging := at(0, 0, 10)
	lagging.readers[1].offset = 7
	silent := at(0, 0, 10)
	silent.readers[2] = reader{node: "node-3", offset: -1, state: "not consuming yet"}
	nobody := at(0, 0, 10)
	nobody.readers = nil
	laggingCommitted := at(0, 10, 7)
	failing, hopeless, paused := at(0, 0, 3), at(0, 0, 3), at(0, 0, 3)
	failing.state, failing.lastError = meta.PartitionError, "node-1: line 3 is too large"
	hopeless.state, hopeless.lastError, hopeless.attempt = meta.PartitionError, "node-1: line 3 is too large", 1
	paused.state = meta.PartitionPaused
	absent := partitionLook{PartitionCoverage: meta.PartitionCoverage{NextOffset: -1}}
	oneCopy, noBackup := at(0, 10, 10), at(0, 10, 10)
	oneCopy.UnderReplicated, noBackup.NotInDeepStore = 1, 2

	for _, test := range []struct {
		name    string
		lines   []int64
		look    *tableLook
		job     meta.JobState // "" is none
		waiting string        // part of what it waits for
		force   bool
		done    bool
		failed  string
	}{
		{name: "the table does not have all partitions", lines: []int64{10, 5}, look: lookAt(at(0, 0, 10)), waiting: "1 of 2 partitions"},
		{name: "a partition without a record", lines: []int64{10}, look: lookAt(absent), waiting: "partition 0 to be in the table"},
		{name: "a replica lags: nobody is asked to end yet", lines: []int64{10}, look: lookAt(lagging), waiting: "node-2 to read partition 0: 7 of 10 rows"},
		{name: "a replica that is UP does not say", lines: []int64{10}, look: lookAt(silent), waiting: "node-3"},
		{name: "no replica is UP", lines: []int64{10}, look: lookAt(nobody), waiting: "a replica of partition 0 to be UP"},
		{name: "a partition is paused", lines: []int64{10}, look: lookAt(paused), waiting: "PAUSED"},
		{name: "all have read to the end", lines: []int64{10}, look: lookAt(at(0, 0, 10)), waiting: "partition 0 to be committed: 0 of 10", force: true},
		{name: "the force commit is under way", lines: []int64{10}, look: lookAt(at(0, 0, 10)), job: meta.JobRunning, waiting: "to be committed"},
		{name: "it is over and left rows behind", lines: []int64{10}, look: lookAt(at(0, 4, 10)), job: meta.JobDone, waiting: "4 of 10", force: true},
		{name: "it failed", lines: []int64{10}, look: lookAt(at(0, 4, 10)), job: meta.JobFailed, waiting: "4 of 10", force: true},
		{name: "committed to the end although a replica lags", lines: []int64{10}, look: lookAt(laggingCommitted), done: true},
		{name: "a copy is missing", lines: []int64{10}, look: lookAt(oneCopy), job: meta.JobDone, waiting: "all copies of 1 segment of partition 0"},
		{name: "a backup is missing", lines: []int64{10}, look: lookAt(noBackup), waiting: "deep-store copy of 2 segments"},
		{name: "an empty partition has nothing to wait for", lines: []int64{10, 0}, look: lookAt(at(0, 10, 10), at(1, 0, 0)), done: true},
		{name: "an empty partition beside one that is open", lines: []int64{10, 0}, look: lookAt(at(0, 0, 10), at(1, 0, 0)), waiting: "partition 0 to be committed", force: true},
		{name: "no rows at all", lines: []int64{0}, look: lookAt(at(0, 0, 0)), done: true},
		{name: "a partition stopped for the first time", lines: []int64{10}, look: lookAt(failing), waiting: "line 3 is too large"},
		{name: "a partition stopped again", lines: []int64{10}, look: lookAt(hopeless), failed: "line 3 is too large"},
		{name: "a partition stopped again, and another is not sealed yet", lines: []int64{10, 10}, look: lookAt(hopeless, at(1, 0, 10)), waiting: "partition 1 to be committed", force: true},
		{name: "a partition stopped again, and the other is sealed", lines: []int64{10, 10}, look: lookAt(hopeless, at(1, 10, 10)), failed: "partition 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := sealing{lines: test.lines}
			if test.job != "" {
				s.job = uuid.MustParse("00000000-0000-0000-0000-000000000001")
			}
			v := s.judge(test.look, test.job)
			if v.forceCommit != test.force || v.done != test.done ||
				!strings.Contains(strings.Join(v.failed, "; "), test.failed) || (len(v.failed) == 0) != (test.failed == "") {
				t.Errorf("got %+v", v)
			}
			if (len(v.waiting) == 0) != (test.waiting == "") || !strings.Contains(strings.Join(v.waiting, "; "), test.waiting) {
				t.Errorf("waits for %q, want %q", v.waiting, test.waiting)
			}
		})
	}
}

// What is judged done is never also waited for, and a force commit never asked
// for before all replicas have read to the end.
func TestSealingAsksForNothingTooEarly(t *testing.T) {
	for _, committed := range []int64{0, 5, 10} {
		for _, offset := range []int64{-1, 0, 5, 9, 10, 11} {
			for _, job := range []meta.JobState{"", meta.JobRunning, meta.JobDone} {
				s := sealing{lines: []int64{10}}
				if job != "" {
					s.job = uuid.New()
				}
				v := s.judge(lookAt(at(0, committed, offset)), job)
				read := committed >= 10 || offset >= 10
				if v.forceCommit && (!read || committed >= 10) || v.done != (committed >= 10) || v.done && len(v.waiting) > 0 {
					t.Errorf("committed %d, read %d, job %q: %+v", committed, offset, job, v)
				}
			}
		}
	}
	if waiting := (&sealing{lines: []int64{1}}).unread(lookAt(at(0, 0, 0))); !slices.ContainsFunc(waiting, func(s string) bool { return strings.Contains(s, "node-3") }) {
		t.Errorf("not every replica is named: %q", waiting)
	}
}
