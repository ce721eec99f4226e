package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/internal/restore"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
)

func TestMetadataVerifyOutput(t *testing.T) {
	h := testHistory(t)
	dir := metadataDir{batches: h.Batches, start: 2, snapshots: []int{4, 7, 9}}.write(t)
	logs, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	last := logs[len(logs)-1]
	run := func(status int) string {
		t.Helper()
		before := fingerprint(t, dir)
		text, errs := runShoal(t, status, "metadata", "verify", "--from-dir", dir)
		machine, _ := runShoal(t, status, "metadata", "verify", "--from-dir", dir, "-o", "json")
		if errs != "" {
			t.Errorf("standard error says %s", errs)
		}
		if fingerprint(t, dir) != before {
			t.Error("the directory is not as it was")
		}
		return strings.ReplaceAll(text+"\n"+machine, dir, "DIR")
	}
	golden(t, "metadata-verify", run(ExitOK))
	change(t, last, func(b []byte) []byte { return b[:len(b)-9] })
	change(t, checkpoint(dir, 7), flipAt(200))
	change(t, logs[0], flipAt(130))
	lock(t, dir)
	golden(t, "metadata-verify-damaged", run(ExitNo))
}

// TestMetadataVerifySaysWhatToDo: it depends on whose directory it is.
func TestMetadataVerifySaysWhatToDo(t *testing.T) {
	h := testHistory(t)
	for name, test := range map[string]struct {
		node   bool
		mode   string
		says   string
		places string
	}{
		"a controller's":      {says: "shoal metadata restore --from-node", places: "log/"},
		"a member's":          {mode: "zookeeper://z:1/shoal", says: "begins it anew from ZooKeeper", places: "log/"},
		"a node's":            {node: true, says: "fetches it again", places: "cache/"},
		"one half restored":   {mode: restore.Unfinished, says: "run shoal metadata restore again", places: "log/"},
		"a member's, by name": {mode: "zookeeper://z:1/shoal", says: "the metadata is in zookeeper://z:1/shoal; this is a copy"},
	} {
		t.Run(name, func(t *testing.T) {
			d := metadataDir{batches: h.Batches, node: test.node}
			dir := d.write(t)
			if test.mode != "" {
				disk, err := vfs.OS(dir)
				if err != nil {
					t.Fatal(err)
				}
				if err := controller.WriteMode(disk, test.mode); err != nil {
					t.Fatal(err)
				}
			}
			change(t, filepath.Join(dir, d.logDir(), "00000000000000000000.log"), flipAt(150))
			out, _ := runShoal(t, ExitNo, "metadata", "verify", "--from-dir", dir)
			wantSaid(t, out, test.says, filepath.Join(dir, test.places), "at byte 48: bad frame: payload checksum")
			if n := strings.Count(out, "damage: "); n != 1 {
				t.Errorf("%d lines of damage:\n%s", n, out)
			}
		})
	}
}

// TestMetadataVerifyTellsEachDamage: exit status 1 and one line each.
func TestMetadataVerifyTellsEachDamage(t *testing.T) {
	h := testHistory(t)
	foreign := metatest.NewLog(t)
	other, err := foreign.Image.Apply(&meta.Batch{Offset: 1, Epoch: 1, Term: foreign.Image.LastTerm(), Time: foreign.Now + 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		do   func(t *testing.T, dir string)
		says []string
	}{
		"a truncated snapshot": {func(t *testing.T, dir string) {
			change(t, checkpoint(dir, 9), func(b []byte) []byte { return b[:len(b)/2] })
		}, []string{idAt(9), "the file ends before its footer"}},
		"a flipped bit in it":     {func(t *testing.T, dir string) { change(t, checkpoint(dir, 9), flipAt(400)) }, []string{idAt(9), "bad frame"}},
		"a missing file of a log": {func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "log", "00000000000000000007.log")) }, []string{"00000000000000000012.log", "ends at offset 7"}},
		"a missing epoch":         {func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "epoch")) }, []string{"epoch at byte 0", "no controller starts here"}},
		"a damaged epoch":         {func(t *testing.T, dir string) { change(t, filepath.Join(dir, "epoch"), flipAt(6)) }, []string{"epoch at byte 0", "does not hold an epoch"}},
		"a damaged piece list": {func(t *testing.T, dir string) {
			change(t, strings.TrimSuffix(checkpoint(dir, 9), ".checkpoint")+".pieces", flipAt(30))
		}, []string{".pieces", "the list is made anew"}},
		"another image, well made": {func(t *testing.T, dir string) { replaceSnapshot(t, dir, 9, tampered(t, h)) }, []string{idAt(9), "by the log and", "report this"}},
		"another history":          {func(t *testing.T, dir string) { writeSnapshot(t, dir, other) }, []string{"00000000000000000002-0000000001", "the log gives at offset 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := metadataDir{batches: h.Batches, snapshots: []int{9}}.write(t)
			test.do(t, dir)
			out, _ := runShoal(t, ExitNo, "metadata", "verify", "--from-dir", dir)
			var lines []string
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "damage: "+dir) {
					lines = append(lines, line)
				}
			}
			if len(lines) != 1 {
				t.Fatalf("%d lines of damage:\n%s", len(lines), out)
			}
			wantSaid(t, lines[0], append(test.says, "; do: ")...)
		})
	}
}

