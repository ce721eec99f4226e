package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
)

// checkpoint is the file of a snapshot of testHistory.
func checkpoint(dir string, end int64) string {
	return filepath.Join(dir, metalog.SnapshotsDir, idAt(end)+".checkpoint")
}

func idAt(end int64) string {
	epoch := int64(1)
	if end > 8 {
		epoch = 2
	}
	return metalog.SnapshotID{EndOffset: end, Epoch: epoch}.String()
}

func TestMetadataSnapshotsOutput(t *testing.T) {
	dir := metadataDir{batches: testHistory(t).Batches, snapshots: []int{4, 7, 9}}.write(t)
	for suffix, end := range map[string]int64{".corrupt": 2, ".deleted": 3, ".part": 12, ".0123456789abcdef.part": 11} {
		if err := os.WriteFile(checkpoint(dir, end)+suffix, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := fingerprint(t, dir)
	text, errs := runShoal(t, ExitOK, "metadata", "snapshots", "--from-dir", dir)
	machine, _ := runShoal(t, ExitOK, "metadata", "snapshots", "--from-dir", dir, "-o", "json")
	if errs != "" {
		t.Errorf("standard error says %s", errs)
	}
	golden(t, "metadata-snapshots", text+"\n"+machine)
	if fingerprint(t, dir) != before {
		t.Error("the directory is not as it was")
	}
	if out, _ := runShoal(t, ExitOK, "metadata", "snapshots", "--from-dir", metadataDir{batches: testHistory(t).Batches}.write(t)); out != "no snapshots\n" {
		t.Errorf("of none: %s", out)
	}
}

// What servers list is what lies in their directories.
func TestMetadataSnapshotsOfServers(t *testing.T) {
	d := metadataDir{batches: testHistory(t).Batches, snapshots: []int{4, 9}}
	out, _ := runShoal(t, ExitOK, "metadata", "snapshots", "--from-dir", d.write(t), "-o", "json")
	want := decode[[]snapshotRow](t, out)
	for i := range want {
		want[i].File = ""
	}
	if len(want) != 2 {
		t.Fatalf("%+v", want)
	}
	node := d
	node.node = true
	for name, args := range map[string][]string{"the leader": {"--controller", d.serve(t).URL}, "a node": {"--url", node.serve(t).URL + "/"}} {
		out, _ := runShoal(t, ExitOK, append([]string{"metadata", "snapshots", "-o", "json"}, args...)...)
		if got := decode[[]snapshotRow](t, out); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// asked is a leader that makes a snapshot once it has been looked for that often; never if
// that is negative.
func asked(t *testing.T, after int) *httptest.Server {
	looks := 0
	var s *httptest.Server
	mux := http.NewServeMux()
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		_ = httpx.WriteJSON(w, http.StatusOK, api.LeaderView{Leader: s.URL})
	})
	mux.HandleFunc("POST "+snapshots.Path, func(w http.ResponseWriter, _ *http.Request) {
		_ = httpx.WriteJSON(w, http.StatusAccepted, api.SnapshotAsked{EndOffset: 7, Epoch: 1})
	})
	mux.HandleFunc("GET "+snapshots.Path, func(w http.ResponseWriter, _ *http.Request) {
		list := httpx.List[snapshots.Item]{Items: []snapshots.Item{}}
		if looks++; after >= 0 && looks > after {
			ref := metalog.SnapshotRef{SnapshotID: metalog.SnapshotID{EndOffset: 7, Epoch: 1}, SizeBytes: 2048, Digest: metatest.DigestOf("it")}
			list.Items = append(list.Items, snapshots.Item{ID: ref.SnapshotID.String(), SnapshotRef: ref})
		}
		_ = httpx.WriteJSON(w, http.StatusOK, list)
	})
	s = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestMetadataSnapshotNow(t *testing.T) {
	id := idAt(7)
	out, errs := runShoal(t, ExitOK, "metadata", "snapshot", "--controller", asked(t, 2).URL)
	wantSaid(t, out, id, "2.0 KiB", metatest.DigestOf("it").String())
	wantSaid(t, errs, id+" is asked for, at offset 7", "1m0s at most")
	if strings.Count(errs, "note:") != 1 {
		t.Errorf("said more than once: %s", errs)
	}
	out, errs = runShoal(t, ExitOK, "metadata", "snapshot", "--controller", asked(t, 0).URL, "-o", "json")
	if errs != "" {
		t.Errorf("of one that is there: %s", errs)
	}
	if r := decode[snapshotRow](t, out); r.ID != id || r.State != metalog.SnapshotWhole || r.SizeBytes != 2048 {
		t.Errorf("%+v", r)
	}
	out, _ = runShoal(t, ExitOK, "metadata", "snapshot", "--no-wait", "--controller", asked(t, -1).URL)
	wantSaid(t, out, id, "is asked for")
	_, errs = runShoal(t, ExitFailed, "metadata", "snapshot", "--timeout=1ms", "--controller", asked(t, -1).URL)
	wantSaid(t, errs, id, "does not have it after 1ms")
}

func TestMetadataDumpOutput(t *testing.T) {
	dir := metadataDir{batches: testHistory(t).Batches, snapshots: []int{7}}.write(t)
	before := fingerprint(t, dir)
	out, errs := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", dir)
	golden(t, "metadata-dump", out)
	wantSaid(t, errs, "the image after batch 12 of epoch 2", "from snapshot "+idAt(7)+" and 6 batches after it")
	if fingerprint(t, dir) != before {
		t.Error("the directory is not as it was")
	}
}

// TestMetadataDumpFromAnywhere: whoever has it, in whatever form, the records are the same.
func TestMetadataDumpFromAnywhere(t *testing.T) {
	h := testHistory(t)
	whole := metadataDir{batches: h.Batches}
	cut := metadataDir{batches: h.Batches, start: 4, snapshots: []int{5, 9}}
	node := cut
	node.node = true
	nodeWhole := whole
	nodeWhole.node = true
	want, _ := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", whole.write(t))
	wantOlder, _ := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", metadataDir{batches: h.Batches[:5]}.write(t))
	if want == wantOlder || strings.Count(want, "\n") != h.Image.Len() {
		t.Fatalf("%d records\n%s", h.Image.Len(), want)
	}
	for name, from := range map[string][]string{
		"a directory that was cut":         {"--from-dir", cut.write(t)},
		"a node's directory":               {"--from-dir", node.write(t)},
		"the leader":                       {"--controller", whole.serve(t).URL},
		"the leader, with snapshots":       {"--controller", cut.serve(t).URL},
		"a controller":                     {"--url", cut.serve(t).URL},
		"a node":                           {"--url", node.serve(t).URL},
		"a node that never had a snapshot": {"--url", nodeWhole.serve(t).URL},
	} {
		got, _ := runShoal(t, ExitOK, append([]string{"metadata", "dump"}, from...)...)
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
		older := append([]string{"metadata", "dump", "--snapshot", idAt(5)}, from...)
		if strings.Contains(name, "leader") && !strings.Contains(name, "with") || strings.Contains(name, "never") {
			_, errs := runShoal(t, ExitFailed, older...)
			wantSaid(t, errs, idAt(5))
			continue
		}
		if got, _ := runShoal(t, ExitOK, older...); got != wantOlder {
			t.Errorf("%s, snapshot 5:\n%s\nwant\n%s", name, got, wantOlder)
		}
	}
}

func TestMetadataDumpOfSomeRecords(t *testing.T) {
	h := testHistory(t)
	dir := metadataDir{batches: h.Batches}.write(t)
	count := func(want map[string]int, args ...string) {
		t.Helper()
		out, _ := runShoal(t, ExitOK, append([]string{"metadata", "dump", "--from-dir", dir}, args...)...)
		got := map[string]int{}
		for _, l := range decodeLines[dumpLine](t, out) {
			got[l.Kind]++
		}
		if len(got) != len(want) {
			t.Errorf("%q: %v, want %v", args, got, want)
		}
		for kind, n := range want {
			if got[kind] != n {
				t.Errorf("%q: %v, want %v", args, got, want)
			}
		}
	}
	count(map[string]int{"segment": 5, "node": 2}, "--kind=segment,node")
	count(map[string]int{"table": 1, "tableConfig": 1, "partition": 2, "segment": 4}, "--table=FLIGHTS")
	count(map[string]int{"segment": 1}, "--table=trains", "--kind=segment")
	count(map[string]int{}, "--kind=job")
	_, errs := runShoal(t, ExitFailed, "metadata", "dump", "--from-dir", dir, "--table=boats")
	wantSaid(t, errs, "boats")

	// What is printed is what the record is.
	out, _ := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", dir, "--kind=table")
	for _, l := range decodeLines[dumpLine](t, out) {
		r, err := meta.DecodeRecordJSON(meta.KindTable, l.Record)
		if err != nil || h.Image.Lookup(r.Key()) == nil {
			t.Errorf("%s: %v", l.Record, err)
		}
	}
}

func TestMetadataDumpOfWhatIsDamaged(t *testing.T) {
	h := testHistory(t)
	d := metadataDir{batches: h.Batches, snapshots: []int{4, 9}}
	want, _ := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", d.write(t))
	dir := d.write(t)
	change(t, checkpoint(dir, 9), flipAt(300))
	out, errs := runShoal(t, ExitOK, "metadata", "dump", "--from-dir", dir)
	if out != want {
		t.Errorf("behind a damaged snapshot:\n%s\nwant\n%s", out, want)
	}
	wantSaid(t, errs, "passed over", idAt(9), "from snapshot "+idAt(4))
	_, errs = runShoal(t, ExitNo, "metadata", "dump", "--from-dir", dir, "--snapshot", idAt(9))
	wantSaid(t, errs, "is damaged at byte", idAt(9))

	cut := metadataDir{batches: h.Batches, start: 9, snapshots: []int{9}}.write(t)
	if err := os.Remove(checkpoint(cut, 9)); err != nil {
		t.Fatal(err)
	}
	_, errs = runShoal(t, ExitNo, "metadata", "dump", "--from-dir", cut)
	wantSaid(t, errs, "the log starts at offset 9", "shoal metadata verify --from-dir "+cut)
}

// A controller that does not lead hands out its snapshots, and not the log.
func TestMetadataDumpOfAStandby(t *testing.T) {
	h := testHistory(t)
	server := metadataDir{batches: h.Batches, snapshots: []int{5}}.serve(t)
	good := server.http
	server.http = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.PathLog {
			httpx.WriteError(w, httpx.Errorf(http.StatusMisdirectedRequest, metalog.CodeNotLeader, "this controller does not lead"))
			return
		}
		good.ServeHTTP(w, r)
	})
	_, errs := runShoal(t, ExitFailed, "metadata", "dump", "--url", server.URL)
	wantSaid(t, errs, server.URL+" does not lead", "--from-dir")
	runShoal(t, ExitOK, "metadata", "dump", "--url", server.URL, "--snapshot", idAt(5))
}
