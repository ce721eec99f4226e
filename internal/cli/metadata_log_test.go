package cli

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

func offsetsOf(lines []batchLine) (all []int64) {
	for _, l := range lines {
		all = append(all, l.Offset)
	}
	return all
}

func upTo(from, to int64) (all []int64) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

func TestMetadataLogOutput(t *testing.T) {
	dir := metadataDir{batches: testHistory(t).Batches}.write(t)
	before := fingerprint(t, dir)
	text, errs := runShoal(t, ExitOK, "metadata", "log", "--from-dir", dir)
	machine, _ := runShoal(t, ExitOK, "metadata", "log", "--from-dir", dir, "-o", "json")
	if errs != "" {
		t.Errorf("standard error says %s", errs)
	}
	golden(t, "metadata-log", text+"\n"+machine)
	if fingerprint(t, dir) != before {
		t.Error("the directory is not as it was")
	}
}

// TestMetadataLogFromAnywhere: from a controller's directory, a node's and a leader come the
// same batches.
func TestMetadataLogFromAnywhere(t *testing.T) {
	h := testHistory(t)
	n := int64(len(h.Batches))
	whole := metadataDir{batches: h.Batches}
	cut := metadataDir{batches: h.Batches, start: 3, snapshots: []int{5, 9}}
	node := cut
	node.node = true
	for name, test := range map[string]struct {
		from  []string
		first int64
	}{
		"a controller's directory":  {[]string{"--from-dir", whole.write(t)}, 0},
		"a directory that was cut":  {[]string{"--from-dir", cut.write(t)}, 3},
		"a node's directory":        {[]string{"--from-dir", node.write(t)}, 3},
		"a leader":                  {[]string{"--controller", whole.serve(t).URL}, 0},
		"a leader with snapshots":   {[]string{"--controller", cut.serve(t).URL}, 5},
		"a leader that has not cut": {[]string{"--controller", metadataDir{batches: h.Batches, snapshots: []int{5}}.serve(t).URL}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(status int, more ...string) ([]batchLine, string) {
				t.Helper()
				out, errs := runShoal(t, status, slices.Concat([]string{"metadata", "log", "-o", "json"}, test.from, more)...)
				return decodeLines[batchLine](t, out), errs
			}
			lines, _ := run(ExitOK)
			if got := offsetsOf(lines); !slices.Equal(got, upTo(test.first, n)) {
				t.Errorf("all: %v", got)
			}
			for i, l := range lines {
				b := h.Batches[test.first+int64(i)]
				if l.Epoch != b.Epoch || l.Term != b.Term.String() || l.Time.UnixMilli() != b.Time || len(l.Upserts) != len(b.Upserts) || len(l.Removals) != len(b.Removals) || l.SnapshotHere != b.SnapshotHere || l.Bytes == 0 {
					t.Errorf("%+v, want %+v", l, b)
				}
			}
			for _, more := range []struct {
				args     []string
				from, to int64
			}{
				{[]string{"--limit=3"}, n - 3, n},
				{[]string{"--offset=9"}, 9, n},
				{[]string{"--offset=9", "--limit=2"}, 9, 11},
			} {
				if lines, _ := run(ExitOK, more.args...); !slices.Equal(offsetsOf(lines), upTo(more.from, more.to)) {
					t.Errorf("%q: %v, want [%d, %d)", more.args, offsetsOf(lines), more.from, more.to)
				}
			}
			if lines, _ := run(ExitOK, "--offset="+itoa(n)); len(lines) > 0 {
				t.Errorf("at the end: %v", offsetsOf(lines))
			}
			_, errs := run(ExitFailed, "--offset="+itoa(n+1))
			wantSaid(t, errs, itoa(n+1))
			if test.first > 0 && name != "a leader that has not cut" {
				_, errs := run(ExitFailed, "--offset=1")
				wantSaid(t, errs, itoa(test.first))
			}
		})
	}
}

