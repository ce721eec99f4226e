package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is what a run shows. Whoever waits for a text is told once it is there.
type output struct {
	mu   sync.Mutex
	text strings.Builder
	want string
	seen chan struct{}
	then func() // called before the run goes on; nil: nothing is
}

func newOutput(want string) *output { return &output{want: want, seen: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if o.want != "" && strings.Contains(o.text.String(), o.want) {
		o.want = ""
		close(o.seen)
		if o.then != nil {
			o.then()
		}
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// rowsFile writes NDJSON of n rows, numbered from first.
func rowsFile(t *testing.T, first, n int) string {
	t.Helper()
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"n":%d,"name":"row %d","even":%v,"at":"2026-01-02T03:04:05Z"}`+"\n", first+i, first+i, i%2 == 0)
	}
	name := filepath.Join(t.TempDir(), "rows.ndjson")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func testConfig(t *testing.T) Config {
	return Config{Data: t.TempDir(), Nodes: 2, Table: "t", Partitions: 2, MaxRows: 40, UntilSealed: true}
}

// sealed runs until everything is sealed, and checks the proof.
func sealed(t *testing.T, cfg Config, rows int64) string {
	t.Helper()
	out := newOutput("")
	res, err := Run(t.Context(), cfg, out, testLog(t))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !res.Complete || res.Stopped || res.Coverage == nil {
		t.Fatalf("%+v\n%s", res, out)
	}
	var got int64
	for _, p := range res.Coverage.Partitions {
		got += p.Rows
		if p.NextOffset != p.StreamEnd || p.Rows != p.NextOffset || p.UnderReplicated+p.NotInDeepStore > 0 {
			t.Errorf("partition %+v", p)
		}
	}
	if got != rows {
		t.Fatalf("%d rows are sealed, want %d\n%s", got, rows, out)
	}
	return out.String()
}

func testLog(t *testing.T) zerolog.Logger { return zerolog.New(zerolog.NewTestWriter(t)) }

// stopAt runs until the output says what, and ends the context right there, as Ctrl-C does:
// a moment later all may be sealed.
func stopAt(t *testing.T, cfg Config, what string) (Result, string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := newOutput(what)
	out.then = cancel
	res, err := Run(ctx, cfg, out, testLog(t))
	return res, out.String(), err
}

func TestUntilSealedAndAgain(t *testing.T) {
	cfg := testConfig(t)
	cfg.Input = rowsFile(t, 0, 200)
	first := sealed(t, cfg, 200)
	for _, want := range []string{"n int64, name string, even bool, at timestamp", "inferred from the first 200 rows", "segments of 40 rows", "200 rows in", "complete"} {
		if !strings.Contains(first, want) {
			t.Errorf("the output does not say %q:\n%s", want, first)
		}
	}
	for _, dir := range []string{"controller", "node-1", "node-2", "stream/t", "deepstore/t"} {
		if !isDir(filepath.Join(cfg.Data, dir)) {
			t.Errorf("there is no %s", dir)
		}
	}

	// The same command again has nothing to do, and knows the nodes by itself.
	cfg.Nodes, cfg.Partitions = 0, 0
	if again := sealed(t, cfg, 200); !strings.Contains(again, "read before") && !strings.Contains(again, "0 of them new") {
		t.Errorf("it does not say that all was there:\n%s", again)
	}

	// Another input is refused unless it is to be appended.
	other := cfg
	other.Input = rowsFile(t, 200, 10)
	var refused *OtherInputError
	res, err := Run(t.Context(), other, newOutput(""), testLog(t))
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "--append") || res.Complete {
		t.Fatalf("another input: got %+v, %v", res, err)
	}
	other.Append = true
	sealed(t, other, 210)

	// Standard input always appends.
	stdin := cfg
	stdin.Input, stdin.Stdin = "-", strings.NewReader("{\"n\":1}\nnot json\n{\"n\":2}")
	sealed(t, stdin, 213)

	// What would be ignored is refused.
	changed := cfg
	changed.MaxRows = 41
	var faults config.Faults
	if _, err := Run(t.Context(), changed, newOutput(""), testLog(t)); !errors.As(err, &faults) || !strings.Contains(err.Error(), "--max-rows") {
		t.Errorf("another --max-rows for a table that is there: %v", err)
	}
}

func TestStoppedAndContinued(t *testing.T) {
	cfg := testConfig(t)
	cfg.Input = rowsFile(t, 0, 300)
	cfg.UntilSealed = false
	res, out, err := stopAt(t, cfg, "the cluster goes on")
	if err != nil || !res.Stopped || res.Complete || !strings.Contains(out, "300 rows of t are on disk") {
		t.Fatalf("got %+v, %v\n%s", res, err, out)
	}

	// A crash of the producer left half a line; rows came to the input.
	part := filepath.Join(cfg.Data, "stream/t/partition-00001.ndjson")
	f, err := os.OpenFile(part, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"n":1`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile(rowsFile(t, 300, 25))
	if err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(cfg.Input)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg.Input, append(old, more...), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.UntilSealed = true
	if out := sealed(t, cfg, 325); !strings.Contains(out, "325 rows, 25 of them new") {
		t.Errorf("it does not say what was new:\n%s", out)
	}
}

func TestStoppedBeforeItIsSealed(t *testing.T) {
	cfg := testConfig(t)
	cfg.Input = rowsFile(t, 0, 50)
	res, out, err := stopAt(t, cfg, "reading ")
	if err != nil || !res.Stopped || res.Complete || res.Coverage != nil {
		t.Fatalf("got %+v, %v\n%s", res, err, out)
	}
	sealed(t, cfg, 50)
}

func TestTelemetry(t *testing.T) {
	res, out, err := stopAt(t, Config{Data: t.TempDir(), Nodes: 1}, "telemetry/2 CONSUMING")
	if err != nil || !res.Stopped || !strings.Contains(out, "busyPercent float64") || !strings.Contains(out, "20s") {
		t.Fatalf("got %+v, %v\n%s", res, err, out)
	}
}

func TestTwoOnOneDirectory(t *testing.T) {
	cfg := Config{Data: t.TempDir(), Nodes: 1}
	ctx, cancel := context.WithCancel(t.Context())
	out := newOutput("streaming this machine")
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, cfg, out, testLog(t))
		ended <- err
	}()
	select {
	case <-out.seen:
	case err := <-ended:
		t.Fatalf("the first ended: %v\n%s", err, out)
	}
	if _, err := Run(t.Context(), cfg, newOutput(""), testLog(t)); !IsInUse(err) || !strings.Contains(err.Error(), cfg.Data) {
		t.Errorf("a second one: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAPartThatFailsEndsTheRun(t *testing.T) {
	theirs, ours := Config{Data: t.TempDir(), Nodes: 1}, Config{Data: t.TempDir(), Nodes: 1}
	if _, out, err := stopAt(t, theirs, "streaming this machine"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A node that belongs to another cluster.
	if err := os.Rename(filepath.Join(theirs.Data, "node-1"), filepath.Join(ours.Data, "node-1")); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), ours, newOutput(""), testLog(t))
	if err == nil || strings.Count(err.Error(), "belongs to cluster") != 1 || !strings.HasPrefix(err.Error(), "node-1: ") {
		t.Errorf("got %v; want what node-1 ended with, once", err)
	}
}

func TestWhatCannotStart(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	rows := file("rows.ndjson", "{}\n")
	table := file("table.yaml", "name: other\nstream: {path: other}\nreplication: 2\n")
	broken := file("broken.yaml", "name: a__b\nreplication: 0\nsegment: {maxRows: 0, maxAge: soon}\ncolour: red\n")
	lonely := file("lonely.yaml", "name: t\nstream: {path: t}\nreplication: 3\n")
	for _, test := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"faults, all of them", Config{Nodes: -1, Port: 70000, Partitions: -1, MaxRows: -1}, []string{"--data", "--nodes", "--port", "--partitions", "--max-rows"}},
		{"what needs an input", Config{Data: dir, Table: "t", Key: "k", Append: true, UntilSealed: true}, []string{"--table", "--key", "--append", "--until-sealed", "needs --input"}},
		{"an input without a table", Config{Data: dir, Input: rows}, []string{"--input", "needs --table"}},
		{"no such input", Config{Data: dir, Table: "t", Input: filepath.Join(dir, "absent")}, []string{"absent", "no such file"}},
		{"another table's configuration", Config{Data: dir, Table: "t", Input: rows, ConfigFile: table}, []string{"--table", "other"}},
		{"a broken configuration", Config{Data: dir, Table: "a__b", Input: rows, ConfigFile: broken}, []string{"name", "replication", "maxRows", "maxAge", "colour"}},
		{"a bad name", Config{Data: filepath.Join(dir, "d"), Nodes: 1, Table: "a__b", Input: rows}, []string{"name", "a__b"}},
		{"a copy that nobody can hold", Config{Data: filepath.Join(dir, "e"), Nodes: 1, Table: "t", Input: rows, ConfigFile: lonely, UntilSealed: true}, []string{"--until-sealed", "3 copies", "1 are started"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Run(t.Context(), test.cfg, newOutput(""), testLog(t))
			if err == nil {
				t.Fatal("it ran")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestExampleTableLoads(t *testing.T) {
	const name = "../../deploy/table.yaml"
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := meta.ParseConfig(name, data)
	if err != nil {
		t.Fatal(err)
	}
	// It calls everything else the default: hold it to that.
	want := meta.DefaultConfig()
	if got.Replication != want.Replication || got.Segment != want.Segment || got.Completion != want.Completion ||
		got.Download != want.Download || got.Retention != want.Retention || got.DeepStore.UploadWait != 0 {
		t.Errorf("not the defaults: %+v", got)
	}
}