func writeSnapshot(t *testing.T, dir string, im *meta.Image) {
	t.Helper()
	disk, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := metalog.WriteSnapshot(t.Context(), disk, metalog.SnapshotsDir, im); err != nil {
		t.Fatal(err)
	}
}

func replaceSnapshot(t *testing.T, dir string, end int64, im *meta.Image) {
	t.Helper()
	if err := os.Remove(checkpoint(dir, end)); err != nil {
		t.Fatal(err)
	}
	writeSnapshot(t, dir, im)
}

// tampered is the image after batch 8, with another zone of a node.
func tampered(t *testing.T, h *metatest.Log) *meta.Image {
	t.Helper()
	im := meta.Empty()
	for _, b := range h.Batches[:9] {
		changed := *b
		changed.Upserts = nil
		for _, r := range b.Upserts {
			if n, ok := r.(*meta.Node); ok {
				other := *n
				other.Zone = "elsewhere"
				r = &other
			}
			changed.Upserts = append(changed.Upserts, r)
		}
		next, err := im.Apply(&changed)
		if err != nil {
			t.Fatal(err)
		}
		im = next
	}
	return im
}

// A directory whose process runs, and writes, is whole.
func TestMetadataVerifyWhileItIsWritten(t *testing.T) {
	h := testHistory(t)
	dir := metadataDir{batches: h.Batches[:5], snapshots: []int{4}}.write(t)
	lock(t, dir)
	log := openLog(t, dir)
	if err := log.Append(t.Context(), h.Batches[5]); err != nil {
		t.Fatal(err)
	}
	change := func() {
		f, err := os.OpenFile(filepath.Join(dir, "log", "00000000000000000000.log"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write([]byte("shfr\x30\x00")); err != nil { // as much of a frame as can be seen
			t.Fatal(err)
		}
	}
	change()
	out, _ := runShoal(t, ExitOK, "metadata", "verify", "--from-dir", dir)
	wantSaid(t, out, "6 batches, the last is 5", "a process has the directory open", "it is being written", "nothing is damaged")
	if !decode[verdict](t, first(runShoal(t, ExitOK, "metadata", "verify", "--from-dir", dir, "-o", "json"))).Running {
		t.Error("it does not say that a process runs")
	}
}

func first(out, _ string) string { return out }

func TestMetadataVerifyOfServers(t *testing.T) {
	h := testHistory(t)
	cut := metadataDir{batches: h.Batches, start: 3, snapshots: []int{5, 9}}
	node := cut
	node.node = true
	nodeWhole := metadataDir{batches: h.Batches, snapshots: []int{5, 9}, node: true}
	for name, test := range map[string]struct {
		args     []string
		start    int64
		compared string
	}{
		"the leader":                  {[]string{"--controller", cut.serve(t).URL}, 5, "[false true]"},
		"a controller":                {[]string{"--url", cut.serve(t).URL}, 5, "[false true]"},
		"a node":                      {[]string{"--url", node.serve(t).URL}, 5, "[false true]"},
		"a node with the whole log":   {[]string{"--url", nodeWhole.serve(t).URL}, 0, "[true true]"},
		"a leader without a snapshot": {[]string{"--controller", metadataDir{batches: h.Batches}.serve(t).URL}, 0, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := runShoal(t, ExitOK, append([]string{"metadata", "verify", "-o", "json"}, test.args...)...)
			v := decode[verdict](t, out)
			var compared []bool
			for _, s := range v.Snapshots {
				compared = append(compared, s.Compared)
			}
			if !v.OK || v.ClusterID != metatest.ID("cluster") || v.Log.Start != test.start || v.Log.End != h.Image.Next() || fmt.Sprint(compared) != test.compared {
				t.Errorf("%s", out)
			}
			out, _ = runShoal(t, ExitOK, append([]string{"metadata", "verify"}, test.args...)...)
			wantSaid(t, out, v.Of, "nothing is damaged")
		})
	}
	// A snapshot that is damaged on the server's disk.
	d := metadataDir{batches: h.Batches, snapshots: []int{5, 9}, node: true}
	server := d.serve(t)
	want, _ := runShoal(t, ExitOK, "metadata", "dump", "--url", server.URL)
	for _, at := range []int{30, 300} { // in its header, and behind it
		change(t, checkpoint(server.dir, 9), flipAt(at))
		out, _ := runShoal(t, ExitNo, "metadata", "verify", "--url", server.URL)
		wantSaid(t, out, "damage: "+server.URL+"/metadata/snapshots/"+idAt(9), "run shoal metadata verify --from-dir on its data directory")
		got, errs := runShoal(t, ExitOK, "metadata", "dump", "--url", server.URL)
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
		wantSaid(t, errs, "passed over", idAt(9), "from snapshot "+idAt(5))
		change(t, checkpoint(server.dir, 9), flipAt(at))
	}
}

// A snapshot that a leader lets go of while it is looked at is not damaged.
func TestMetadataVerifyWhileALeaderCleans(t *testing.T) {
	for _, cleaned := range []bool{true, false} {
		server := metadataDir{batches: testHistory(t).Batches, snapshots: []int{4, 7, 9}}.serve(t)
		good, gone := server.http, false
		server.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			oldest := strings.HasPrefix(r.URL.Path, snapshots.Path+"/"+idAt(4))
			switch {
			case oldest:
				gone = true
				httpx.WriteError(w, httpx.Errorf(http.StatusNotFound, metalog.CodeSnapshotNotFound, "it is not here"))
			case r.URL.Path == snapshots.Path && gone && cleaned:
				_ = httpx.WriteJSON(w, http.StatusOK, httpx.List[snapshots.Item]{Items: []snapshots.Item{}})
			default:
				good.ServeHTTP(w, r)
			}
		})
		status := ExitNo
		if cleaned {
			status = ExitOK
		}
		out, _ := runShoal(t, status, "metadata", "verify", "--controller", server.URL, "-o", "json")
		if v := decode[verdict](t, out); len(v.Snapshots) != 2 || v.Log.Start != 7 || v.OK != cleaned {
			t.Errorf("cleaned %t: %s", cleaned, out)
		}
	}
}