// TestMetadataLogOfALeaderWhoseLogBeginsLate: a log may begin after the oldest snapshot that
// is listed, and between two of them. What the leader has of it is shown;
// not the very first batch if the epoch before it is a later one than that snapshot's, which
// a leader hands out to nobody (METALOG §3, row 4).
func TestMetadataLogOfALeaderWhoseLogBeginsLate(t *testing.T) {
	h := testHistory(t)
	n := int64(len(h.Batches)) // epoch 2 begins with batch 8
	for name, test := range map[string]struct {
		dir   metadataDir
		first int64
	}{
		"at a snapshot":                     {metadataDir{batches: h.Batches, start: 7, snapshots: []int{4, 7, 9}}, 7},
		"at the last of them":               {metadataDir{batches: h.Batches, start: 9, snapshots: []int{4, 7, 9}}, 10},
		"between two":                       {metadataDir{batches: h.Batches, start: 5, snapshots: []int{3, 7}}, 5},
		"between two, in a later epoch":     {metadataDir{batches: h.Batches, start: 10, snapshots: []int{3, 11}}, 11},
		"with the epoch":                    {metadataDir{batches: h.Batches, start: 8, snapshots: []int{3, 9}}, 8},
		"after the snapshots":               {metadataDir{batches: h.Batches, start: 6, snapshots: []int{3}}, 6},
		"after the snapshots, in the epoch": {metadataDir{batches: h.Batches, start: 9, snapshots: []int{3}}, 10},
		"empty, after the snapshots":        {metadataDir{batches: h.Batches, start: int(n), snapshots: []int{3}}, n},
		"empty, at the snapshot":            {metadataDir{batches: h.Batches, start: int(n), snapshots: []int{3, int(n)}}, n},
	} {
		t.Run(name, func(t *testing.T) {
			from := []string{"metadata", "log", "-o", "json", "--controller", test.dir.serve(t).URL}
			for _, args := range [][]string{nil, {"--limit=12"}} {
				out, _ := runShoal(t, ExitOK, append(from, args...)...)
				if got := offsetsOf(decodeLines[batchLine](t, out)); !slices.Equal(got, upTo(test.first, n)) {
					t.Errorf("%q: %v, want [%d, %d)", args, got, test.first, n)
				}
			}
			_, errs := runShoal(t, ExitFailed, append(from, "--offset="+itoa(test.first-1))...)
			wantSaid(t, errs, "from offset "+itoa(test.first)+" on", "--from-dir for batch "+itoa(test.first-1))
			out, _ := runShoal(t, ExitOK, append(from, "--offset="+itoa(test.first))...)
			if got := offsetsOf(decodeLines[batchLine](t, out)); !slices.Equal(got, upTo(test.first, n)) {
				t.Errorf("from there on: %v", got)
			}
		})
	}
}

// writer is where a command that follows writes to; it can be waited on.
type writer struct {
	lines chan string
	part  []byte
}

func newWriter() *writer { return &writer{lines: make(chan string, 1000)} }

func (w *writer) Write(b []byte) (int, error) {
	w.part = append(w.part, b...)
	for {
		line, rest, ok := bytes.Cut(w.part, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		w.lines <- string(line)
		w.part = rest
	}
}

// follow runs shoal metadata log -f until the test ends it.
func follow(t *testing.T, args ...string) (out *writer, errs *bytes.Buffer, end func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, errs = newWriter(), &bytes.Buffer{}
	status := make(chan int, 1)
	go func() {
		status <- Main(ctx, append([]string{"metadata", "log", "-f", "-o", "json"}, args...), IO{In: strings.NewReader(""), Out: out, Err: errs, now: time.Now})
	}()
	return out, errs, func() int {
		cancel()
		return <-status
	}
}

// TestMetadataLogFollows: what is appended comes, from a directory and from a leader.
func TestMetadataLogFollows(t *testing.T) {
	h := testHistory(t)
	n := len(h.Batches)
	d := metadataDir{batches: h.Batches[:n-3]}
	dir := d.write(t)
	lock(t, dir)
	server := d.serve(t)
	log := openLog(t, dir)
	for name, test := range map[string]struct {
		from []string
		log  *metalog.Log
	}{
		"a directory": {[]string{"--from-dir", dir}, log},
		"a leader":    {[]string{"--controller", server.URL}, server.log},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, end := follow(t, append(test.from, "--limit=2")...)
			for i := n - 5; i < n; i++ {
				if i >= n-3 {
					if err := test.log.Append(t.Context(), h.Batches[i]); err != nil {
						t.Fatal(err)
					}
				}
				if l := decode[batchLine](t, <-out.lines); l.Offset != int64(i) {
					t.Fatalf("%+v, want batch %d", l, i)
				}
			}
			if status := end(); status != ExitOK {
				t.Errorf("status %d, %s", status, errs)
			}
			if name == "a directory" {
				wantSaid(t, errs.String(), "a process has "+dir+" open")
			}
		})
	}
}

// A leader that is away for a while is asked again.
func TestMetadataLogFollowsAnotherLeader(t *testing.T) {
	h := testHistory(t)
	server := metadataDir{batches: h.Batches}.serve(t)
	good, end, refusals := server.http, itoa(int64(len(h.Batches))), 0
	server.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.PathLog && r.URL.Query().Get("offset") == end && refusals == 0 {
			refusals++
			httpx.WriteError(w, httpx.Errorf(http.StatusMisdirectedRequest, metalog.CodeNotLeader, "somebody else leads"))
			return
		}
		good.ServeHTTP(w, r)
	})
	out, errs, stop := follow(t, "--controller", server.URL, "--limit=1")
	<-out.lines
	h.TakeOver(t)
	last := h.Batches[len(h.Batches)-1]
	server.lead(last.Epoch)
	if err := server.log.Append(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if l := decode[batchLine](t, <-out.lines); l.Offset != last.Offset {
		t.Errorf("%+v", l)
	}
	if status := stop(); status != ExitOK {
		t.Errorf("status %d, %s", status, errs)
	}
	wantSaid(t, errs.String(), "asking again")
}

