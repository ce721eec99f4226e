package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
)

// TestDamagedCopies flips bits, cuts and removes files in one node's store,
// while it runs and while it does not. Damage is noticed by whoever looks, the
// copy stops counting, a good one is fetched from a peer, and the bytes that
// were damaged are not gone before that.
func TestDamagedCopies(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", nil)
	p.add(1050)
	f.awaitCommitted("events", 1000)
	f.awaitReplicated("events")
	f.awaitServed("events")
	segments, node := f.committedSegments("events"), f.nodes[1]
	t.Logf("all of it happens to %s", node.name)

	t.Run("a bit in a segment, and verify", func(t *testing.T) {
		s := segments[0]
		flip(t, f.copyOf(node, s, ".parquet"), 0.5)
		if ok, problem := f.verify(node, s); ok || !namesAll(problem, s.Name, "damaged", "piece") {
			t.Errorf("verify says ok=%v, %q; want it to name the segment and the piece", ok, problem)
		}
		f.awaitEvents(node, s, "damaged", "download")
		f.awaitMended(node, s)
	})
	t.Run("a bit in a sidecar, and verify", func(t *testing.T) {
		s := segments[1]
		data := f.copyOf(node, s, ".parquet")
		inode := inodeOf(t, data)
		flip(t, f.copyOf(node, s, ".pieces"), 0.9)
		if ok, problem := f.verify(node, s); !ok {
			t.Errorf("verify says %q; the data is good, and the sidecar can be made anew", problem)
		}
		f.awaitEvents(node, s, "the sidecar was damaged and made anew")
		f.awaitMended(node, s)
		if inodeOf(t, data) != inode {
			t.Error("the data was fetched again")
		}
	})
	t.Run("a bit in a sidecar, and a reader", func(t *testing.T) {
		s := segments[2]
		flip(t, f.copyOf(node, s, ".pieces"), 0.9)
		if status, body := getSegment(t, node, s); status != http.StatusServiceUnavailable || !namesAll(body, api.CodeNoSource, s.Name, "damaged") {
			t.Errorf("a reader got %d: %.200s; want to be sent to another source", status, body)
		}
		f.awaitMended(node, s)
	})
	t.Run("a segment cut short, and a reader", func(t *testing.T) {
		s := segments[3]
		if err := os.Truncate(f.copyOf(node, s, ".parquet"), s.SizeBytes/2); err != nil {
			t.Fatal(err)
		}
		if status, body := getSegment(t, node, s); status < 500 {
			t.Errorf("a reader got %d: %.200s", status, body)
		}
		f.awaitMended(node, s)
	})
	t.Run("a segment that is gone, and a reader", func(t *testing.T) {
		s := segments[4]
		if err := os.Remove(f.copyOf(node, s, ".parquet")); err != nil {
			t.Fatal(err)
		}
		if status, body := getSegment(t, node, s); status < 500 {
			t.Errorf("a reader got %d: %.200s", status, body)
		}
		f.awaitMended(node, s)
	})
	t.Run("a sidecar that is gone, and a reader", func(t *testing.T) {
		s := segments[5]
		if err := os.Remove(f.copyOf(node, s, ".pieces")); err != nil {
			t.Fatal(err)
		}
		if status, body := getSegment(t, node, s); status < 500 {
			t.Errorf("a reader got %d: %.200s", status, body)
		}
		f.awaitMended(node, s)
	})
	t.Run("all of that while the node is stopped", func(t *testing.T) {
		node.stop()
		flip(t, f.copyOf(node, segments[6], ".pieces"), 0.9)
		if err := os.Truncate(f.copyOf(node, segments[7], ".parquet"), segments[7].SizeBytes-1); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(f.copyOf(node, segments[8], ".parquet")); err != nil {
			t.Fatal(err)
		}
		flip(t, newestCache(t, node), 0.3)
		node.start()
		f.awaitNodes(3)
		for _, s := range segments[6:9] {
			f.awaitMended(node, s)
		}
		if corrupt := filesBelow(t, filepath.Join(node.data(), "cache.corrupt")); len(corrupt) == 0 {
			t.Error("the damaged cache was not set aside as cache.corrupt")
		}
		if log := string(readFile(t, node.log)); !namesAll(log, "the cache of the metadata log is set aside", "is damaged at byte") {
			t.Error("the log does not say that the cache was damaged")
		}
	})
	if t.Failed() {
		return
	}
	f.prove("events", p)
	sameSegments(t, segments, f.committedSegments("events"))
	f.checkHistory()
}

