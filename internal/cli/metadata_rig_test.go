package cli

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
)

// testHistory is a log of two epochs: nodes, a table, segments, and a request for a
// snapshot at batch 6.
func testHistory(t *testing.T) *metatest.Log {
	l := metatest.NewLog(t)
	l.AddNode(t, "n1", "a")
	l.AddNode(t, "n2", "b")
	id := l.AddTable(t, metatest.Config("flights"), 2)
	l.Do(t, meta.SnapshotHere)
	l.Do(t, meta.CommitSegment(l.Commit(t, meta.PartitionKey{Table: id}, 7)))
	l.TakeOver(t)
	l.AddTable(t, metatest.Config("trains"), 1)
	l.Do(t, meta.CommitSegment(l.Commit(t, meta.PartitionKey{Table: id}, 5)))
	return l
}

// metadataDir is the data directory of a process that has this much.
type metadataDir struct {
	batches   []*meta.Batch
	start     int   // of the log
	snapshots []int // where they end
	node      bool
}

func (d metadataDir) logDir() string {
	if d.node {
		return nodeLogDir
	}
	return controllerLogDir
}

// write makes the directory, with a file for each few batches.
func (d metadataDir) write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	disk, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := metalog.OpenLog(disk, metalog.LogOptions{Dir: d.logDir(), FileBytes: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if d.start > 0 {
		if err := log.Reset(metalog.After(d.batches[d.start-1])); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range d.batches[d.start:] {
		if err := log.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	im := meta.Empty()
	for _, b := range d.batches {
		if im, err = im.Apply(b); err != nil {
			t.Fatal(err)
		}
		for _, end := range d.snapshots {
			if int64(end) == im.Next() {
				if _, err := metalog.WriteSnapshot(t.Context(), disk, metalog.SnapshotsDir, im); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if !d.node && len(d.batches) > 0 {
		if err := metalog.RaiseEpoch(disk, im.Epoch()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lock holds the directory as a process does.
func lock(t *testing.T, dir string) {
	t.Helper()
	disk, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	held, err := disk.Lock(lockFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { held.Close() })
}

// fingerprint is of all that a directory has in it.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(h, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if e.Type().IsRegular() {
			data, err := os.ReadFile(path)
			h.Write(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// change replaces the bytes of a file, whatever its mode.
func change(t *testing.T, name string, f func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		data = f(data)
		err = errors.Join(os.Remove(name), os.WriteFile(name, data, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flipAt(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		b[at] ^= 4
		return b
	}
}

// metadataServer serves a directory by the routes that its process has.
type metadataServer struct {
	*httptest.Server
	dir  string
	log  *metalog.Log
	http http.Handler // what is asked, for tests to stand before it
	logs *metalog.Server
}

// lead makes the process the leader of an epoch, before the first batch of that is
// appended: whoever has read it asks with its epoch, and no leader of an older one answers.
func (s *metadataServer) lead(epoch int64) {
	st, _ := s.logs.Standing()
	st.Epoch = epoch
	s.logs.SetStanding(st)
}

// serve opens the directory as its process does.
func (d metadataDir) serve(t *testing.T) *metadataServer {
	t.Helper()
	s := &metadataServer{dir: d.write(t)}
	disk, err := vfs.OS(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	s.http = mux
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.http.ServeHTTP(w, r) }))
	t.Cleanup(s.Close)

	var snaps *metalog.Snapshots
	standing := metalog.Standing{Cluster: metatest.ID("cluster"), Epoch: 2, URL: s.URL, Leading: !d.node}
	if d.node {
		f, err := metalog.OpenFollower(metalog.FollowerConfig{
			FS: disk, Dir: nodeLogDir, SnapshotsDir: metalog.SnapshotsDir, Rand: rand.New(rand.NewSource(1)), Client: &httpx.Client{}, Logger: zerolog.Nop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		snaps, standing.URL = f.Snapshots(), ""
		mux.Handle("GET "+metalog.CopyPath, f.CopyServer(zerolog.Nop()))
	} else {
		if snaps, err = metalog.OpenSnapshots(disk, "", zerolog.Nop()); err != nil {
			t.Fatal(err)
		}
		if s.log, err = metalog.OpenLog(disk, metalog.LogOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.log.Close() })
		s.logs = metalog.NewServer(metalog.ServerConfig{Log: s.log, Logger: zerolog.Nop(), Snapshots: func() (*metalog.SnapshotRef, *metalog.SnapshotRef) {
			return snaps.Earliest(), snaps.Latest()
		}})
		s.logs.SetStanding(standing)
		mux.Handle("GET "+api.PathLog, s.logs)
		mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
			st, _ := s.logs.Standing()
			_ = httpx.WriteJSON(w, http.StatusOK, api.LeaderView{ClusterID: st.Cluster, Leader: s.URL, Controller: "c", Epoch: st.Epoch, HighWatermark: s.log.End()})
		})
	}
	files := snapshots.NewServer(snapshots.ServerConfig{Snapshots: snaps, Logger: zerolog.Nop(), Standing: func() (metalog.Standing, bool) {
		if d.node {
			return standing, false
		}
		return s.logs.Standing()
	}})
	mux.Handle("GET "+snapshots.Path, files)
	mux.Handle("GET "+snapshots.Path+"/", files)
	return s
}

// runShoal runs a command line and expects an exit status.
func runShoal(t *testing.T, status int, args ...string) (out, errs string) {
	t.Helper()
	got, out, errs := shoalIn(t, "", args...)
	if got != status {
		t.Fatalf("%q: status %d, want %d\n%s%s", args, got, status, out, errs)
	}
	return out, errs
}

// decode reads what is printed for machines.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// decodeLines reads one object a line.
func decodeLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, decode[T](t, line))
	}
	return all
}

func wantSaid(t *testing.T, said string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not in: %s", part, said)
		}
	}
}

// openLog opens the log of a controller's directory, as its process has it.
func openLog(t *testing.T, dir string) *metalog.Log {
	t.Helper()
	disk, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := metalog.OpenLog(disk, metalog.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
