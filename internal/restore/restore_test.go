package restore

import (
	"context"
	"errors"
	"io/fs"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// whole checks that a directory is one that a controller starts on, and has these batches.
func whole(t *testing.T, disk vfs.FS, batches []*meta.Batch) {
	t.Helper()
	if _, err := disk.Stat(modeFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v; want none", modeFile, err)
	}
	v, err := metalog.Verify(metalog.VerifyConfig{
		FS: disk, LogDir: LogDir, SnapshotsDir: metalog.SnapshotsDir, Led: true, Same: func(_, _ *meta.Image) error { return nil },
	})
	if err != nil || len(v.Findings) > 0 {
		t.Errorf("found %+v, %v", v, err)
	}
	wantImage(t, recovered(t, disk), batches)
}

func TestRestore(t *testing.T) {
	batches := history(testCluster, 0, run{1, 6, ""}, run{3, 6, ""})
	for name, test := range map[string]struct {
		nodes []has
		end   int // of what is restored
		from  int // which node
		log   int64
	}{
		"the whole log":                                {[]has{{batches: batches}}, 12, 0, 12},
		"a snapshot and the tail":                      {[]has{{batches: batches, start: 2, snapshots: []int{4, 7}}}, 12, 0, 5},
		"a snapshot without a log":                     {[]has{{batches: batches[:7], start: 7, snapshots: []int{7}}}, 7, 0, 0},
		"a snapshot past the log":                      {[]has{{batches: batches[:4], snapshots: []int{7}, future: batches}}, 7, 0, 0},
		"the furthest of three":                        {[]has{{batches: batches[:9]}, {batches: batches[:11], snapshots: []int{8}}, {batches: batches[:3]}}, 11, 1, 3},
		"one has nothing":                              {[]has{{}, {batches: batches[:5]}}, 5, 1, 5},
		"one ends before the log of the others begins": {[]has{{batches: batches[:3]}, {batches: batches, start: 8, snapshots: []int{8}}}, 12, 1, 4},
		"two are as far":                               {[]has{{batches: batches, snapshots: []int{5}}, {batches: batches, start: 9, snapshots: []int{9}}}, 12, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var servers []*server
			for _, h := range test.nodes {
				h.standing = metalog.Standing{Cluster: testCluster, Epoch: 5}
				servers = append(servers, h.node(t))
			}
			disk := vfs.NewMem()
			r, err := into(t, disk, servers...)
			if err != nil {
				t.Fatal(err)
			}
			whole(t, disk, batches[:test.end])
			last := batches[test.end-1]
			if r.ClusterID != testCluster || r.Offset != last.Offset || r.Epoch != last.Epoch || r.Term != last.Term || r.Time.UnixMilli() != last.Time {
				t.Errorf("%+v", r)
			}
			if r.From != servers[test.from].URL || r.Batches != test.log {
				t.Errorf("%d batches from %s, want %d from %s", r.Batches, r.From, test.log, servers[test.from].URL)
			}
			if len(r.Asked) != len(servers) {
				t.Errorf("asked %+v", r.Asked)
			}
			epoch, err := metalog.ClaimEpoch(disk, r.Epoch)
			if err != nil || epoch != r.NextEpoch || epoch <= 5+epochMargin {
				t.Errorf("the controller opens epoch %d, %v; %d was said, and a node knows of 5", epoch, err, r.NextEpoch)
			}
			if _, err := into(t, disk, servers...); err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Errorf("once more over it: %v", err)
			}
		})
	}
}