// TestEveryCopyDamaged: no node has a good copy of a segment any more. The
// damaged ones are kept, for they are the last, until the bytes are there again:
// out of the deep store if the table has one, else made anew from the stream.
func TestEveryCopyDamaged(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{nodes: 2})
	backed := newProducer(t, f.streamRoot(), "backed", 1)
	alone := newProducer(t, f.streamRoot(), "alone", 1)
	f.createTable("backed", map[string]any{"deepStore": f.withDeepStore()})
	f.createTable("alone", nil)
	for _, p := range []*producer{backed, alone} {
		p.add(250)
	}
	f.awaitCommitted("backed", 200)
	f.awaitCommitted("alone", 200)
	for _, table := range []string{"backed", "alone"} {
		f.awaitReplicated(table)
		f.awaitServed(table)
		s := f.committedSegments(table)[0]
		for _, n := range f.nodes {
			flip(t, f.copyOf(n, s, ".parquet"), 0.5)
		}
		for _, n := range f.nodes {
			if ok, _ := f.verify(n, s); ok {
				t.Errorf("%s verified a damaged copy of %s", n.name, s.Name)
			}
		}
		for _, n := range f.nodes {
			f.awaitMended(n, s)
		}
		f.awaitEvents(f.nodes[0], s, "damaged")
	}
	f.prove("backed", backed)
	f.prove("alone", alone)
	f.checkHistory()
}

// TestDamageDoesNotSpread: a node with an empty disk fetches everything while one
// of its two peers has a flipped bit in each of its copies and does not know.
// What it installs is right all the same.
func TestDamageDoesNotSpread(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", nil)
	p.add(650)
	f.awaitCommitted("events", 600)
	f.awaitReplicated("events")
	f.awaitServed("events")
	bad, fresh, segments := f.nodes[0], f.nodes[2], f.committedSegments("events")
	for _, s := range segments {
		flip(t, f.copyOf(bad, s, ".parquet"), 0.4)
	}
	fresh.kill()
	if err := os.RemoveAll(fresh.data()); err != nil {
		t.Fatal(err)
	}
	fresh.start()
	f.await(fresh.name+" in with its new store", func() (bool, string) {
		items, err := f.inventory(fresh.url)
		return err == nil && len(items) >= len(segments), asJSON(items, err)
	})
	for _, s := range segments {
		f.awaitMended(fresh, s)
	}
	for _, s := range segments {
		if ok, _ := f.verify(bad, s); ok {
			t.Errorf("%s verified a damaged copy of %s", bad.name, s.Name)
		}
		f.awaitMended(bad, s)
	}
	f.prove("events", p)
	f.checkHistory()
}

// copyOf is the file of a node's copy; each segment of these tests has one.
func (f *fleet) copyOf(n *process, s api.SegmentView, ext string) string {
	f.t.Helper()
	for _, file := range filesBelow(f.t, filepath.Join(n.data(), "segments")) {
		if strings.HasPrefix(filepath.Base(file), s.Name+"-"+s.Digest.Short()) && filepath.Ext(file) == ext {
			return file
		}
	}
	f.t.Fatalf("%s has no %s of %s", n.name, ext, s.Name)
	return ""
}

// flip flips one bit of a file, at a share of its length.
func flip(t *testing.T, file string, at float64) {
	t.Helper()
	h, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	info, err := h.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b, pos := make([]byte, 1), int64(at*float64(info.Size()))
	if _, err := h.ReadAt(b, pos); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := h.WriteAt(b, pos); err != nil {
		t.Fatal(err)
	}
}

