package zkmeta

import (
	"fmt"
	"strings"
	"testing"
)

// electionTable is a way into each state.
var electionTable = []struct {
	name  string
	setup string
}{
	{"CONNECTING", "t0 tick"},
	{"JOINING", "t0 opened 1"},
	{"JOINING (pause)", "t0 opened 1\nt0 created !"},
	{"JOINING (looks)", "t0 opened 1\nt0 created !\nt0.6 tick"},
	{"STANDING", "t0 opened 1\nt0 created 7"},
	{"STANDING (pause)", "t0 opened 1\nt0 created 7\nt0 line !"},
	{"WATCHING", standing + "t0 line a/3 me1/7"},
	{"WATCHING (looks)", standing + "t0 line a/3 me1/7\nt17 tick"},
	{"SYNCING", standing + "t0 line me1/7"},
	{"CATCHING_UP", standing + "t0 line me1/7\nt0 head 4 90 17"},
	{"WRITING_LEADER", standing + "t0 line me1/7\nt0 head 4 90 17\nt0 at 90 4"},
	{"LEADING", standing + leading},
	{"LEADING (looks)", standing + leading + "\nt7 pong 1 7\nt14 pong 1 14\nt17 tick"},
	{"RESIGNING", standing + leading + "\nt0 resign 5"},
	{"RESIGNING (pause)", standing + leading + "\nt0 resign 5\nt0 deleted !"},
	{"RESIGNING (stops)", standing + leading + "\nt0 stop"},
	{"RESTING", standing + leading + "\nt0 resign 5\nt0 deleted"},
	{"RETIRED", standing + leading + "\nt0 stop\nt0 deleted"},
}

const (
	standing = "t0 opened 1\nt0 created 7\n"
	leading  = "t0 line me1/7\nt0 head 4 90 17\nt0 at 90 4\nt0 written"
)

var electionInputs = []string{
	"tick", "opened 1", "opened 2", "lost 1", "back 1", "back 2", "expired 1", "expired 2", "pong 1 17", "pong 2 17",
	"created 9", "created !", "line me1/7", "line a/3 me1/7", "line a/3", "line !", "gone", "gone !",
	"head 4 90 17", "head !", "at 90 4", "at 91 4", "at 89 4", "at !", "written", "bad version", "unknown",
	"deleted", "deleted !", "resign 5", "resign 4", "resign", "stop",
}

// TestEveryElectionStateMeetsEveryEvent writes down what every state does about
// every event, before anything is due; what is not listed changes nothing. Then,
// what it does when all is due.
func TestEveryElectionStateMeetsEveryEvent(t *testing.T) {
	seen := map[string]bool{}
	var table strings.Builder
	for _, st := range electionTable {
		at := "0.3"
		if strings.HasSuffix(st.setup, "t17 tick") {
			at = "17.1"
		}
		for _, input := range electionInputs {
			note(&table, st.name, input, electionStep(t, st.name, st.setup, input, at, seen))
		}
		for _, input := range []string{"tick", "pong 1 59"} {
			note(&table, st.name, "late "+input, electionStep(t, st.name, st.setup, input, "60", seen))
		}
		table.WriteByte('\n')
	}
	for from, tos := range electionEdges {
		for _, to := range tos {
			if edge := fmt.Sprint(from, " → ", to); !seen[edge] {
				t.Errorf("no event takes the edge %s", edge)
			}
		}
	}
	golden(t, "testdata/election-table.txt", table.String())
}

func note(table *strings.Builder, state, input, out string) {
	if bare, _, _ := strings.Cut(state, " "); out != bare && out != "LEADING 5 until 8" && out != "LEADING 5 until 22" {
		fmt.Fprintf(table, "%-18s %-16s → %s\n", state, input, out)
	}
}

// electionStep returns what an input leads to after a set-up, and notes the
// edges that were taken.
func electionStep(t *testing.T, name, setup, input, at string, seen map[string]bool) string {
	t.Helper()
	s := newElectionScript()
	s.replay(setup)
	from := s.e.State()
	if bare, _, _ := strings.Cut(name, " "); from.String() != bare {
		t.Fatalf("the way into %s leads into %s", name, from)
	}
	out := s.run(parseSeconds(at), input)
	seen[fmt.Sprint(from, " → ", s.e.State())] = true
	return out
}