func TestRestoreRefuses(t *testing.T) {
	batches := history(testCluster, 0, run{1, 6, ""}, run{3, 6, ""})
	standing := metalog.Standing{Cluster: testCluster, Epoch: 3}
	dead := &httptest.Server{URL: httpxtest.Refusing(t)}
	good := has{batches: batches, standing: standing}
	twice := good.node(t)
	for name, test := range map[string]struct {
		servers []*server
		disk    func(t *testing.T, disk vfs.FS)
		says    []string
	}{
		"two clusters": {[]*server{good.node(t), has{batches: history(otherCluster, 0, run{1, 3, ""})}.node(t)}, nil,
			[]string{"two histories", testCluster.String(), otherCluster.String()}},
		"another term at the same offset": {[]*server{good.node(t), has{batches: history(testCluster, 0, run{1, 6, ""}, run{3, 6, "other"})}.node(t)}, nil,
			[]string{"two histories", "before offset 12"}},
		"another term before that": {[]*server{good.node(t), has{batches: history(testCluster, 0, run{1, 6, ""}, run{2, 3, ""})}.node(t)}, nil,
			[]string{"two histories", "epoch 3", "epoch 2", "before offset 9"}},
		"longer, of a lower epoch": {[]*server{good.node(t), has{batches: history(testCluster, 0, run{1, 20, ""})}.node(t)}, nil,
			[]string{"two histories", "before offset 12", "before offset 20"}},
		"a node that does not answer": {[]*server{good.node(t), {Server: dead}}, nil, []string{dead.URL}},
		"a controller":                {[]*server{good.leader(t)}, nil, []string{"is a controller"}},
		"a node twice":                {[]*server{twice, twice}, nil, []string{twice.URL, "are one node"}},
		"nodes that have nothing":     {[]*server{has{}.node(t)}, nil, []string{"none of them has"}},
		"a directory that is somebody's": {[]*server{good.node(t)}, func(t *testing.T, disk vfs.FS) {
			good.write(t, disk, LogDir)
		}, []string{"not empty", `"log"`}},
		"a directory of a member": {[]*server{good.node(t)}, func(t *testing.T, disk vfs.FS) {
			if err := controller.WriteMode(disk, "zookeeper://z/shoal"); err != nil {
				t.Fatal(err)
			}
		}, []string{"not empty", modeFile}},
		"a directory in use": {[]*server{good.node(t)}, func(t *testing.T, disk vfs.FS) {
			if _, err := disk.Lock("LOCK"); err != nil {
				t.Fatal(err)
			}
		}, []string{"locked"}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			if test.disk != nil {
				test.disk(t, disk)
			}
			before := names(t, disk)
			_, err := into(t, disk, test.servers...)
			if err == nil {
				t.Fatal("it was restored")
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %s", want, err)
				}
			}
			if after := names(t, disk); after != before {
				t.Errorf("the directory holds %s, held %s", after, before)
			}
			if errors.As(err, new(*UnfinishedError)) {
				t.Errorf("it says that it had begun: %s", err)
			}
		})
	}
}

// names lists a directory.
func names(t *testing.T, disk vfs.FS) string {
	t.Helper()
	entries, err := disk.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// A directory that is not there yet is made once the nodes have told what goes into it.
func TestRestoreMakesTheDirectoryLast(t *testing.T) {
	node := has{batches: history(testCluster, 0, run{1, 6, ""})}.node(t)
	disk, made := vfs.NewMem(), 0
	cfg := Config{Client: testClient(t), Logger: zerolog.Nop(), Make: func() (vfs.FS, error) { made++; return disk, nil }}
	for _, refused := range [][]string{nil, {node.URL, node.URL + "/"}, {node.URL, "http://127.0.0.1:0"}, {node.URL, has{batches: history(otherCluster, 0, run{1, 3, ""})}.node(t).URL}} {
		cfg.Nodes = refused
		if _, err := Restore(t.Context(), cfg); err == nil || made > 0 {
			t.Errorf("%q: %v, made %d times", refused, err, made)
		}
	}
	cfg.Nodes = []string{node.URL}
	if _, err := Restore(t.Context(), cfg); err != nil || made != 1 {
		t.Fatalf("%v, made %d times", err, made)
	}
	whole(t, disk, history(testCluster, 0, run{1, 6, ""}))
}

func TestNodesAreNamedOnce(t *testing.T) {
	for _, test := range []struct {
		given []string
		says  string // nothing: they are good
	}{
		{[]string{"http://a:1", "http://a:2", "http://b:1", "https://a:1", "http://a:1/below"}, ""},
		{[]string{"http://[::1]:1", "http://127.0.0.1:1"}, ""},
		{[]string{"http://a:1", "http://a:1"}, "are one node"},
		{[]string{"http://a:1", "http://b:1", "http://a:1//"}, "http://a:1 and http://a:1// are one node"},
		{[]string{"http://Node-A:1", "HTTP://node-a:1"}, "are one node"},
		{[]string{"http://a", "http://a:80/"}, "are one node"},
		{[]string{"https://a:443", "https://a."}, "are one node"},
		{[]string{"http://[::1]:1", "http://[0:0::1]:1"}, "are one node"},
		{[]string{"http://a:1", "a:1"}, `"a:1" is not the URL of a node: it is http://HOST:PORT`},
		{[]string{"127.0.0.1:7081"}, "http://HOST:PORT"},
		{[]string{""}, `""`},
		{[]string{"ftp://a:1"}, "http://HOST:PORT"},
		{[]string{"http://:7081"}, "http://HOST:PORT"},
		{[]string{"http://a:x"}, "http://HOST:PORT"},
		{[]string{"http://a:1?x=y"}, "http://HOST:PORT"},
		{nil, "no node is named"},
	} {
		urls, err := nodeURLs(test.given)
		if test.says == "" {
			if err != nil || !slices.Equal(urls, test.given) {
				t.Errorf("%q: %q, %v", test.given, urls, err)
			}
			continue
		}
		if !errors.As(err, new(*NodesError)) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %q, %v; want %q", test.given, urls, err, test.says)
		}
	}
}