// verify has a node read its copy in full.
func (f *fleet) verify(n *process, s api.SegmentView) (ok bool, problem string) {
	f.t.Helper()
	var answer struct {
		OK      bool
		Problem string
	}
	if err := f.http.PostJSON(f.t.Context(), n.url+"/segments/"+s.TableName+"/"+s.Name+"/verify", nil, &answer); err != nil {
		f.t.Fatal(err)
	}
	return answer.OK, answer.Problem
}

func getSegment(t *testing.T, n *process, s api.SegmentView) (status int, body string) {
	t.Helper()
	res, err := http.Get(n.url + "/segments/" + s.TableName + "/" + s.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// awaitMended waits until the node has a copy that is right, is listed with it,
// and holds no damaged one any more.
func (f *fleet) awaitMended(n *process, s api.SegmentView) {
	f.t.Helper()
	f.await("a good copy of "+s.Name+" on "+n.name, func() (bool, string) {
		status, body := getSegment(f.t, n, s)
		if status != http.StatusOK {
			return false, fmt.Sprintf("%d %.200s", status, body)
		}
		if digestOf([]byte(body)) != s.Digest {
			return false, "the node serves other bytes"
		}
		items, err := f.inventory(n.url)
		var of []api.InventoryItem
		for _, it := range items {
			if it.Segment == s.Name {
				of = append(of, it)
			}
		}
		return err == nil && len(of) == 1 && of[0].State == "SEALED", asJSON(of, err)
	})
	f.await("every copy of "+s.Name+" listed", func() (bool, string) {
		var now api.SegmentView
		err := f.fromController("/segments/"+s.TableName+"/"+s.Name+"/metadata", &now)
		return err == nil && now.CountedCopies == len(f.nodes), asJSON(now, err)
	})
	if ok, problem := f.verify(n, s); !ok {
		f.t.Errorf("%s on %s: %s", s.Name, n.name, problem)
	}
}

// awaitEvents waits until the segment's life has entries with these words.
func (f *fleet) awaitEvents(n *process, s api.SegmentView, words ...string) {
	f.t.Helper()
	f.await("the life of "+s.Name, func() (bool, string) {
		var life struct{ Life []api.SegmentEvent }
		err := f.fromController("/segments/"+s.TableName+"/"+s.Name+"/metadata", &life)
		said := asJSON(life, err)
		return err == nil && namesAll(said, append(words, n.name)...), said
	})
}

// inodeOf tells a file from another one in its place.
func inodeOf(t *testing.T, file string) uint64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// newestCache is the last file of a node's cache of the log.
func newestCache(t *testing.T, n *process) string {
	t.Helper()
	files := filesBelow(t, filepath.Join(n.data(), "cache"))
	slices.Sort(files)
	return files[len(files)-1]
}

// TestDamagedLog: a controller whose log is damaged does not guess. It refuses
// to start and says which file and where; mended, it goes on as before. Only a
// torn end is cut off, as that was never acknowledged.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{nodes: 2})
	p := newProducer(t, f.streamRoot(), "events", 1)
	f.createTable("events", nil)
	p.add(350)
	f.awaitCommitted("events", 300)
	f.awaitReplicated("events")
	before := f.committedSegments("events")
	f.controller.stop()
	log := newestLog(t, f.controller.data())
	good := readFile(t, log)
	for name, at := range map[string]int{
		"the file's header": 20, "the first frame's length": 48 + 5, "a payload in the middle": len(good) / 2, "the last byte": len(good) - 1, "the last payload": len(good) - 10,
	} {
		t.Run(name, func(t *testing.T) {
			bad := slices.Clone(good)
			bad[at] ^= 0x01
			replaceFile(t, log, bad)
			broken := f.process(t, "damaged-controller", f.controller.role)
			broken.refuses(filepath.Base(log), "is damaged at byte")
			if now := readFile(t, log); !slices.Equal(now, bad) {
				t.Error("the damaged log was changed")
			}
		})
	}
	// A power cut in the middle of an append that nobody was told of.
	replaceFile(t, log, append(slices.Clone(good), good[48:48+30]...))
	f.controller.start()
	f.awaitNodes(2)
	f.prove("events", p)
	sameSegments(t, before, f.committedSegments("events"))
	f.checkHistory()
}
