package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// TestBadRows: a row that does not decode is kept as it is and says why; it is
// a row like any other to everything else.
func TestBadRows(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", nil)
	bad := map[int64]string{}
	for _, c := range []struct{ row, says string }{
		{"not JSON", "JSON"},
		{"", "empty"},
		{`{"id":1,"text":"cut`, ""},
		{`{"id":"one","text":"a number as a word"}`, "id"},
		{`{"id":1,"text":7}`, "text"},
		{`{"id":9223372036854775808,"text":"too large by one"}`, "id"},
		{`[1,2,3]`, "object"},
		{`{"id":1} {"id":2}`, ""},
		{"{\"id\":1,\"text\":\"\x00\"}", ""},
		{strings.Repeat("[", 100_000), ""},
	} {
		p.add(3)
		bad[p.next[0]] = c.says
		p.raw(0, []byte(c.row))
	}
	f.prove("events", p)
	for _, s := range f.committedSegments("events") {
		body := f.fetch(f.nodes[0].url, s)
		r, err := segment.OpenFile(bytes.NewReader(body), int64(len(body)))
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range r.Rows() {
			if err != nil {
				t.Fatal(err)
			}
			says, isBad := bad[row.Offset]
			if isBad != (row.Error != "") || !strings.Contains(row.Error, says) {
				t.Errorf("row %d, %.60q, has the error %q; want %q in it", row.Offset, row.Value, row.Error, says)
			}
		}
	}
}

// TestLargeRows: a row of 20 MB is a row like any other. One of 40 MB is too
// much: the partition stops and says where, goes on once the row is mended, and
// has lost nothing.
func TestLargeRows(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 2)
	f.createTable("events", map[string]any{"completion": map[string]any{"holdTime": "100ms"}})
	p.add(30)
	p.raw(0, largeRow(30, 20_000_000))
	p.add(30)
	f.awaitComplete("events", p.ends(), f.urls())

	const size = 40_000_000
	line := p.next[1] + 5
	p.add(5)
	p.raw(1, largeRow(line, size))
	p.add(300) // so that partition 0 fills segments, whatever becomes of 1
	f.await("ERROR of partition 1", func() (bool, string) {
		parts := f.partitions("events")
		return parts[1].State == meta.PartitionError, asJSON(parts[1], nil)
	})
	f.await("the error in the record of its segment", func() (bool, string) {
		c := f.partitions("events")[1].Consuming
		return c != nil && c.LastError != nil && namesAll(c.LastError.Error, p.file(1), fmt.Sprint(line), fmt.Sprint(size)), asJSON(c, nil)
	})
	f.await("the segment among those with a problem", func() (bool, string) {
		with, err := list[api.SegmentView](func(path string, out any) error {
			return f.fromController(path+"&problem=error", out)
		}, "/segments/events")
		return err == nil && len(with) == 1 && with[0].Partition == 1, asJSON(with, err)
	})
	f.await("the error at each node", func() (bool, string) {
		for _, base := range f.urls() {
			var views []api.ConsumingView
			if err := f.fromNode(base)("/partitions", &views); err != nil {
				return false, err.Error()
			}
			found := false
			for _, v := range views {
				found = found || v.Partition == 1 && v.State == "ERROR" && namesAll(v.LastError, p.file(1), fmt.Sprint(line), fmt.Sprint(size))
			}
			if !found {
				return false, asJSON(views, nil)
			}
		}
		return true, ""
	})
	f.await("partition 0 going on", func() (bool, string) {
		parts := f.partitions("events")
		return parts[0].NextOffset >= 300, asJSON(parts[0], nil)
	})

	mended := bytes.Replace(readFile(t, p.file(1)), largeRow(line, size), p.row(1, line), 1)
	replaceFile(t, p.file(1), mended)
	f.prove("events", p)
	if state := f.partitions("events")[1].State; state != meta.PartitionConsuming {
		t.Errorf("partition 1 is %s after all", state)
	}
}

// largeRow is a JSON row of exactly size bytes.
func largeRow(id int64, size int) []byte {
	head := fmt.Sprintf(`{"id":%d,"text":"`, id)
	return []byte(head + strings.Repeat("x", size-len(head)-len(`"}`)) + `"}`)
}