func TestMetadataLogOfWhatIsNotWhole(t *testing.T) {
	h := testHistory(t)
	n := int64(len(h.Batches))
	last := func(dir string) string {
		files, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return files[len(files)-1]
	}
	dir := metadataDir{batches: h.Batches}.write(t)
	change(t, last(dir), func(b []byte) []byte { return b[:len(b)-20] })
	out, errs := runShoal(t, ExitOK, "metadata", "log", "--from-dir", dir, "-o", "json")
	if got := offsetsOf(decodeLines[batchLine](t, out)); !slices.Equal(got, upTo(0, n-1)) {
		t.Errorf("%v", got)
	}
	wantSaid(t, errs, last(dir), "a frame that is not whole", "cut short")
	lock(t, dir)
	_, errs = runShoal(t, ExitOK, "metadata", "log", "--from-dir", dir)
	wantSaid(t, errs, "a process has", "it is being written")

	damaged := metadataDir{batches: h.Batches}.write(t)
	change(t, last(damaged), flipAt(80))
	out, errs = runShoal(t, ExitNo, "metadata", "log", "--from-dir", damaged, "--offset=0", "-o", "json")
	wantSaid(t, errs, filepath.Base(last(damaged)), "damaged at byte 48", "shoal metadata verify --from-dir "+damaged)
	if got := offsetsOf(decodeLines[batchLine](t, out)); len(got) == 0 || !slices.Equal(got, upTo(0, int64(len(got)))) {
		t.Errorf("before the damage: %v", got)
	}
}

// TestMetadataOfOtherDirectories: what is no data directory is refused by every command
// that reads one.
func TestMetadataOfOtherDirectories(t *testing.T) {
	dir := metadataDir{batches: testHistory(t).Batches, snapshots: []int{4}}.write(t)
	file := filepath.Join(t.TempDir(), "file")
	both := metadataDir{batches: testHistory(t).Batches}.write(t)
	above := t.TempDir()
	for _, err := range []error{
		os.WriteFile(file, nil, 0o600), os.Mkdir(filepath.Join(both, nodeLogDir), 0o700),
		os.MkdirAll(filepath.Join(above, "controller"), 0o700), os.WriteFile(filepath.Join(above, "controller", lockFile), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, says := range map[string][]string{
		filepath.Join(dir, "absent"): {"no such file"},
		file:                         {"is not a directory"},
		t.TempDir():                  {"no data directory", "neither log/ nor cache/"},
		filepath.Join(dir, "log"):    {"no data directory", "give the directory above it"},
		both:                         {"what a controller has and what a node has"},
		above:                        {"below it are those of controller"},
	} {
		for _, command := range []string{"log", "snapshots", "dump", "verify"} {
			_, errs := runShoal(t, ExitFailed, "metadata", command, "--from-dir", name)
			wantSaid(t, errs, append(says, name)...)
		}
	}
}

func TestMetadataUsage(t *testing.T) {
	for _, args := range [][]string{
		{"log", "--offset=-1"}, {"log", "--limit=0"}, {"log", "--offset=x"},
		{"snapshots", "--from-dir=a", "--url=b"}, {"dump", "--from-dir=a", "--url=b"}, {"verify", "--from-dir=a", "--url=b"},
		{"dump", "--kind=segment,colour"}, {"dump", "--snapshot=5"}, {"snapshot", "--timeout=0s"},
		{"restore"}, {"restore", "--data=x"}, {"restore", "--from-node=http://x"},
	} {
		runShoal(t, ExitUsage, append([]string{"metadata"}, args...)...)
	}
}

func TestChangesOfABatch(t *testing.T) {
	id := clusterID
	segment := func(seq int64) meta.Key { return meta.Key{Kind: meta.KindSegment, Table: id, Num: seq} }
	line := batchLine{SnapshotHere: true}
	for _, k := range []meta.Key{segment(1), {Kind: meta.KindLeader}, segment(2), {Kind: meta.KindNode, Name: "n1"}, segment(3), segment(4)} {
		line.Upserts = append(line.Upserts, named(k))
	}
	line.Removals = []changedRecord{named(meta.Key{Kind: meta.KindJob, Name: jobID.String()})}
	const want = "segment 11111111/0/1, 11111111/0/2, 11111111/0/3 and 1 more; leader; node n1; -job 99999999; snapshot here"
	if got := line.changes(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := (&batchLine{}).changes(); got != "nothing" {
		t.Errorf("of none: %s", got)
	}
}