func TestMetadataRestoreOutput(t *testing.T) {
	h := testHistory(t)
	behind := metadataDir{batches: h.Batches[:8], node: true}.serve(t)
	best := metadataDir{batches: h.Batches, start: 4, snapshots: []int{5, 9}, node: true}.serve(t)
	dir := filepath.Join(t.TempDir(), "new")
	stable := strings.NewReplacer(dir, "DIR", behind.URL, "http://node-1:7071", best.URL, "http://node-2:7071")
	text, errs := runShoal(t, ExitOK, "metadata", "restore", "--from-node", behind.URL+","+best.URL, "--data", dir)
	if errs != "" {
		t.Errorf("standard error says %s", errs)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	machine, _ := runShoal(t, ExitOK, "metadata", "restore", "--from-node", behind.URL, "--from-node", best.URL, "--data", dir, "-o", "json")
	golden(t, "metadata-restore", stable.Replace(text+"\n"+machine))

	// What was restored is what was there.
	want, _ := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", metadataDir{batches: h.Batches}.write(t))
	if got, _ := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", dir); got != want {
		t.Errorf("restored:\n%s\nwant\n%s", got, want)
	}
	out, _ := runShoal(t, ExitOK, "metadata", "verify", "--from-dir", dir)
	wantSaid(t, out, "nothing is damaged")
	_, errs = runShoal(t, ExitFailed, "metadata", "restore", "--from-node", best.URL, "--data", dir)
	wantSaid(t, errs, dir, "is not empty", "nothing was written")
}