func namesAll(text string, what ...string) bool {
	for _, w := range what {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// replaceFile puts another file in the place of one, as an editor does.
func replaceFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// TestBadRequests hands in what people and attackers do. Each is answered with
// a problem that names what is wrong, and nothing comes of it.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", nil)
	p.add(250)
	f.awaitCommitted("events", 200)
	node, ctl := f.nodes[0].url, f.controller.url
	long := strings.Repeat("a", 3<<20)

	for _, c := range []struct {
		name, method, url, body string
		status                  int
		code                    string
		says                    []string
	}{
		{"five mistakes in a table", "POST", ctl + "/tables", `
name: two__parts
stream: {type: files, path: ../outside}
replication: 0
segment: {maxRows: many, compresion: zstd}
`, 422, api.CodeInvalidConfig, []string{"name", "two__parts", "stream.path", "../outside", "replication", "segment.maxRows", "many", "segment.compresion"}},
		{"the same, only to be told", "POST", ctl + "/tables/validate", `{"name": "", "stream": {"type": "kafka"}, "replication": -1, "download": "never", "colour": "red"}`,
			422, api.CodeInvalidConfig, []string{"name", "stream.type", "kafka", "replication", "download", "never", "colour"}},
		{"a table twice, in other letters", "POST", ctl + "/tables", `{"name": "EVENTS", "stream": {"path": "events"}}`, 409, "TABLE_EXISTS", []string{"events"}},
		{"a deep store outside the roots", "POST", ctl + "/tables", `{"name": "x", "stream": {"path": "events"}, "deepStore": {"uri": "file:///etc"}}`,
			422, api.CodeInvalidConfig, []string{"deepStore.uri", "file:///etc"}},
		{"a table of 3 MB", "POST", ctl + "/tables", `{"name": "` + long + `"}`, 413, httpx.CodeBodyTooLarge, []string{"body", "1048576"}},
		{"a message of 3 MB", "POST", ctl + "/protocol/segmentConsumed", `{"segment": "` + long + `"}`, 413, httpx.CodeBodyTooLarge, []string{"body"}},
		{"a registration of 3 MB", "POST", ctl + "/nodes/register", `{"node": "` + long + `"}`, 413, httpx.CodeBodyTooLarge, []string{"body"}},
		{"a heartbeat of 3 MB", "POST", ctl + "/nodes/heartbeat", `{"node": "` + long + `"}`, 413, httpx.CodeBodyTooLarge, []string{"body"}},
		{"a report of 9 MB", "POST", ctl + "/locations", `{"node": "` + long + long + long + `"}`, 413, httpx.CodeBodyTooLarge, []string{"body"}},
		{"a message that is not JSON", "POST", ctl + "/protocol/segmentConsumed", "{", 400, httpx.CodeInvalidRequest, []string{"JSON"}},
		{"a node that says it is another host", "POST", ctl + "/nodes/register",
			`{"node": "n", "url": "http://192.0.2.1:1", "storeId": "6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c01", "bootId": "6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c01"}`,
			403, api.CodeURLNotAllowed, []string{"192.0.2.1"}},
		{"a snapshot written to a node", "DELETE", node + "/metadata/snapshots/00000000000000000001-0000000001", "", 405, "METHOD_NOT_ALLOWED", []string{"only read"}},
		{"a snapshot asked of a node", "POST", node + "/metadata/snapshots", "", 405, "METHOD_NOT_ALLOWED", []string{"only read"}},
		{"a name with ..", "GET", node + "/segments/events/..%2f..%2fidentity.json", "", 400, httpx.CodeInvalidRequest, []string{"identity.json", "segment"}},
		{"a name with .., all of it encoded", "GET", node + "/segments/events/%2e%2e%2fstore.id", "", 400, httpx.CodeInvalidRequest, []string{"store.id", "segment"}},
		{"a name with .. and pieces", "GET", node + "/segments/events/..%2f..%2fidentity.json/pieces", "", 400, httpx.CodeInvalidRequest, []string{"identity.json"}},
		{"a table with ..", "GET", node + "/segments/..%2f../events__0__0__20260101T000000Z", "", 404, api.CodeTableNotFound, []string{".."}},
		{"a name with .. for its events", "GET", node + "/segments/events/..%2fx/events", "", 400, httpx.CodeInvalidRequest, []string{"segment"}},
		{"a name with .. to verify", "POST", node + "/segments/events/..%2fx/verify", "", 400, httpx.CodeInvalidRequest, []string{"segment"}},
		{"a name with .. at the controller", "GET", ctl + "/segments/events/..%2f..%2fLOCK", "", 400, httpx.CodeInvalidRequest, []string{"LOCK", "segment"}},
		{"a name with .. and metadata", "GET", ctl + "/segments/events/%2e%2e%2fx/metadata", "", 400, httpx.CodeInvalidRequest, []string{"segment"}},
		{"a segment of another table", "GET", node + "/segments/events/other__0__0__20260101T000000Z", "", 404, api.CodeSegmentNotFound, []string{"other__0__0"}},
		{"a partition that is no number", "GET", ctl + "/segments/events?partition=first", "", 400, httpx.CodeInvalidRequest, []string{"partition", "first"}},
		{"a page of a million", "GET", ctl + "/segments/events?limit=1000000", "", 400, httpx.CodeInvalidRequest, []string{"limit"}},
		{"a filter misspelt", "GET", ctl + "/segments/events?problm=any", "", 400, httpx.CodeInvalidRequest, []string{"problm", "problem"}},
		{"a dry run misspelt", "POST", ctl + "/validation/run?dryrun=true", "", 400, httpx.CodeInvalidRequest, []string{"dryrun", "dryRun"}},
		{"a deletion only to be shown", "DELETE", ctl + "/tables/events?dryRun=true", "", 400, httpx.CodeInvalidRequest, []string{"dryRun"}},
		{"a check of a node with a parameter", "POST", node + "/segments/events/events__0__0__20260101T000000Z/verify?repair=false", "", 400, httpx.CodeInvalidRequest, []string{"repair"}},
		{"no such table", "GET", ctl + "/tables/nothing/coverage", "", 404, api.CodeTableNotFound, []string{"nothing"}},
	} {
		answer := request(t, c.method, c.url, c.body)
		var problem *httpx.Error
		if !errors.As(answer, &problem) || problem.Status != c.status || problem.Code != c.code || !namesAll(problem.Message, c.says...) {
			t.Errorf("%s: got %v, want %d %s that names %q", c.name, answer, c.status, c.code, c.says)
		}
	}
	// Plain dots never get further than the server's own cleaning of paths.
	for _, base := range []string{node, ctl} {
		for _, path := range []string{"/segments/events/../../identity.json", "/segments/../../../etc/passwd", "/segments/events/.."} {
			if status, body := rawGet(t, base, path); status == http.StatusOK && bytes.Contains(body, []byte("clusterId")) || bytes.Contains(body, []byte("root:")) {
				t.Errorf("GET %s%s: %d: %.200s", base, path, status, body)
			}
		}
	}
	f.prove("events", p)
	f.checkHistory()
}

// request makes a request whose path is taken as it is, and returns the problem
// that it is answered with.
func request(t *testing.T, method, url, body string) error {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	c := &httpx.Client{HTTP: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	defer c.Close()
	res, err := c.Do(req)
	if err == nil {
		res.Body.Close()
	}
	return err
}

// rawGet sends a path without anybody's cleaning it first, and follows nothing.
func rawGet(t *testing.T, base, path string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, base, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque = path
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

// TestStreamThatIsNotThere: a table may be made before its stream. It says what
// it is waiting for, and begins when that is there.
func TestStreamThatIsNotThere(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	f.createTable("later", nil)
	dir := filepath.Join(f.streamRoot(), "later")
	says := func(what string, want ...string) {
		t.Helper()
		f.await(what, func() (bool, string) {
			var tv api.TableView
			err := f.fromController("/tables/later", &tv)
			return err == nil && tv.State == meta.TableCreating && namesAll(tv.LastError, want...), asJSON(tv, err)
		})
	}
	says("the error that names the directory", dir, "does not exist")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	says("the error that there are no partitions", "no partitions")
	p := newProducer(t, f.streamRoot(), "later", 2)
	p.add(50)
	f.await("the table to be ACTIVE", func() (bool, string) {
		var tv api.TableView
		err := f.fromController("/tables/later", &tv)
		return err == nil && tv.State == meta.TableActive && tv.LastError == "", asJSON(tv, err)
	})

	// And it is gone for a while: the coverage says so. The nodes are stopped
	// meanwhile, because a reader that finds it gone stops for good.
	f.stopNodes()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := request(t, "GET", f.controller.url+"/tables/later/coverage", ""); err == nil || !namesAll(err.Error(), "STREAM_UNAVAILABLE", dir) {
		t.Errorf("coverage without the stream: %v; want it to name %s", err, dir)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	f.startNodes()
	f.prove("later", p)
}
