package cli

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/meta"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files of testdata anew")

// TestOutput compares what each command prints, for people and for machines,
// with testdata/<name>.txt.
func TestOutput(t *testing.T) {
	c := newCluster(t, 1)
	for _, test := range []struct {
		name   string
		args   []string
		status int
	}{
		{"status", []string{"status"}, ExitOK},
		{"tables", []string{"tables"}, ExitOK},
		{"tables-show", []string{"tables", "show", "flights"}, ExitOK},
		{"partitions", []string{"partitions"}, ExitOK},
		{"segments-ls", []string{"segments", "ls", "flights"}, ExitOK},
		{"segments-show", []string{"segments", "show", "flights", segmentName}, ExitOK},
		{"segments-verify", []string{"segments", "verify", "flights", segmentName}, ExitOK},
		{"coverage", []string{"coverage", "flights"}, ExitOK},
		{"force-commit", []string{"force-commit", "flights"}, ExitOK},
		{"tables-pause", []string{"tables", "pause", "flights", "--by", "me"}, ExitOK},
		{"tables-resume", []string{"tables", "resume", "flights", "--from", "largest"}, ExitOK},
		{"tables-delete", []string{"tables", "delete", "flights", "--yes"}, ExitOK},
		{"nodes", []string{"nodes"}, ExitOK},
		{"nodes-drain", []string{"nodes", "drain", "node-1"}, ExitOK},
		{"nodes-undrain", []string{"nodes", "undrain", "node-1"}, ExitOK},
		{"validation", []string{"validation"}, ExitOK},
		{"validation-run", []string{"validation", "run", "--dry-run", "--limit", "7"}, ExitOK},
		{"nodes-remove", []string{"nodes", "remove", "node-3"}, ExitOK},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, text, errs := c.shoal(t, test.args...)
			if status != test.status || errs != "" {
				t.Errorf("status %d, %q", status, errs)
			}
			status, machine, errs := c.shoal(t, append(test.args, "-o", "json")...)
			if status != test.status || errs != "" || !json.Valid([]byte(machine)) {
				t.Errorf("json: status %d, %q\n%s", status, errs, machine)
			}
			// What differs from run to run and from library to library.
			stable := strings.NewReplacer(c.URL, "http://127.0.0.1:7070", c.sealed.Digest.String(), "<blake3>", c.sealed.SHA256.String(), "<sha256>", strconv.FormatInt(c.Size(), 10), "<size>")
			golden(t, test.name, stable.Replace(text+"\n"+machine))
		})
	}
}

// When a copy was verified stays in the record; that it is gone has to be seen.
func TestShowTellsACopyThatIsGoneFromTheDeepStore(t *testing.T) {
	c := newCluster(t, 1)
	c.withdrawn = true
	status, out, errs := c.shoal(t, "segments", "show", "flights", segmentName)
	if status != ExitOK || errs != "" || !strings.Contains(out, "\nin deep store  no, not any more (first verified 2026-11-29 12:00:02Z)\n") {
		t.Errorf("status %d, %q\n%s", status, errs, out)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-rewrite writes it anew):\n%s", file, got)
	}
}

