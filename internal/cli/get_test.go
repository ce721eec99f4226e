package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// bytesOf are the segment's, as the builder wrote them.
func (c *cluster) bytesOf(t *testing.T) []byte {
	t.Helper()
	data, err := vfs.ReadFile(c.fs, c.file, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func onlyFile(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("%s holds %v, %v; want %s alone", dir, entries, err, name)
	}
}

func TestGetVerifiesAndDoesNotOverwrite(t *testing.T) {
	c := newCluster(t, 9<<20)
	dir := t.TempDir()
	name := segment.FileName(segmentName, c.sealed.Digest)
	file := filepath.Join(dir, name)
	get := []string{"segments", "get", "flights", segmentName, "-O", dir}

	if status, out, errs := c.shoal(t, get...); status != ExitOK || !strings.Contains(out, "verified") || errs != "" {
		t.Fatalf("status %d, %q, %q", status, out, errs)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, c.bytesOf(t)) {
		t.Fatalf("other bytes, %v", err)
	}
	onlyFile(t, dir, name)
	if status, out, _ := c.shoal(t, get...); status != ExitOK || !strings.Contains(out, "already") {
		t.Errorf("again: status %d, %q", status, out)
	}

	// Other bytes are left alone.
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := c.shoal(t, get...); status != ExitNo || !strings.Contains(errs, "other bytes") {
		t.Errorf("over another file: status %d, %q", status, errs)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "mine" {
		t.Errorf("it holds %q, %v", got, err)
	}
}

func TestGetResumes(t *testing.T) {
	c := newCluster(t, 9<<20)
	dir := t.TempDir()
	root, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	// An earlier get that was interrupted after its first piece.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = peerdl.NewDownloader(peerdl.Config{}).Download(ctx, peerdl.Request{
		Digest: c.Digest(), Size: c.Size(), Sources: []peerdl.Source{{URL: c.segment().Sources[1].URL}},
		FS: root, Part: "mine.parquet.part",
		Progress: func(p peerdl.Progress) {
			if p.HeldBytes > 0 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	status, out, errs := c.shoal(t, "segments", "get", "flights", segmentName, "-O", filepath.Join(dir, "mine.parquet"), "-o", "json")
	var g got
	if err := json.Unmarshal([]byte(out), &g); err != nil || status != ExitOK {
		t.Fatalf("status %d, %v, %q, %q", status, err, out, errs)
	}
	if g.ResumedBytes < segment.PieceSize || g.ResumedBytes+g.FetchedBytes != c.Size() || g.SizeBytes != c.Size() || g.Digest != c.Digest() {
		t.Errorf("got %+v of %d bytes", g, c.Size())
	}
	onlyFile(t, dir, "mine.parquet")
}

func TestGetFromOneNode(t *testing.T) {
	c := newCluster(t, 1)
	dir := t.TempDir()
	status, out, errs := shoalIn(t, "", "--controller", "http://127.0.0.1:1", "segments", "get", "flights", segmentName, "-O", dir, "--node", c.URL+"/node-2")
	if status != ExitOK {
		t.Fatalf("status %d, %q, %q", status, out, errs)
	}
	onlyFile(t, dir, segment.FileName(segmentName, c.Digest()))
}

// Several nodes, without a controller: all of them are used, and one that is down
// is only left out.
func TestGetFromSeveralNodes(t *testing.T) {
	c := newCluster(t, 9<<20)
	dir := t.TempDir()
	status, out, errs := shoalIn(t, "", "--controller", "http://127.0.0.1:1", "segments", "get", "flights", segmentName, "-O", dir,
		"--node", "http://127.0.0.1:1", "--node", c.URL+"/node-1/", "--node", c.URL+"/node-2")
	if status != ExitOK || !strings.Contains(errs, "left out: http://127.0.0.1:1") {
		t.Fatalf("status %d, %q, %q", status, out, errs)
	}
	onlyFile(t, dir, segment.FileName(segmentName, c.Digest()))

	status, _, errs = shoalIn(t, "", "segments", "get", "flights", segmentName, "-O", dir, "--node", "http://127.0.0.1:1", "--node", "http://127.0.0.1:2")
	if status != ExitFailed || !strings.Contains(errs, "127.0.0.1:1") || !strings.Contains(errs, "127.0.0.1:2") {
		t.Errorf("none answers: status %d, %q", status, errs)
	}

	// One that answers, and does not have it.
	const absent = "flights__0__7__20261129T115900Z"
	status, _, errs = shoalIn(t, "", "segments", "get", "flights", absent, "-O", dir, "--node", c.URL+"/node-1", "--node", c.URL+"/node-2")
	if status != ExitFailed || !strings.Contains(errs, c.URL+"/node-1 has no segment "+absent) || !strings.Contains(errs, c.URL+"/node-2 has no segment "+absent) {
		t.Errorf("nobody has it: status %d, %q", status, errs)
	}
	for _, node := range []string{"127.0.0.1:7171", "localhost:7171", "node-1", "ftp://node-1", "http://"} {
		status, _, errs = shoalIn(t, "", "segments", "get", "flights", segmentName, "-O", dir, "--node", node)
		if status != ExitUsage || !strings.Contains(errs, node) || !strings.Contains(errs, "http://HOST:PORT") {
			t.Errorf("--node %s: status %d, %q", node, status, errs)
		}
	}
	status, _, errs = shoalIn(t, "", "--controller", "http://127.0.0.1:1", "segments", "get", "flights", segmentName, "-O", dir)
	if status != ExitFailed || !strings.Contains(errs, "127.0.0.1:1") || !strings.Contains(errs, "--node http://HOST:PORT") {
		t.Errorf("no controller: status %d, %q", status, errs)
	}
	if status, _, errs = c.shoal(t, "segments", "get", "flights", absent, "-O", dir); status != ExitFailed || strings.Contains(errs, "--node") {
		t.Errorf("a controller that answers: status %d, %q", status, errs)
	}

	other := newCluster(t, 1)
	status, _, errs = shoalIn(t, "", "segments", "get", "flights", segmentName, "-O", dir, "--node", c.URL+"/node-1", "--node", other.URL+"/node-1")
	if status != ExitNo || !strings.Contains(errs, c.Digest().String()) || !strings.Contains(errs, other.Digest().String()) {
		t.Errorf("they differ: status %d, %q", status, errs)
	}
}

// deepStore puts the segment and its piece list into a directory as a file:// deep
// store has them, and returns the URI.
func (c *cluster) deepStore(t *testing.T, dir string) (uri string) {
	t.Helper()
	sub := filepath.Join(dir, "store", "flights", "0")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	sidecar, err := c.sealed.Pieces.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	name := segment.FileName(segmentName, c.Digest())
	if err := errors.Join(
		os.WriteFile(filepath.Join(sub, name), c.bytesOf(t), 0o600),
		os.WriteFile(filepath.Join(sub, segment.SidecarName(segmentName, c.Digest())), sidecar, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return "file://" + filepath.Join(sub, name)
}

func TestGetFromADeepStoreInADirectory(t *testing.T) {
	c := newCluster(t, 9<<20)
	dir, root := t.TempDir(), t.TempDir()
	c.sources = []api.SourceView{{URL: c.deepStore(t, root)}}
	get := []string{"segments", "get", "flights", segmentName, "-O", dir}

	if status, _, errs := c.shoal(t, get...); status != ExitFailed || !strings.Contains(errs, "--deepstore-root") {
		t.Errorf("without the root: status %d, %q", status, errs)
	}
	if status, _, errs := c.shoal(t, append(get, "--deepstore-root", t.TempDir())...); status != ExitFailed || !strings.Contains(errs, "--deepstore-root") {
		t.Errorf("below another root: status %d, %q", status, errs)
	}
	absent := filepath.Join(root, "store", "flights", "0", "absent")
	c.sources = append(c.sources, api.SourceView{URL: "file://" + absent + "/x.parquet"})
	if status, _, errs := c.shoal(t, append(get, "--deepstore-root", absent)...); status != ExitUsage || !strings.Contains(errs, "no directory") {
		t.Errorf("below a root that is not there: status %d, %q", status, errs)
	}
	if status, out, errs := c.shoal(t, append(get, "--deepstore-root", root)...); status != ExitOK {
		t.Fatalf("status %d, %q, %q", status, out, errs)
	}
	onlyFile(t, dir, segment.FileName(segmentName, c.Digest()))
}

// A link that the controller hands out is to an object that knows neither our
// ETag nor our routes; and it is as good as a password.
func TestGetByALink(t *testing.T) {
	c := newCluster(t, 9<<20)
	root := t.TempDir()
	file := strings.TrimPrefix(c.deepStore(t, root), "file://")
	expired := false
	objects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if expired || r.URL.Query().Get("signature") != "secret" || r.Header.Get("If-Match") != "" || r.Header.Get("Authorization") != "" {
			http.Error(w, "AccessDenied", http.StatusForbidden)
			return
		}
		w.Header().Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e-2"`)
		http.ServeFile(w, r, filepath.Join(filepath.Dir(file), filepath.Base(r.URL.Path)))
	}))
	t.Cleanup(objects.Close)
	link := api.SourceView{
		URL: "s3://bucket/x.parquet", Link: objects.URL + "/" + filepath.Base(file) + "?signature=secret",
		PiecesLink: objects.URL + "/" + segment.SidecarName(segmentName, c.Digest()) + "?signature=secret",
	}
	node := c.segment().Sources[1]
	get := func(dir string) []string { return []string{"segments", "get", "flights", segmentName, "-O", dir} }
	for _, test := range []struct {
		name    string
		sources []api.SourceView
	}{
		{"alone", []api.SourceView{link}},
		{"the piece list from a node", []api.SourceView{{URL: link.URL, Link: link.Link}, node}},
		{"beside a node", []api.SourceView{link, node}},
	} {
		c.sources = test.sources
		dir := t.TempDir()
		if status, out, errs := c.shoal(t, get(dir)...); status != ExitOK {
			t.Errorf("%s: status %d, %q, %q", test.name, status, out, errs)
		}
		onlyFile(t, dir, filepath.Base(file))
	}

	if status, _, errs := c.shoal(t, append(get(t.TempDir()), "--node", "http://user:secret@127.0.0.1:1")...); status == ExitOK || strings.Contains(errs, "secret") {
		t.Errorf("a node with credentials in its URL: status %d, %q", status, errs)
	}
	for name, source := range map[string]api.SourceView{
		"no piece list anywhere": {URL: link.URL, Link: link.Link},
		"nobody is there":        {URL: link.URL, Link: "http://127.0.0.1:1/x?signature=secret", PiecesLink: "http://127.0.0.1:1/y?signature=secret"},
	} {
		c.sources = []api.SourceView{source}
		status, _, errs := c.shoal(t, get(t.TempDir())...)
		if status != ExitFailed || !strings.Contains(errs, link.URL) || strings.Contains(errs, "secret") {
			t.Errorf("%s: status %d, %q", name, status, errs)
		}
	}
	expired, c.sources = true, []api.SourceView{link}
	if status, _, errs := c.shoal(t, get(t.TempDir())...); status != ExitFailed || !strings.Contains(errs, "403") || strings.Contains(errs, "secret") {
		t.Errorf("expired: status %d, %q", status, errs)
	}
}

func TestGetSaysWhatIsWrong(t *testing.T) {
	c := newCluster(t, 1)
	dir := t.TempDir()
	for _, test := range []struct {
		name   string
		args   []string
		status int
		errs   string
	}{
		{"unknown segment", []string{"flights", "flights__0__7__20261129T115900Z"}, ExitFailed, "TABLE_NOT_FOUND"},
		{"unknown directory", []string{"flights", segmentName, "-O", filepath.Join(dir, "no", "x.parquet")}, ExitFailed, "no directory"},
		{"a name with ..", []string{"flights", "../../leader", "-O", dir}, ExitFailed, "NOT_FOUND"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, _, errs := c.shoal(t, append([]string{"segments", "get"}, test.args...)...)
			if status != test.status || !strings.Contains(errs, test.errs) {
				t.Errorf("status %d, %q", status, errs)
			}
		})
	}
}

func TestVerifyFile(t *testing.T) {
	c := newCluster(t, 9<<20)
	dir := t.TempDir()
	good := c.bytesOf(t)
	bad := bytes.Clone(good)
	bad[segment.PieceSize+5] ^= 1 // in piece 1
	sidecar, err := c.sealed.Pieces.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	name := segment.FileName(segmentName, c.Digest())
	put := func(sub, name string, data []byte) string {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, sub, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	put("side", segment.SidecarName(segmentName, c.Digest()), sidecar)
	garbage := bytes.Repeat([]byte("x"), 1000)
	_, garbageDigest, err := segment.HashFile(bytes.NewReader(garbage), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		args   []string
		status int
		say    string
	}{
		{"good", []string{put("good", name, good)}, ExitOK, "ok"},
		{"good, under any name", []string{put("good", "x", good), "--digest", c.Digest().String()}, ExitOK, "ok"},
		{"a flipped bit", []string{put("bad", name, bad)}, ExitNo, "its digest is"},
		{"a flipped bit beside the sidecar", []string{put("side", name, bad)}, ExitNo, "1 pieces of 3 differ, the first at byte 4194304"},
		{"cut short", []string{put("short", name, good[:len(good)-1])}, ExitNo, "its digest is"},
		{"empty", []string{put("empty", name, nil)}, ExitNo, "empty"},
		{"the right digest, and no segment", []string{put("garbage", "y", garbage), "--digest", garbageDigest.String()}, ExitNo, "not a readable segment"},
		{"nothing to hold it to", []string{put("good", "z", good)}, ExitUsage, "--digest"},
		{"a bad digest", []string{put("good", "z", good), "--digest", "abc"}, ExitUsage, "--digest"},
		{"absent", []string{filepath.Join(dir, "absent")}, ExitFailed, "no such file"},
		{"a directory", []string{dir}, ExitFailed, "not a file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, out, errs := shoalIn(t, "", append([]string{"segments", "verify"}, test.args...)...)
			if status != test.status || !strings.Contains(out+errs, test.say) {
				t.Errorf("status %d, %q, %q", status, out, errs)
			}
		})
	}
}

func TestVerifyCopies(t *testing.T) {
	c := newCluster(t, 1)
	c.damaged["node-2"] = true
	status, out, errs := c.shoal(t, "segments", "verify", "flights", segmentName)
	if status != ExitNo || !strings.Contains(out, "piece 1 is damaged") || !strings.Contains(errs, "not every copy") {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
}

// Without an answer of any node nothing is known, which is not a no; one good answer
// beside a node that is away is.
func TestVerifyCopiesThatNobodyAnswersFor(t *testing.T) {
	c := newCluster(t, 1)
	away := api.SourceView{Node: "node-3", URL: "http://127.0.0.1:1"}
	up := c.segment().Sources[1]
	for _, test := range []struct {
		name    string
		sources []api.SourceView
		status  int
		say     string
	}{
		{"no node is up", []api.SourceView{{URL: "s3://bucket/x.parquet"}}, ExitFailed, "nobody could be asked"},
		{"none answers", []api.SourceView{away}, ExitFailed, "nothing is known"},
		{"one answers", []api.SourceView{away, up}, ExitNo, "not every copy"},
	} {
		c.sources = test.sources
		if status, _, errs := c.shoal(t, "segments", "verify", "flights", segmentName); status != test.status || !strings.Contains(errs, test.say) {
			t.Errorf("%s: status %d, %q", test.name, status, errs)
		}
	}
}
