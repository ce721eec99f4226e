package produce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/stream"
)

func TestRoundRobinInTheOrderOfTheInput(t *testing.T) {
	for name, text := range map[string]string{
		"plain":           "0\n1\n\n3\r\n4\n",
		"no last newline": "0\n1\n\n3\r\n4",
		"zipped":          zipped("0\n1\n\n3\r\n4\n"),
		"two members":     zipped("0\n1\n\n3", "\r\n4"),
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			got, err := produce(m, Config{}, file(t, "in", text), Options{})
			if err != nil || got.Rows != 5 || got.Skipped != 0 || got.InputBytes != int64(len(text)) {
				t.Fatalf("%+v, %v", got, err)
			}
			wantContents(t, m, "0\n3\r\n", "1\n4\n", "\n")
		})
	}
}

func TestADirectoryIsReadByName(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.ndjson": "3\n4", "a.jsonl.gz": zipped("1\n2"), "c.json": "5", ".hidden.json": "x", "README.md": "x"} {
		rewrite(t, filepath.Join(dir, name), text)
	}
	if err := os.Mkdir(filepath.Join(dir, "d.json"), 0o777); err != nil {
		t.Fatal(err)
	}
	m := vfs.NewMem()
	if _, err := produce(m, Config{Partitions: 1}, dir, Options{}); err != nil {
		t.Fatal(err)
	}
	wantContents(t, m, "1\n2\n3\n4\n5\n")
	in, err := OpenInput(dir, nil)
	if err != nil || !slices.Equal(in.Ignored, []string{"README.md", "d.json"}) {
		t.Fatalf("ignored %q, %v", in.Ignored, err)
	}
}

func TestKeySpreadsByTheFieldsValue(t *testing.T) {
	text := `{"k":"a","n":0}
{"n":1,"k":"\u0061"}
{"k":1}
{"k":"1"}
{"k":null}
{"o":{"k":"a"}}
not json
`
	m := vfs.NewMem()
	if _, err := produce(m, Config{Partitions: 64, Key: "k"}, file(t, "in", text), Options{}); err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for p, text := range contents(t, m) {
		for row := range strings.Lines(text) {
			at[strings.TrimSpace(row)] = p
		}
	}
	// Where a value goes must not change between versions: a replay relies on
	// it. Rows 4, 5 and 6 have no value and go by their number.
	want := map[string]int{`{"k":"a","n":0}`: at[`{"k":"a","n":0}`], `{"n":1,"k":"\u0061"}`: at[`{"k":"a","n":0}`],
		`{"k":1}`: keyOneNumber, `{"k":"1"}`: keyOneText, `{"k":null}`: 4, `{"o":{"k":"a"}}`: 5, `not json`: 6}
	for row, p := range want {
		if at[row] != p {
			t.Errorf("%s is in partition %d, want %d", row, at[row], p)
		}
	}

	s := newSpread(64, "o.k")
	if got := s.of(0, []byte(`{"o":{"k":"a"}}`)); got != at[`{"k":"a","n":0}`] {
		t.Errorf("a field within an object goes to %d", got)
	}
}

// Where 64 partitions by key have the values 1 and "1".
const (
	keyOneNumber = 36
	keyOneText   = 27
)

func TestAKilledProducerGoesOnExactly(t *testing.T) {
	for _, cfg := range []Config{{}, {Key: "k"}, {Key: "none", Partitions: 4}} {
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			in := file(t, "in.ndjson", numbered(600))
			whole := vfs.NewMem()
			if _, err := produce(whole, cfg, in, Options{}); err != nil {
				t.Fatal(err)
			}
			want := contents(t, whole)
			for seed := range int64(12) {
				rnd := rand.New(rand.NewSource(seed))
				m := killedAt(t, vfs.NewMem(), cfg, in, rnd)
				if rnd.Intn(2) == 0 { // and again while it goes on
					m = killedAt(t, m, cfg, in, rnd)
				}
				p, err := produce(m, cfg, in, Options{})
				if err != nil || p.Rows != 600 {
					t.Fatalf("seed %d: %+v, %v", seed, p, err)
				}
				wantContents(t, m, want...)
			}
		})
	}
}