// A controller that leads is not lost. One of another cluster under its old address is
// none of it.
func TestRestoreAsksWhetherTheControllerIsLost(t *testing.T) {
	batches := history(testCluster, 0, run{1, 6, ""})
	other := has{batches: history(otherCluster, 0, run{1, 2, ""}), standing: metalog.Standing{Cluster: otherCluster, Epoch: 1}}.leader(t)
	same := has{batches: batches, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}.leader(t)
	for leader, refused := range map[*server]bool{other: false, same: true} {
		node := has{batches: batches, standing: metalog.Standing{Cluster: testCluster, Epoch: 1, URL: leader.URL}}.node(t)
		_, err := into(t, vfs.NewMem(), node)
		if refused != (err != nil) || refused && !strings.Contains(err.Error(), leader.URL+" leads") {
			t.Errorf("refused %t: %v", refused, err)
		}
	}
}

// TestRestoreSurvivesAPowerCutAnywhere: what is there is refused to a controller until it
// is whole, and done by running it again.
func TestRestoreSurvivesAPowerCutAnywhere(t *testing.T) {
	batches := history(testCluster, 0, run{1, 3, ""}, run{2, 3, ""})
	node := has{batches: batches, snapshots: []int{2, 4}, standing: metalog.Standing{Cluster: testCluster, Epoch: 2}}.node(t)
	for crash := range vfs.CrashPoints(vfs.NewMem(), func(disk vfs.FS) error {
		_, err := into(t, disk, node)
		return err
	}) {
		if crash.Done && crash.Err != nil {
			t.Fatal(crash.Err)
		}
		unfinished, err := isUnfinished(crash.Disk)
		if err != nil {
			t.Fatalf("%s: %v", crash, err)
		}
		if crash.Done && unfinished {
			t.Fatalf("%s: it is not finished", crash)
		}
		if !unfinished {
			if has := names(t, crash.Disk); strings.Contains(has, LogDir) || strings.Contains(has, metalog.SnapshotsDir) || crash.Done {
				whole(t, crash.Disk, batches)
				continue
			}
		}
		if _, err := into(t, crash.Disk, node); err != nil {
			t.Fatalf("%s: again: %v", crash, err)
		}
		whole(t, crash.Disk, batches)
	}
}

// TestRestoreOnAFullDisk: wherever the disk is full the error says so, no controller starts
// on what is there, and the same command does it once there is room.
func TestRestoreOnAFullDisk(t *testing.T) {
	batches := history(testCluster, 0, run{1, 9, ""})
	node := has{batches: batches, start: 2, snapshots: []int{3, 6}, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}.node(t)
	full := 0
	for room := int64(0); ; room += 97 {
		mem := vfs.NewMem()
		disk := vfs.WithSpace(mem, room)
		r, err := into(t, disk, node)
		if err == nil {
			if r.Snapshot.EndOffset != 6 || len(r.Skipped) > 0 {
				t.Errorf("room for %d bytes: %+v", room, r)
			}
			break
		}
		full++
		if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, new(*UnfinishedError)) {
			t.Fatalf("room for %d bytes: %v", room, err)
		}
		unfinished, err := isUnfinished(mem)
		if has := names(t, mem); err != nil || !unfinished && (strings.Contains(has, LogDir) || strings.Contains(has, metalog.SnapshotsDir)) {
			t.Fatalf("room for %d bytes: there are %s, unfinished %t, %v", room, has, unfinished, err)
		}
		disk.Add(1 << 20)
		if _, err := into(t, disk, node); err != nil {
			t.Fatalf("room for %d bytes, and then for more: %v", room, err)
		}
		whole(t, mem, batches)
	}
	if full < 10 {
		t.Errorf("it was full in %d places only", full)
	}
}

