package commit

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

var rewrite = flag.Bool("rewrite", false, "record the answers of the transcripts in testdata anew")

// A transcript is a text file whose lines read
//
//	t5 c(s1,20) → HOLD · HOLDING
//
// the input to the left of the arrow in the notation of PROTOCOL §6 (t5: at 5 s),
// the recorded answer to the right. Lines that are empty or begin with # are
// for the reader. `go test ./commit -run Transcript -rewrite` records anew.
const arrow = " → "

// interpreter runs one input line at a time and says what came of it; "" for
// lines that only set something up.
type interpreter interface {
	run(now time.Duration, input string) string
}

func TestControllerTranscripts(t *testing.T) {
	runTranscripts(t, "testdata/[0-9]*.txt", func() interpreter { return newControllerScript() })
}

func TestReplicaTranscripts(t *testing.T) {
	runTranscripts(t, "testdata/replica-*.txt", func() interpreter { return newReplicaScript() })
}

func runTranscripts(t *testing.T, glob string, start func() interpreter) {
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts match %s (%v)", glob, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "-table.txt") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(data), start())
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(string(data), "\n")
			for i, line := range strings.Split(got, "\n") {
				if line != want[i] {
					t.Errorf("line %d:\n got %s\nwant %s", i+1, line, want[i])
				}
			}
		})
	}
}

// replay runs a transcript and returns it with the answers that came.
func replay(t *testing.T, text string, in interpreter) string {
	var now time.Duration
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		input, _, _ := strings.Cut(line, arrow)
		input = strings.TrimSpace(strings.TrimSuffix(input, strings.TrimSpace(arrow)))
		if input == "" || input[0] == '#' {
			continue
		}
		rest := input
		if at, ok := clock(input); ok {
			if at < now {
				t.Fatalf("line %d: time goes back: %s", i+1, line)
			}
			now = at
			_, rest, _ = strings.Cut(input, " ")
		}
		if out := in.run(now, strings.TrimSpace(rest)); out != "" {
			input = fmt.Sprintf("%-28s%s%s", input, arrow[:len(arrow)-1], " "+out)
		}
		lines[i] = input
	}
	return strings.Join(lines, "\n")
}

// clock reads the t5 or t8.3 that a line may begin with.
func clock(input string) (time.Duration, bool) {
	word, _, _ := strings.Cut(input, " ")
	if !strings.HasPrefix(word, "t") {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(word[1:], 64)
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond), err == nil
}

// call reads name(a,b,c).
func call(input string) (name string, args []string) {
	name, rest, ok := strings.Cut(strings.TrimSuffix(input, ")"), "(")
	if ok {
		args = strings.Split(rest, ",")
	}
	return name, args
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("transcript: %q is not a number", s))
	}
	return n
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// digestOf gives a short name in a transcript a digest, and nameOf finds the
// name again.
func digestOf(name string) (d segment.Digest) {
	copy(d[:], name)
	return d
}

func nameOf(d segment.Digest) string { return strings.TrimRight(string(d[:]), "\x00") }

var (
	testTable = uuid.MustParse("6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c01")
	testStore = uuid.MustParse("6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c02")
	testKey   = Key{Table: testTable, Partition: 3, Seq: 7}
)

const testSegment = "flights__3__7__20261101T000000Z"

// settings reads the k=v words of a line; a word without = is a flag.
func settings(words []string) map[string]string {
	out := map[string]string{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		out[k] = v
	}
	return out
}

// replyText prints a reply as PROTOCOL does: COMMIT 40, DISCARD 40 d.
func replyText(r Reply) string {
	s := string(r.Status)
	if r.Offset != 0 {
		s += " " + strconv.FormatInt(r.Offset, 10)
	}
	if r.BuildTimeSec != 0 {
		s += fmt.Sprintf(" (B=%d)", r.BuildTimeSec)
	}
	if !r.Digest.IsZero() {
		s += " " + nameOf(r.Digest)
	}
	if r.Leader != "" {
		s += " " + r.Leader
	}
	return s
}
