package commit

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// The tables in testdata say for every state and event what is answered and which
// state follows, in the notation of the transcripts; a replica's event that is
// not listed changes nothing. Each edge of the tables of legal edges is seen in
// them, and `become` panics on any other.

// tableState is a way into a state: the inputs that lead there.
type tableState struct {
	name  string
	setup []string
}

var completionTable = []tableState{
	{"(none)", nil},
	{"PARTIAL_CONSUMING", []string{"t1 st(s3,30,disk)"}},
	{"HOLDING", []string{"t1 c(s1,20)"}},
	{"HOLDING (s2 ahead)", []string{"t1 c(s1,20)", "t1 c(s2,40)"}},
	{"COMMITTER_DECIDED", []string{"t1 c(s1,20)", "t1 c(s2,40)", "t1 c(s3,30)"}},
	{"COMMITTER_NOTIFIED", []string{"t1 c(s1,20)", "t1 c(s2,40)", "t1 c(s3,30)", "t2 c(s2,40)"}},
	{"COMMITTER_UPLOADING", []string{"t1 c(s1,20)", "t1 c(s2,40)", "t1 c(s3,30)", "t2 c(s2,40)", "t2 cs(s2,40)"}},
	{"COMMITTING", []string{"t1 c(s1,20)", "t1 c(s2,40)", "t1 c(s3,30)", "t2 c(s2,40)", "t2 cs(s2,40)", "t2 ce(s2,40)"}},
	{"COMMITTED", []string{"done 40 d40 s2"}},
}

// s2 at 40 is the winner wherever there is one. t3 is in time for everything,
// t200 too late for everything.
var completionInputs = []string{
	"c(s2,40)", "c(s2,35)", "c(s2,45)", "c(s1,40)", "c(s1,20)", "c(s1,50)", "c(s1,20,rowLimit)", "c(s1,10,forceCommit)",
	"cs(s2,40)", "cs(s2,45)", "cs(s1,40)", "cs(s3,40)",
	"ce(s2,40)", "ce(s2,40,other)", "ce(s2,45)", "ce(s1,40)",
	"st(s2,40,disk)", "st(s1,20,disk)",
	"ex(s2,20)", "ex(s1,20)", "ex(s2,1801)",
	"written", "refused", "failed", "tick", "gone", "deposed http://c2",
}

func TestEveryCompletionStateMeetsEveryEvent(t *testing.T) {
	seen := map[string]bool{}
	var table strings.Builder
	for _, st := range completionTable {
		for _, input := range completionInputs {
			early := completionStep(st.setup, "t3 "+input, seen)
			late := completionStep(st.setup, "t200 "+input, seen)
			if early == late {
				fmt.Fprintf(&table, "%-20s %-27s → %s\n", st.name, input, early)
				continue
			}
			fmt.Fprintf(&table, "%-20s %-4s %-22s → %s\n", st.name, "t3", input, early)
			fmt.Fprintf(&table, "%-20s %-4s %-22s → %s\n", st.name, "t200", input, late)
		}
		table.WriteByte('\n')
	}
	// A segment that nobody has a row of ends by a write of its own.
	s := newControllerScript()
	replayInputs(s, []string{"replicas s1 s2", "t1 c(s1,0,forceCommit)"})
	m := s.c.Machine(testKey)
	replayInputs(s, []string{"t2 c(s2,0,forceCommit)"})
	seen[fmt.Sprint(Holding, " → ", m.State())] = true

	for from, tos := range completionEdges {
		for _, to := range tos {
			if edge := fmt.Sprint(from, " → ", to); !seen[edge] {
				t.Errorf("no event takes the edge %s", edge)
			}
		}
	}
	golden(t, "testdata/completion-table.txt", table.String())
}

// completionStep returns what an input leads to after a set-up, and notes the
// edge that the machine took.
func completionStep(setup []string, input string, seen map[string]bool) string {
	s := newControllerScript()
	s.facts.Start, s.pend = 10, true
	replayInputs(s, setup)
	m := s.c.Machine(testKey)
	if m == nil {
		return replayInputs(s, []string{input})
	}
	from := m.State()
	out := replayInputs(s, []string{input})
	if m.State() != from {
		seen[fmt.Sprint(from, " → ", m.State())] = true
	}
	return out
}