// A directory that cannot be written is refused as such, and not as one that was begun.
func TestRestoreIntoAReadOnlyDirectory(t *testing.T) {
	node := has{batches: history(testCluster, 0, run{1, 9, ""}), snapshots: []int{6}}.node(t)
	disk := vfs.WithFaults(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate || op.Kind == vfs.OpLock || op.Kind == vfs.OpMkdirAll {
			return syscall.EROFS
		}
		return nil
	})
	_, err := into(t, disk, node)
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "Give one that can be written here") || errors.As(err, new(*UnfinishedError)) {
		t.Errorf("%v", err)
	}
}

// TestRestoreTwiceAtOnce: the second one is refused and takes nothing from the first.
func TestRestoreTwiceAtOnce(t *testing.T) {
	batches := history(testCluster, 0, run{1, 9, ""})
	node := has{batches: batches, snapshots: []int{6}, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}.node(t)
	disk, tries := vfs.NewMem(), 0
	_, err := Restore(t.Context(), Config{
		FS: disk, Nodes: []string{node.URL}, Client: testClient(t), Logger: zerolog.Nop(),
		Progress: func(peerdl.Progress) {
			tries++
			_, err := into(t, disk, node)
			if !errors.Is(err, vfs.ErrLocked) || errors.As(err, new(*UnfinishedError)) {
				t.Errorf("the second one: %v", err)
			}
		},
	})
	if err != nil || tries == 0 {
		t.Fatalf("%v, after %d tries", err, tries)
	}
	whole(t, disk, batches)
	if _, err := into(t, disk, node); err == nil || !strings.Contains(err.Error(), "that one has come to its end") {
		t.Errorf("once it is done: %v", err)
	}
}