func TestMetadataRestoreRefusesTwoHistories(t *testing.T) {
	h := testHistory(t)
	one := metadataDir{batches: h.Batches, node: true}.serve(t)
	other := testHistory(t)
	batches := other.Batches[:8]
	for i := range 3 { // another leader of epoch 3 than would be
		b := *batches[7]
		b.Offset, b.Upserts, b.Removals, b.Time = 8+int64(i), nil, nil, b.Time+1
		batches = append(batches, &b)
	}
	two := metadataDir{batches: batches, node: true}.serve(t)
	dir := t.TempDir()
	_, errs := runShoal(t, ExitNo, "metadata", "restore", "--from-node", one.URL+","+two.URL, "--data", dir)
	wantSaid(t, errs, "two histories", one.URL, two.URL, "nothing was written")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestMetadataRestoreRefuses: what is refused is named, with what to do, and nothing is left
// of it.
func TestMetadataRestoreRefuses(t *testing.T) {
	h := testHistory(t)
	good := metadataDir{batches: h.Batches, node: true}.serve(t).URL
	leader := metadataDir{batches: h.Batches}.serve(t).URL
	dead, gone := httpxtest.Refusing(t), httpxtest.Refusing(t)
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpx.WriteError(w, errors.New("it is broken"))
	}))
	defer broken.Close()
	foreign := httptest.NewServer(http.NotFoundHandler())
	defer foreign.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	inUse := t.TempDir()
	lock(t, inUse)
	for name, test := range map[string]struct {
		from, data string // data: a new one, if it is empty
		status     int
		says       []string
	}{
		"a node that does not answer": {good + "," + dead, "", ExitFailed, []string{"node " + dead + " does not answer", "connection refused", "leave it out if it is lost"}},
		"two that do not":             {dead + "," + gone, "", ExitFailed, []string{"node " + dead + " does not answer", "node " + gone + " does not answer"}},
		"a node that is broken":       {good + "," + broken.URL, "", ExitFailed, []string{"node " + broken.URL, "INTERNAL", "leave it out"}},
		"what is no node":             {foreign.URL, "", ExitFailed, []string{"node " + foreign.URL, "Is this the URL of a node?"}},
		"a controller":                {leader, "", ExitFailed, []string{leader + " is a controller: name nodes"}},
		"no URL":                      {"127.0.0.1:7081", "", ExitUsage, []string{`"127.0.0.1:7081"`, "http://HOST:PORT"}},
		"a node twice":                {good + "," + good + "/", "", ExitUsage, []string{good + " and " + good + "/ are one node"}},
		"a file":                      {good, file, ExitUsage, []string{"--data " + file + " is no directory", "give an empty directory"}},
		"below a file":                {good, filepath.Join(file, "new"), ExitUsage, []string{"--data " + filepath.Join(file, "new"), "give an empty directory"}},
		"a directory in use":          {good, inUse, ExitFailed, []string{inUse, "another restore or a controller has it locked"}},
	} {
		t.Run(name, func(t *testing.T) {
			data := test.data
			if data == "" {
				data = filepath.Join(t.TempDir(), "above", "new")
			}
			_, errs := runShoal(t, test.status, "metadata", "restore", "--from-node", test.from, "--data", data)
			wantSaid(t, errs, test.says...)
			if test.data == "" {
				wantSaid(t, errs, "nothing was written")
				if _, err := os.Stat(filepath.Dir(data)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("something was made: %v", err)
				}
			}
		})
	}
	if data, err := os.ReadFile(file); string(data) != "mine" {
		t.Errorf("the file has %q, %v", data, err)
	}
}

// TestMetadataRestoreTellsOfDamage: which snapshot of which node is damaged is said, whether
// or not something else takes its place.
func TestMetadataRestoreTellsOfDamage(t *testing.T) {
	h := testHistory(t)
	cut := metadataDir{batches: h.Batches, start: 9, snapshots: []int{9}, node: true}
	for what, damage := range map[string]func([]byte) []byte{
		"in its header": flipAt(30), "behind it": flipAt(300), "by its length": func(b []byte) []byte { return b[:len(b)-1] },
	} {
		t.Run(what, func(t *testing.T) {
			damaged := cut.serve(t)
			change(t, checkpoint(damaged.dir, 9), damage)
			dir := filepath.Join(t.TempDir(), "new")
			_, errs := runShoal(t, ExitFailed, "metadata", "restore", "--from-node", damaged.URL, "--data", dir)
			wantSaid(t, errs, damaged.URL, "snapshot "+idAt(9))
			_, errs = runShoal(t, ExitFailed, "metadata", "dump", "--url", damaged.URL)
			wantSaid(t, errs, damaged.URL, "snapshot "+idAt(9))
			out, _ := runShoal(t, ExitOK, "metadata", "restore", "--from-node", damaged.URL+","+cut.serve(t).URL, "--data", dir)
			wantSaid(t, out, "note: damaged: snapshot "+idAt(9)+" of "+damaged.URL, "what is restored does not come from it")
		})
	}
}