var replicaTable = []tableState{
	{"INITIAL_CONSUMING", []string{"t0 rows 5-14"}},
	{"INITIAL_CONSUMING (empty)", nil},
	{"HOLDING", []string{"t0 rows 5-24"}},
	{"HOLDING (empty)", []string{"t0 image endRequested"}},
	{"HOLDING (sealed)", []string{"t0 rows 5-24", "t0 COMMIT 25", "t1 sealed d25", "t1 FAILED", "t4 tick"}},
	{"HOLDING (seals)", []string{"t0 rows 5-24", "t0 COMMIT 25 1", "t2 tick", "t3 HOLD", "t6 tick"}},
	{"HOLDING (broken)", []string{"t0 rows 5-24", "t1 reader failed disk"}},
	{"CATCHING_UP", []string{"t0 rows 5-24", "t0 CATCH_UP 40"}},
	{"COMMITTING (seals)", []string{"t0 rows 5-24", "t0 COMMIT 25"}},
	{"COMMITTING (start)", []string{"t0 rows 5-24", "t0 COMMIT 25", "t1 sealed d25"}},
	{"COMMITTING (uploads)", []string{"t0 rows 5-24", "t0 COMMIT 25", "t1 sealed d25", "t1 COMMIT_CONTINUE"}},
	{"COMMITTING (end)", []string{"t0 rows 5-24", "t0 COMMIT 25", "t1 sealed d25", "t1 COMMIT_CONTINUE", "t1 uploaded uri"}},
	{"RETAINING (fills)", []string{"t0 rows 5-24", "t0 DISCARD 30 d30"}},
	{"RETAINING (seals)", []string{"t0 rows 5-24", "t0 KEEP 25 d25"}},
	{"RETAINING (downloads)", []string{"t0 rows 5-24", "t0 DISCARD 20 d20"}},
	{"ERROR", []string{"t0 rows 5-14", "t1 reader failed disk"}},
	{"COMMITTED", []string{"t0 rows 5-24", "t0 COMMIT 25", "t1 sealed d25", "t1 COMMIT_CONTINUE", "t1 uploaded uri", "t1 COMMIT_SUCCESS"}},
	{"RETAINED", []string{"t0 rows 5-24", "t0 KEEP 25 d25", "t1 sealed d25"}},
	{"DISCARDED", []string{"t0 rows 5-24", "t0 DISCARD 20 d20", "t1 downloaded d20"}},
}

var replicaInputs = []string{
	"rows 25-50", "reader at 30", "reader failed disk", "partition ended", "tick",
	"image", "image gone", "image endRequested", "image attempt=1", "image epoch=2",
	"image done=25 digest=d25 by=s1", "image done=20 digest=d20 by=s2", "image done=30 digest=d30 by=s2",
	"HOLD", "FAILED", "NOT_LEADER", "no answer", "PROCESSED", "CATCH_UP 30", "COMMIT 25", "COMMIT_CONTINUE", "COMMIT_SUCCESS",
	"KEEP 25 d25", "DISCARD 20 d20",
	"sealed d25", "seal failed disk", "uploaded uri", "downloaded d25", "no source",
}

func TestEveryReplicaStateMeetsEveryEvent(t *testing.T) {
	seen := map[string]bool{}
	var table strings.Builder
	for _, st := range replicaTable {
		for _, input := range replicaInputs {
			s := newReplicaScript()
			s.cfg.Start, s.cfg.MaxRows, s.cfg.UploadWait = 5, 20, 5*time.Second
			replayInputs(s, st.setup)
			from := s.machine().State()
			if name, _, _ := strings.Cut(st.name, " "); from.String() != name {
				t.Fatalf("the way into %s leads into %s", st.name, from)
			}
			out := replayInputs(s, []string{"t7 " + input})
			if out != from.String() {
				fmt.Fprintf(&table, "%-26s %-31s → %s\n", st.name, input, out)
			}
			if to := s.r.State(); to != from {
				seen[fmt.Sprint(from, " → ", to)] = true
			}
		}
		table.WriteByte('\n')
	}
	for from, tos := range replicaEdges {
		for _, to := range tos {
			if edge := fmt.Sprint(from, " → ", to); !seen[edge] {
				t.Errorf("no event takes the edge %s", edge)
			}
		}
	}
	golden(t, "testdata/replica-table.txt", table.String())
}

// replayInputs runs inputs and returns what came of the last one.
func replayInputs(in interpreter, inputs []string) (out string) {
	var now time.Duration
	for _, input := range inputs {
		if at, ok := clock(input); ok {
			now = at
			_, input, _ = strings.Cut(input, " ")
		}
		out = in.run(now, input)
	}
	return out
}

// golden compares got with a recorded file, or records it.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(data), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("%s, line %d:\n got %s\nwant %s", file, i+1, line, append(want, "")[min(i, len(want))])
		}
	}
}