// What an interrupted restore has of the snapshot is not fetched again, whatever else lies
// in the directory goes.
func TestRestoreGoesOn(t *testing.T) {
	batches := history(testCluster, 300, run{1, 30, ""}) // of three pieces
	node := has{batches: batches, snapshots: []int{28}, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}.node(t)
	disk := vfs.NewMem()
	// Another restore has left the snapshot and the log of another cluster.
	other := has{batches: history(otherCluster, 0, run{1, 9, ""}), snapshots: []int{5}}
	log, _ := other.write(t, disk, LogDir)
	if err := errors.Join(log.Close(), metalog.RaiseEpoch(disk, 7), controller.WriteMode(disk, Unfinished)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Restore(ctx, Config{
		FS: disk, Nodes: []string{node.URL}, Client: testClient(t), Logger: zerolog.Nop(),
		Progress: func(p peerdl.Progress) {
			if p.HeldBytes > 0 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted after the first piece: %v", err)
	}
	if node.requests("position=0") == 0 {
		t.Fatal("nothing was downloaded")
	}
	found := int64(-1)
	r, err := Restore(t.Context(), Config{
		FS: disk, Nodes: []string{node.URL}, Client: testClient(t), Logger: zerolog.Nop(),
		Progress: func(p peerdl.Progress) {
			if found < 0 {
				found = p.HeldBytes
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	whole(t, disk, batches)
	if r.Snapshot == nil || r.Snapshot.EndOffset != 28 || r.Batches != 2 {
		t.Errorf("%+v", r)
	}
	if found <= 0 {
		t.Error("what it had was fetched again")
	}
}

// A node whose newest snapshot is damaged has the one before it, and the log.
func TestRestorePassesOverADamagedSnapshot(t *testing.T) {
	batches := history(testCluster, 0, run{1, 9, ""})
	for _, at := range []int{30, 300} { // in its header, and behind it
		node := has{batches: batches, start: 2, snapshots: []int{3, 6}, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}.node(t)
		newest := metalog.SnapshotsDir + "/" + node.snaps.Latest().SnapshotID.String() + ".checkpoint"
		data, err := vfs.ReadFile(node.disk, newest, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		data[at] ^= 1
		if err := vfs.WriteFile(node.disk, newest, data); err != nil {
			t.Fatal(err)
		}
		disk := vfs.NewMem()
		r, err := into(t, disk, node)
		if err != nil {
			t.Fatal(err)
		}
		whole(t, disk, batches)
		if r.Snapshot == nil || r.Snapshot.EndOffset != 3 || len(r.Skipped) != 1 || r.Batches != 6 {
			t.Errorf("%+v", r)
		}
	}
}

// TestRestoreTellsOfADamagedSnapshot: what is wrong with a node's snapshot is said, with the
// node and the snapshot, also where another node has what is needed.
func TestRestoreTellsOfADamagedSnapshot(t *testing.T) {
	batches := history(testCluster, 0, run{1, 9, ""})
	damage := map[string]func([]byte) []byte{
		"in its header": func(b []byte) []byte { b[30] ^= 1; return b },
		"behind it":     func(b []byte) []byte { b[300] ^= 1; return b },
		"by its length": func(b []byte) []byte { return b[:len(b)-1] },
		"an empty file": func(b []byte) []byte { return nil },
	}
	cut := has{batches: batches, start: 6, snapshots: []int{6}, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}
	for what, change := range damage {
		damaged := func(h has) (*server, string) {
			node := h.node(t)
			id := node.snaps.Latest().SnapshotID.String()
			name := metalog.SnapshotsDir + "/" + id + ".checkpoint"
			data, err := vfs.ReadFile(node.disk, name, 1<<20)
			if err == nil {
				err = vfs.WriteFile(node.disk, name, change(data))
			}
			if err != nil {
				t.Fatal(err)
			}
			return node, id
		}
		t.Run("the only node, "+what, func(t *testing.T) {
			node, id := damaged(cut)
			disk := vfs.NewMem()
			_, err := into(t, disk, node)
			if err == nil || !strings.Contains(err.Error(), node.URL) || !strings.Contains(err.Error(), "snapshot "+id) {
				t.Errorf("%v", err)
			}
			// Once it is mended, or another node has come, the same command does it.
			if _, err := into(t, disk, cut.node(t)); err != nil {
				t.Fatal(err)
			}
			whole(t, disk, batches)
		})
		t.Run("of two that are as far, "+what, func(t *testing.T) {
			// It is asked first: of two that are as far the first counts.
			node, id := damaged(has{batches: batches, start: 3, snapshots: []int{3, 6}, standing: cut.standing})
			disk := vfs.NewMem()
			r, err := into(t, disk, node, has{batches: batches, snapshots: []int{6}, standing: cut.standing}.node(t))
			if err != nil {
				t.Fatal(err)
			}
			whole(t, disk, batches)
			said := strings.Join(append(r.Damaged, r.Skipped...), "\n")
			// Damage behind the header of what was not needed is not seen, as it was not read.
			if r.From == node.URL || what != "behind it" {
				if strings.Count(said, "snapshot "+id+" of "+node.URL) != 1 {
					t.Errorf("from %s: said %q", r.From, said)
				}
			}
		})
		t.Run("of the furthest, "+what, func(t *testing.T) {
			node, id := damaged(has{batches: batches, start: 3, snapshots: []int{3, 6}, standing: cut.standing})
			good := has{batches: batches[:8], snapshots: []int{6}, standing: cut.standing}.node(t)
			disk := vfs.NewMem()
			r, err := into(t, disk, good, node)
			if err != nil {
				t.Fatal(err)
			}
			whole(t, disk, batches)
			if r.From != node.URL || r.Snapshot.EndOffset != 6 || len(r.Skipped) > 0 || len(r.Damaged) != 1 || !strings.Contains(r.Damaged[0], "snapshot "+id+" of "+node.URL) {
				t.Errorf("%+v", r)
			}
		})
		t.Run("the only one, of the longest log, "+what, func(t *testing.T) {
			node, id := damaged(cut)
			good := has{batches: batches[:8], start: 6, snapshots: []int{6}, standing: cut.standing}.node(t)
			disk := vfs.NewMem()
			r, err := into(t, disk, good, node)
			if err != nil {
				t.Fatal(err)
			}
			whole(t, disk, batches)
			if r.From != node.URL || len(r.Damaged) != 1 || !strings.Contains(r.Damaged[0], "snapshot "+id+" of "+node.URL) {
				t.Errorf("%+v", r)
			}
			elsewhere := has{batches: batches[:5], snapshots: []int{5}, standing: cut.standing}.node(t)
			if what != "behind it" {
				if _, err := into(t, vfs.NewMem(), elsewhere, node); err == nil || !strings.Contains(err.Error(), node.URL) || !strings.Contains(err.Error(), "snapshot "+id) {
					t.Errorf("with nobody else's: %v", err)
				}
			}
		})
		t.Run("of one that is behind, "+what, func(t *testing.T) {
			node, id := damaged(has{batches: batches[:7], snapshots: []int{6}, standing: cut.standing})
			disk := vfs.NewMem()
			r, err := into(t, disk, node, cut.node(t))
			if err != nil {
				t.Fatal(err)
			}
			whole(t, disk, batches)
			if what != "behind it" && (len(r.Damaged) != 1 || !strings.Contains(r.Damaged[0], "snapshot "+id+" of "+node.URL)) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A snapshot has the same bytes everywhere. A node that lists others, as its file was
// damaged before it was started, is named.
func TestRestoreTellsOfASnapshotOfOtherBytes(t *testing.T) {
	batches := history(testCluster, 0, run{1, 9, ""})
	standing := metalog.Standing{Cluster: testCluster, Epoch: 1}
	odd := batches[2]
	other := *odd
	other.Upserts = append(other.Upserts, &meta.Job{ID: testCluster, Kind: "odd", State: meta.JobRunning, Created: 1})
	swapped := append(append(append([]*meta.Batch{}, batches[:2]...), &other), batches[3:]...)
	a := has{batches: batches, snapshots: []int{6}, standing: standing}.node(t)
	b := has{batches: batches, snapshots: []int{6}, future: swapped, standing: standing}.node(t)
	r, err := into(t, vfs.NewMem(), a, b)
	if err != nil || len(r.Damaged) != 1 || !strings.Contains(r.Damaged[0], b.URL+" has other bytes than that of "+a.URL) {
		t.Errorf("%+v, %v", r, err)
	}
}

// A snapshot that is whole is only read the next time.
func TestRestoreDoesNotFetchASnapshotTwice(t *testing.T) {
	batches := history(testCluster, 300, run{1, 30, ""})
	node := has{batches: batches, snapshots: []int{28}, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}.node(t)
	disk := vfs.NewMem()
	cut := vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && strings.HasPrefix(op.To, LogDir+"/") {
			return errors.New("no space left on device")
		}
		return nil
	})
	if _, err := into(t, cut, node); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("%v", err)
	}
	if node.requests("position=") == 0 {
		t.Fatal("nothing was downloaded")
	}
	if _, err := into(t, disk, node); err != nil {
		t.Fatal(err)
	}
	if n := node.requests("position="); n > 0 {
		t.Errorf("%d chunks were fetched again", n)
	}
	whole(t, disk, batches)
}

func TestAControllerStartsOnWhatWasRestored(t *testing.T) {
	history := metatest.NewLog(t)
	history.AddNode(t, "n1", "zone")
	history.AddTable(t, metatest.Config("flights"), 2)
	history.TakeOver(t)
	cluster := history.Image.Cluster().ID
	node := has{batches: history.Batches, snapshots: []int{3}, standing: metalog.Standing{Cluster: cluster, Epoch: 2}}.node(t)
	dir := t.TempDir()
	disk, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	open := func() (*controller.Controller, error) {
		return controller.Open(controller.Config{Data: dir, Listen: "127.0.0.1:0", ID: "c"}, zerolog.Nop())
	}
	if err := controller.WriteMode(disk, Unfinished); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil || !strings.Contains(err.Error(), "of a restore that was cut short") {
		t.Errorf("on a directory that is not finished: %v", err)
	}
	r, err := into(t, disk, node)
	if err != nil {
		t.Fatal(err)
	}
	if r.Tables != 1 || r.Nodes != 1 || r.Segments[meta.SegmentInProgress] != 2 || r.Records != history.Image.Len() || r.ClusterID != cluster {
		t.Errorf("%+v", r)
	}
	c, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- c.Run(ctx) }()
	var v api.LeaderView
	client := testClient(t)
	for client.GetJSON(ctx, c.URL()+"/leader", &v) != nil {
		select {
		case err := <-ran:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if v.ClusterID != cluster || v.Epoch != r.NextEpoch || v.HighWatermark <= history.Image.Next() {
		t.Errorf("%+v leads; epoch %d was said, and %d batches were restored", v, r.NextEpoch, history.Image.Next())
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// TestCopyOfALeader: what a leader has, for those who look at it.
func TestCopyOfALeader(t *testing.T) {
	batches := history(testCluster, 0, run{1, 6, ""}, run{3, 6, ""})
	standing := metalog.Standing{Cluster: testCluster, Epoch: 4, URL: "http://leader"}
	for name, test := range map[string]struct {
		has
		from metalog.Position
	}{
		"no snapshot":  {has{batches: batches}, metalog.Position{}},
		"snapshots":    {has{batches: batches, start: 2, snapshots: []int{4, 8}}, metalog.After(batches[3])},
		"an empty one": {has{batches: batches, start: 12, snapshots: []int{12}}, metalog.After(batches[11])},
	} {
		t.Run(name, func(t *testing.T) {
			test.standing = standing
			h, err := Look(t.Context(), testClient(t), test.leader(t).URL)
			if err != nil {
				t.Fatal(err)
			}
			if h.Node || h.Cluster != testCluster || h.End != metalog.After(batches[11]) || h.Epoch != 4 || h.Leader != "http://leader" || len(h.Snapshots) != len(test.snapshots) {
				t.Errorf("%+v", h)
			}
			disk := vfs.NewMem()
			to := CopyConfig{FS: disk, Logger: zerolog.Nop()}
			if failed, err := h.CopySnapshots(t.Context(), to, h.Snapshots...); err != nil || len(failed) > 0 {
				t.Fatalf("%v, %v", failed, err)
			}
			end, err := h.CopyLog(t.Context(), to, test.from)
			if err != nil || end != h.End {
				t.Fatalf("%+v, %v", end, err)
			}
			wantImage(t, recovered(t, disk), batches)
			if len(h.Snapshots) > 0 {
				if _, err := h.CopyLog(t.Context(), CopyConfig{FS: vfs.NewMem(), Logger: zerolog.Nop()}, metalog.Position{}); !IsNoLog(err) {
					t.Errorf("from the first batch on, which a leader with snapshots does not hand out: %v", err)
				}
			}
		})
	}
}

// A log that is written to all the while is not run after.
func TestCopyOfALogThatGrows(t *testing.T) {
	batches := history(testCluster, 0, run{1, 40, ""})
	h := &Holding{URL: "a server", tail: &growing{batches: batches}}
	end, err := h.CopyLog(t.Context(), CopyConfig{FS: vfs.NewMem(), Logger: zerolog.Nop()}, metalog.Position{})
	if err != nil || end != metalog.After(batches[3]) {
		t.Errorf("it ends at %+v, %v", end, err)
	}
}

// growing hands out one batch at a time, and has three more each time.
type growing struct {
	batches []*meta.Batch
	reads   int64
}

func (g *growing) read(_ context.Context, from metalog.Position) ([]metalog.Entry, int64, error) {
	g.reads++
	e, err := metalog.NewEntry(g.batches[from.Offset])
	return []metalog.Entry{e}, 1 + 3*g.reads, err
}

// A snapshot that cannot be had does not keep the others away.
func TestCopySnapshotsTellsWhatItCouldNotHave(t *testing.T) {
	batches := history(testCluster, 0, run{1, 9, ""})
	node := has{batches: batches, snapshots: []int{3, 6}, standing: metalog.Standing{Cluster: testCluster, Epoch: 1}}.node(t)
	h, err := Look(t.Context(), testClient(t), node.URL)
	if err != nil {
		t.Fatal(err)
	}
	gone := h.Snapshots[0]
	gone.EndOffset = 5
	h.Snapshots = append(h.Snapshots, gone)
	disk := vfs.NewMem()
	failed, err := h.CopySnapshots(t.Context(), CopyConfig{FS: disk, Logger: zerolog.Nop()}, gone, h.Snapshots[1])
	if err != nil || len(failed) != 1 || !errors.Is(failed[gone.SnapshotID], metalog.ErrSnapshotNotFound) {
		t.Errorf("%v, %v", failed, err)
	}
	im, _, err := metalog.LoadSnapshot(disk, metalog.SnapshotsDir, h.Snapshots[1].SnapshotID)
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, im, batches[:6])
}
