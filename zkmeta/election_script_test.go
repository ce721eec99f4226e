package zkmeta

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

var rewrite = flag.Bool("rewrite", false, "record the answers of the files in testdata anew")

// A transcript is a text file whose lines read
//
//	t5 opened 1 → create me1 · JOINING
//
// an event to the left of the arrow (t5: at 5 s), the recorded actions and the
// state to the right. Lines that are empty or begin with # are for the reader.
// `go test ./zkmeta -run Transcripts -rewrite` records anew.
//
// The session timeout is 12 s: a leader leads for 8 s without an answer, pings
// every 2 s, tries again after 0.6 s, rests for 3 s, looks again after 16.4 s.
const (
	arrow       = " → "
	testTimeout = 12 * time.Second
)

var (
	testBoot = uuid.MustParse("6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c04")
	errTest  = errors.New("no answer")
)

// electionScript runs inputs:
//
//	opened 1, lost 1, back 1, expired 1      the session
//	pong 1 4.5                               session 1 answered what was sent at 4.5 s
//	created 7, created !                     our candidate got sequence 7; the outcome is unknown
//	line a/3 me1/7, line !                   the candidates; me2/7 is ours of the second candidacy
//	gone, gone !, deleted, deleted !
//	head 4 90 17, head !                     epoch, offset, version
//	at 90 4, at !                            offset, epoch
//	written, bad version, unknown
//	resign 5, resign, stop, tick
//
// A result answers the last action of its kind; after `late`, the one before.
type electionScript struct {
	e     *Election
	tries map[string][]uint64 // by kind of action
}

func newElectionScript() *electionScript {
	return &electionScript{
		e:     NewElection(ElectionConfig{Controller: "c1", BootID: testBoot, SessionTimeout: testTimeout}),
		tries: map[string][]uint64{},
	}
}

func (s *electionScript) run(now time.Duration, input string) string {
	input, late := strings.CutPrefix(input, "late ")
	actions := s.e.Step(now, s.event(strings.Fields(input), late))
	var out []string
	for _, a := range actions {
		out = append(out, s.note(a))
	}
	state := s.e.State().String()
	if s.e.Leading(now) {
		state += fmt.Sprintf(" %d until %s", s.e.Epoch(), seconds(s.e.Deadline()))
	}
	return strings.Join(append(out, state), " · ")
}

func (s *electionScript) event(w []string, late bool) ElectionEvent {
	var err error
	if last := w[len(w)-1]; last == "!" {
		err = errTest
	}
	arg := func(i int) int64 {
		if i >= len(w) || w[i] == "!" {
			return 0
		}
		return number(w[i])
	}
	try := func(kind string) uint64 {
		tries := s.tries[kind]
		if late {
			tries = tries[:len(tries)-1]
		}
		if len(tries) == 0 {
			return 1 << 40 // of nothing that was asked
		}
		return tries[len(tries)-1]
	}
	switch w[0] {
	case "opened":
		return SessionOpened{arg(1)}
	case "lost":
		return SessionLost{arg(1)}
	case "back":
		return SessionBack{arg(1)}
	case "expired":
		return SessionExpired{arg(1)}
	case "pong":
		return Ponged{arg(1), parseSeconds(w[2])}
	case "created":
		if err != nil {
			return CandidateCreated{Try: try("create"), Err: err}
		}
		return CandidateCreated{Try: try("create"), Name: fmt.Sprintf("%s%010d", s.e.prefix(), arg(1))}
	case "line":
		var names []string
		for _, n := range w[1:] {
			names = append(names, s.long(n))
		}
		if err != nil {
			names = nil
		}
		return Candidates{try("list"), names, err}
	case "gone":
		return CandidateGone{Try: try("watch"), Name: s.e.watched, Err: err}
	case "deleted":
		return CandidateDeleted{try("delete"), err}
	case "head":
		return HeadRead{try("read head"), Head{Epoch: arg(1), Offset: arg(2)}, int32(arg(3)), err}
	case "at":
		return CaughtUp{try("catch up"), arg(1), arg(2), err}
	case "written":
		return LeaderWritten{Try: try("write"), Outcome: Written}
	case "bad":
		return LeaderWritten{Try: try("write"), Outcome: BadVersion}
	case "unknown":
		return LeaderWritten{Try: try("write"), Err: errTest}
	case "resign":
		return Resign{Epoch: arg(1), Why: "poisoned"}
	case "stop":
		return Resign{Final: true, Why: "stop"}
	case "tick":
		return ElectionTick{}
	}
	panic(fmt.Sprintf("transcript: what is %q?", w))
}