// killedAt runs a producer until some operation on its files, and returns what
// is left: by a killed process everything written, maybe half of the last
// write; by a power cut less.
func killedAt(t *testing.T, m *vfs.Mem, cfg Config, in string, rnd *rand.Rand) *vfs.Mem {
	t.Helper()
	dead := errors.New("killed")
	left, kind := 1+rnd.Intn(40), rnd.Intn(3)
	var found *vfs.Mem
	fsys := vfs.WithFaults(m, func(op vfs.Op) error {
		if found != nil {
			return dead
		}
		if !op.Kind.Mutates() && !op.Kind.Durable() {
			return nil
		}
		if left--; left > 0 {
			return nil
		}
		switch kind {
		case 0:
			found = m.Clone()
		case 1:
			found = m.CrashClone(nil)
		default:
			found = m.CrashClone(rnd)
		}
		return dead
	})
	_, err := produce(fsys, cfg, in, Options{})
	if found == nil {
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if !errors.Is(err, dead) {
		t.Fatalf("%v does not say what happened", err)
	}
	return found
}

func TestARowTornByAKillIsCutAndWrittenAgain(t *testing.T) {
	m := vfs.NewMem()
	in := file(t, "in", "first\nsecond\nthird\n")
	if _, err := produce(m, Config{Partitions: 1}, in, Options{}); err != nil {
		t.Fatal(err)
	}
	f, err := m.OpenFile("s/"+stream.FileName(0), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(len("first\nsec"))); err != nil {
		t.Fatal(err)
	}
	f.Close()
	p, err := produce(m, Config{Partitions: 1}, in, Options{})
	if err != nil || p.Skipped != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	wantContents(t, m, "first\nsecond\nthird\n")
}

func TestWhichInputMayFollow(t *testing.T) {
	m := vfs.NewMem()
	cfg := Config{Partitions: 1}
	a, b := file(t, "a", "a1\na2\n"), file(t, "b", "b1\nb2\n")
	ok := func(in string, opts Options, want string) {
		t.Helper()
		if _, err := produce(m, cfg, in, opts); err != nil {
			t.Fatal(err)
		}
		wantContents(t, m, want)
	}
	refused := func(in string, opts Options) {
		t.Helper()
		before := contents(t, m)
		_, err := produce(m, cfg, in, opts)
		if e, ok := errors.AsType[*OtherInputError](err); !ok || e.Source != in {
			t.Fatalf("got %v", err)
		}
		wantContents(t, m, before...)
	}
	ok(a, Options{}, "a1\na2\n")
	ok(a, Options{}, "a1\na2\n")
	ok(a, Options{Append: true}, "a1\na2\n")
	refused(b, Options{})
	rewrite(t, a, "a1\na2\na3\n") // it has grown
	ok(a, Options{}, "a1\na2\na3\n")
	moved := file(t, "elsewhere", "a1\na2\na3\n")
	ok(moved, Options{}, "a1\na2\na3\n")
	ok(b, Options{Append: true}, "a1\na2\na3\nb1\nb2\n")
	ok(b, Options{}, "a1\na2\na3\nb1\nb2\n")
	ok(a, Options{}, "a1\na2\na3\nb1\nb2\n")
	rewrite(t, a, "a1\na2\na3\na4\n")
	refused(a, Options{})
	refused(a, Options{Append: true})
	rewrite(t, b, "b1\nchanged\n")
	refused(b, Options{})
	rewrite(t, b, "b1\n")
	refused(b, Options{})
}

func TestAnInputIsOfItsRowsAndNotOfItsBeginning(t *testing.T) {
	m := vfs.NewMem()
	same := strings.Repeat("x\n", headBytes)
	in := file(t, "in", same+"y\n")
	if _, err := produce(m, Config{}, in, Options{}); err != nil {
		t.Fatal(err)
	}
	rewrite(t, in, same+"zz\nz\n")
	_, err := produce(m, Config{}, in, Options{})
	if e, ok := errors.AsType[*MismatchError](err); !ok || e.File != filepath.Join(m.String(), "s", stream.FileName(1)) || e.Line != headBytes/3 {
		t.Fatalf("got %v", err)
	}
}

func TestTheSpreadOfAnInputStays(t *testing.T) {
	m := vfs.NewMem()
	ctx, cancel := context.WithCancel(t.Context())
	in := file(t, "in", numbered(600))
	_, err := produceFrom(ctx, m, Config{}, in, Options{Progress: func(Progress) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{Partitions: 4}, {Key: "k"}} {
		_, err := produce(m, cfg, in, Options{})
		if _, ok := errors.AsType[*SpreadChangedError](err); !ok {
			t.Fatalf("%+v: %v", cfg, err)
		}
	}
	p, err := produce(m, Config{Partitions: 3}, in, Options{})
	if err != nil || p.Rows != 600 {
		t.Fatalf("%+v, %v", p, err)
	}
}

func TestRowsOfUnknownOriginNeedAppend(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("s", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(m, "s/"+stream.FileName(0), []byte("theirs\ntorn")); err != nil {
		t.Fatal(err)
	}
	in := file(t, "in", "ours\n")
	if _, err := produce(m, Config{}, in, Options{}); err == nil {
		t.Fatal("no error")
	} else if _, ok := errors.AsType[*OtherInputError](err); !ok {
		t.Fatal(err)
	}
	if _, err := produce(m, Config{}, in, Options{Append: true}); err != nil {
		t.Fatal(err)
	}
	wantContents(t, m, "theirs\nours\n")
}

func TestAFullDiskLosesNothing(t *testing.T) {
	m := vfs.NewMem()
	in := file(t, "in", numbered(600))
	space := vfs.WithSpace(m, 1<<20)
	if _, err := produce(space, Config{}, in, Options{}); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "partition-") {
		t.Fatalf("got %v", err)
	}
	space.Add(1 << 30)
	if p, err := produce(space, Config{}, in, Options{}); err != nil || p.Rows != 600 || p.Skipped == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	whole := vfs.NewMem()
	if _, err := produce(whole, Config{}, in, Options{}); err != nil {
		t.Fatal(err)
	}
	wantContents(t, m, contents(t, whole)...)
}

func TestBadInputIsNamed(t *testing.T) {
	good := zipped("1\n2\n")
	long := zipped("1\n" + strings.Repeat("x", 3*partBytes))
	for name, c := range map[string]struct{ text, file, says, want string }{
		"not zipped":      {"1\n", "in.gz", "not gzip", ""},
		"cut short":       {good[:len(good)-9], "in.gz", "row 2 of it", "1\n2\n"},
		"garbage behind":  {good + "garbage!!!", "in.gz", "gzip: invalid header", "1\n2\n"},
		"cut in mid-row":  {long[:len(long)-9], "in.gz", "unexpected EOF", "1\n"},
		"empty and named": {"", "in.gz", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			in := file(t, c.file, c.text)
			_, err := produce(m, Config{Partitions: 1}, in, Options{})
			if c.says == "" {
				if err != nil {
					t.Fatal(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), in) {
				t.Fatalf("%v does not say %q and name %s", err, c.says, in)
			}
			wantContents(t, m, c.want)
		})
	}
	if _, err := OpenInput(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := OpenInput(t.TempDir(), nil); err == nil {
		t.Error("empty directory: no error")
	}
}

func TestAnOverlongRowIsPassedOn(t *testing.T) {
	long := `{"k":"` + strings.Repeat("l", 40<<20) + `"}`
	in := file(t, "in", "{\"k\":1}\n"+long+"\n{\"k\":1}\n")
	for _, cfg := range []Config{{Partitions: 1}, {Partitions: 1, Key: "k"}} {
		m, err := vfs.OS(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if p, err := produce(m, cfg, in, Options{}); err != nil || p.Rows != 3 {
			t.Fatalf("%+v, %v", p, err)
		}
		wantContents(t, m, "{\"k\":1}\n"+long+"\n{\"k\":1}\n")
	}
}

func TestStandardInputAppends(t *testing.T) {
	m := vfs.NewMem()
	if _, err := produce(m, Config{Partitions: 2}, file(t, "in", "a\nb\nc\n"), Options{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p, err := Open(m, Config{Path: "s"})
		if err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		in, err := OpenInput(Stdin, r)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := p.Run(t.Context(), in, Options{})
			done <- err
		}()
		for _, text := range []string{"1\n2", "2\n", "last"} {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(in.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
	// Rows 3, 4, 5 and then 6, 7, 8 of the stream, by turns.
	wantContents(t, m, "a\nc\n22\n1\nlast\n", "b\n1\nlast\n22\n")
}

func TestAWaitingInputHandsOnItsRowsAndEndsWithItsContext(t *testing.T) {
	m := vfs.NewMem()
	p, err := Open(m, Config{Path: "s", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r, w := io.Pipe()
	defer w.Close()
	in, err := OpenInput(Stdin, r)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	go io.WriteString(w, "{\"a\":1}\n{\"a\":2}\n{\"a\"")
	sample, err := in.Sample(t.Context(), 100)
	if err != nil || len(sample) < 2 || string(sample[1]) != `{"a":2}` {
		t.Fatalf("%q, %v", sample, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = p.Run(ctx, in, Options{Progress: func(now Progress) {
		if now.Rows == 2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	wantContents(t, m, "{\"a\":1}\n{\"a\":2}\n")
}

func TestSampleIsTheFirstRows(t *testing.T) {
	dir := t.TempDir()
	rewrite(t, filepath.Join(dir, "a.json.gz"), zipped("1\n2\n"))
	rewrite(t, filepath.Join(dir, "b.json"), "3\n4")
	in, err := OpenInput(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for rows, want := range []string{"", "1", "1 2", "1 2 3", "1 2 3 4", "1 2 3 4"} {
		sample, err := in.Sample(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range sample {
			got = append(got, string(row))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d rows: %q", rows, got)
		}
	}
}

func TestEmittedRowsAreThereAtOnce(t *testing.T) {
	m := vfs.NewMem()
	p, err := Open(m, Config{Path: "s", Partitions: 2, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	emit, err := p.Emitter("telemetry")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := emit([]byte(`{"k":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := emit([]byte("two\nrows")); err == nil {
		t.Error("a row of two lines is taken")
	}
	if got := strings.Join(contents(t, m), ""); got != "{\"k\":1}\n{\"k\":1}\n" {
		t.Fatalf("%q", got)
	}
	if _, err := Open(m, Config{Path: "s"}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second producer: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTheStreamIsReadAsItWasWritten(t *testing.T) {
	root := t.TempDir()
	fsys, err := vfs.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(fsys, Config{Path: "s"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := uuid.Parse(p.Epoch()); err != nil {
		t.Fatal(err)
	}
	in, err := OpenInput(file(t, "in", numbered(600)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), in, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	src, err := stream.OpenFiles(root, "s")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	parts, err := src.Partitions(t.Context())
	if err != nil || len(parts) != 3 {
		t.Fatal(parts, err)
	}
	for _, part := range parts {
		if part.End != 200 || part.Epoch != p.Epoch() {
			t.Errorf("%+v", part)
		}
	}
	// Opened again it is the same stream.
	again, err := Open(fsys, Config{Path: "s"})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Epoch() != p.Epoch() || again.Partitions() != 3 {
		t.Errorf("epoch %s, %d partitions", again.Epoch(), again.Partitions())
	}
}