func TestExitStatus(t *testing.T) {
	c := newCluster(t, 1)
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("good.yaml", "name: t\nstream: {path: t}\n")
	bad := file("bad.yaml", "name: a__b\nstream: {path: ../x}\nreplication: 0\nsegment: {maxRows: 0}\ncolour: red\n")
	elsewhere := file("elsewhere.yaml", "name: t\nstream: {path: t}\ndeepStore: {uri: file:///elsewhere}\n")
	for _, test := range []struct {
		name   string
		args   []string
		status int
		errs   []string // what standard error says
	}{
		{"done", []string{"status"}, ExitOK, nil},
		{"help", []string{"--help"}, ExitOK, nil},
		{"version", []string{"--version"}, ExitOK, nil},
		{"a valid configuration", []string{"tables", "validate", "-f", good}, ExitOK, nil},
		{"a created table", []string{"tables", "create", "-f", good}, ExitOK, nil},
		{"five mistakes, all named", []string{"tables", "validate", "-f", bad}, ExitNo, []string{"bad.yaml:5: colour", "name", "stream.path", "replication", "segment.maxRows"}},
		{"what the cluster does not allow", []string{"tables", "validate", "-f", elsewhere}, ExitNo, []string{"not below an allowed root"}},
		{"an updated table", []string{"tables", "update", "flights", "-f", good}, ExitOK, nil},
		{"deletion without a yes", []string{"tables", "delete", "flights"}, ExitUsage, []string{"--yes"}},
		{"unknown place to resume", []string{"tables", "resume", "flights", "--from", "yesterday"}, ExitUsage, []string{"--from"}},
		{"unknown node", []string{"nodes", "drain", "node-9"}, ExitFailed, []string{"NODE_NOT_FOUND"}},
		{"a node that is needed", []string{"nodes", "remove", "node-1"}, ExitFailed, []string{"NODE_IN_USE"}},
		{"no command", nil, ExitUsage, []string{"expected one of"}},
		{"unknown command", []string{"frobnicate"}, ExitUsage, []string{"frobnicate"}},
		{"unknown flag", []string{"status", "--frob"}, ExitUsage, []string{"--frob"}},
		{"unknown output", []string{"status", "-o", "xml"}, ExitUsage, []string{"--output"}},
		{"unknown status", []string{"segments", "ls", "flights", "--status", "ASLEEP"}, ExitUsage, []string{"--status"}},
		{"three targets", []string{"segments", "verify", "a", "b", "c"}, ExitUsage, []string{"TABLE and a SEGMENT"}},
		{"up with what does not go together", []string{"up", "--key", "k", "--until-sealed", "--data", dir}, ExitUsage, []string{"--key", "--until-sealed"}},
		{"unknown table", []string{"coverage", "nothing"}, ExitFailed, []string{"TABLE_NOT_FOUND"}},
		{"absent file", []string{"tables", "create", "-f", filepath.Join(dir, "absent")}, ExitFailed, []string{"absent"}},
		{"absent token file", []string{"--cluster-token-file", filepath.Join(dir, "absent"), "status"}, ExitFailed, []string{"absent"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, out, errs := c.shoal(t, test.args...)
			if status != test.status {
				t.Errorf("status %d, want %d\n%s%s", status, test.status, out, errs)
			}
			for _, want := range test.errs {
				if !strings.Contains(errs, want) {
					t.Errorf("%q is not in: %s", want, errs)
				}
			}
			if test.errs == nil && errs != "" {
				t.Errorf("standard error says: %s", errs)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	dead := httpxtest.Refusing(t)
	status, _, errs := shoalIn(t, "", "--controller", dead, "status")
	if status != ExitFailed || !strings.Contains(errs, dead) {
		t.Errorf("status %d, %q", status, errs)
	}
}

func TestCoverageThatIsNotComplete(t *testing.T) {
	c := newCluster(t, 1)
	c.coverage.Complete = false
	c.coverage.Partitions[0].Gaps = []meta.Range{{From: 3, To: 5}}
	for _, o := range []string{"table", "json"} {
		status, out, errs := c.shoal(t, "coverage", "flights", "-o", o)
		if status != ExitNo || errs != "" || out == "" {
			t.Errorf("status %d, %q, %q", status, out, errs)
		}
	}
}

func TestSegmentFilters(t *testing.T) {
	c := newCluster(t, 1)
	_, _, errs := c.shoal(t, "segments", "ls", "flights", "--partition=0", "--status=DONE", "--problem=any",
		"--from-offset=0", "--to-offset=10", "--from-time=2026-11-29T12:00:00Z", "--to-time=2026-11-29T13:00:00+01:00")
	const want = "/segments/flights?fromOffset=0&fromTime=2026-11-29T12%3A00%3A00Z&partition=0&problem=any&status=DONE&toOffset=10&toTime=2026-11-29T13%3A00%3A00%2B01%3A00&limit=1000"
	if got, _ := c.last(); got != want || errs != "" {
		t.Errorf("asked for\n%s, want\n%s\n%s", got, want, errs)
	}
}

func TestTableFromStandardInput(t *testing.T) {
	c := newCluster(t, 1)
	status, out, errs := shoalIn(t, `{"name": "t", "stream": {"path": "t"}, "segment": {"maxRows": 5}}`, "--controller", c.URL, "tables", "create", "-f", "-")
	if status != ExitOK || !strings.Contains(out, "created table") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	var sent meta.Config
	_, body := c.last()
	if err := json.Unmarshal([]byte(body), &sent); err != nil || sent.Segment.MaxRows != 5 || sent.Replication != 3 {
		t.Errorf("sent %+v, %v", sent, err)
	}
	status, _, errs = shoalIn(t, "name: [", "--controller", c.URL, "tables", "validate", "-f", "-")
	if status != ExitNo || !strings.Contains(errs, "standard input") {
		t.Errorf("status %d, %q", status, errs)
	}
}

func TestControllerFromTheEnvironment(t *testing.T) {
	c := newCluster(t, 1)
	t.Setenv("SHOAL_CONTROLLER", c.URL)
	status, out, errs := shoalIn(t, "", "tables", "-o", "json")
	var tables []api.TableView
	if err := json.Unmarshal([]byte(out), &tables); err != nil || status != ExitOK || len(tables) != 1 {
		t.Errorf("status %d, %v, %q, %q", status, err, out, errs)
	}
}