func (s *electionScript) note(a ElectionAction) string {
	asked := func(kind string, try uint64, rest string) string {
		s.tries[kind] = append(s.tries[kind], try)
		return kind + rest
	}
	switch a := a.(type) {
	case CreateCandidate:
		return asked("create", a.Try, " "+strings.TrimSuffix(s.short(a.Prefix+"0"), "/0"))
	case DeleteCandidate:
		return asked("delete", a.Try, " "+s.short(a.Name))
	case ListCandidates:
		return asked("list", a.Try, "")
	case WatchCandidate:
		return asked("watch", a.Try, " "+s.short(a.Name))
	case ReadHead:
		return asked("read head", a.Try, "")
	case CatchUp:
		return asked("catch up", a.Try, fmt.Sprintf(" to %d", a.To.Offset))
	case WriteLeader:
		return asked("write", a.Try, fmt.Sprintf(" epoch %d at version %d", a.Epoch, a.Version))
	case StartLeading:
		return fmt.Sprintf("lead %d", a.Epoch)
	case StepDown:
		return fmt.Sprintf("step down from %d (%s)", a.Epoch, a.Why)
	case Ping:
		return fmt.Sprintf("ping %d", a.Session)
	}
	panic(fmt.Sprintf("transcript: what is a %T?", a))
}

// long makes a/3 and me1/7 the names of znodes; short is its inverse.
func (s *electionScript) long(name string) string {
	who, seq, ok := strings.Cut(name, "/")
	if !ok {
		return name
	}
	if n, mine := strings.CutPrefix(who, "me"); mine {
		return fmt.Sprintf("%s%s_%010d", s.e.bootPrefix(), n, number(seq))
	}
	return fmt.Sprintf("%s_%s_1_%010d", who, uuid.Nil, number(seq))
}

func (s *electionScript) short(name string) string {
	seq, _ := sequenceOf(name)
	if rest, mine := strings.CutPrefix(name, s.e.bootPrefix()); mine {
		n, _, _ := strings.Cut(rest, "_")
		return fmt.Sprintf("me%s/%d", n, seq)
	}
	who, _, _ := strings.Cut(name, "_")
	return fmt.Sprintf("%s/%d", who, seq)
}

// replay runs a transcript and returns it with the answers that came.
func (s *electionScript) replay(text string) string {
	var now time.Duration
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		input, _, _ := strings.Cut(line, strings.TrimRight(arrow, " "))
		input = strings.TrimSpace(input)
		if input == "" || input[0] == '#' {
			continue
		}
		at, rest, _ := strings.Cut(input, " ")
		next := parseSeconds(strings.TrimPrefix(at, "t"))
		if next < now {
			panic("transcript: time goes back: " + line)
		}
		now = next
		lines[i] = fmt.Sprintf("%-26s%s%s", input, arrow, s.run(now, rest))
	}
	return strings.Join(lines, "\n")
}

func TestElectionTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/[0-9]*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, file, newElectionScript().replay(string(text)))
		})
	}
}

// golden compares with a file, or records it anew.
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
	is, want := strings.Split(got, "\n"), strings.Split(string(data), "\n")
	for i := range max(len(is), len(want)) {
		var a, b string
		if i < len(is) {
			a = is[i]
		}
		if i < len(want) {
			b = want[i]
		}
		if a != b {
			t.Fatalf("%s, line %d:\n got %s\nwant %s", file, i+1, a, b)
		}
	}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("transcript: %q is not a number", s))
	}
	return n
}

func parseSeconds(s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(fmt.Sprintf("transcript: %q are not seconds", s))
	}
	return time.Duration(f * float64(time.Second)).Round(time.Millisecond)
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(time.Millisecond).Seconds(), 'f', -1, 64)
}
