package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// partEnv makes the test binary a process that measures one thing, with a heap of its own
// as a controller or a node has it: its value is a measuredPart as JSON.
const partEnv = "SHOAL_E2E_PART"

// measuredPart is what such a process does.
type measuredPart struct {
	Do         string
	Dir        string // of what it opens or makes
	Cluster    uuid.UUID
	End        int64 // of the image that it has to come to
	Leader     metalog.LeaderRef
	ZooKeeper  string // host:port
	Processors int    // GOMAXPROCS; 0: all
}

// What a process may do.
const (
	partOneCore   = "one core"   // load the latest snapshot, and write it again
	partColdStart = "cold start" // follow the leader from nothing
	partRestart   = "restart"    // open a log with its snapshots
	partZnodes    = "znodes"     // read the record znodes
)

// partResult is what came of it.
type partResult struct {
	Total      span
	Steps      map[string]span
	ImageBytes int64               // of heap
	Records    int                 // in the image
	Snapshot   metalog.SnapshotRef // what the image makes
}

// runPart runs a process for a part.
func runPart(t *testing.T, p measuredPart) (r partResult) {
	t.Helper()
	spec, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partEnv+"="+string(spec))
	if p.Processors > 0 {
		cmd.Env = append(cmd.Env, "GOMAXPROCS="+strconv.Itoa(p.Processors))
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", p.Do, err, &said)
	}
	return r
}

// measurePart is the process of a part. It says what came of it on standard output.
func measurePart(spec string) int {
	var p measuredPart
	err := json.Unmarshal([]byte(spec), &p)
	if err == nil {
		err = p.measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return exitError
	}
	return 0
}

func (p measuredPart) measure() error {
	do := map[string]func(*partResult) (*meta.Image, error){
		partOneCore: p.oneCore, partColdStart: p.coldStart, partRestart: p.restart, partZnodes: p.znodes,
	}[p.Do]
	r := partResult{Steps: map[string]span{}}
	before := heapHeld()
	w := beginWatch()
	im, err := do(&r)
	if err != nil {
		return err
	}
	r.Total = w.span()
	r.ImageBytes, r.Records = heapHeld()-before, im.Len()
	if err := r.snapshotOf(im); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// snapshotOf writes the snapshot of the image to a directory that goes with it.
func (r *partResult) snapshotOf(im *meta.Image) error {
	dir, err := os.MkdirTemp("", "shoal-part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	disk, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	return r.step("write", func() error {
		r.Snapshot, err = metalog.WriteSnapshot(context.Background(), disk, "made", im)
		return err
	})
}

// step measures a step.
func (r *partResult) step(name string, do func() error) error {
	w := beginWatch()
	err := do()
	r.Steps[name] = w.span()
	return err
}

func (p measuredPart) oneCore(r *partResult) (im *meta.Image, err error) {
	disk, err := vfs.OS(p.Dir)
	if err != nil {
		return nil, err
	}
	snaps, err := metalog.OpenSnapshots(disk, "", zerolog.Nop())
	if err != nil {
		return nil, err
	}
	return im, r.step("load", func() error {
		im, err = snaps.Load(snaps.Latest().SnapshotID)
		return err
	})
}

// restart opens what a process has left, as it does when it starts.
func (p measuredPart) restart(r *partResult) (im *meta.Image, err error) {
	disk, err := vfs.OS(p.Dir)
	if err != nil {
		return nil, err
	}
	var log *metalog.Log
	var snaps *metalog.Snapshots
	for _, s := range []struct {
		name string
		do   func() error
	}{
		{"log", func() error {
			log, err = metalog.OpenLog(disk, metalog.LogOptions{Logger: zerolog.Nop()})
			return err
		}},
		{"snapshots", func() error {
			snaps, err = metalog.OpenSnapshots(disk, "", zerolog.Nop())
			return err
		}},
		{"recover", func() error {
			im, err = metalog.Recover(log, snaps, zerolog.Nop())
			return err
		}},
	} {
		if err := r.step(s.name, s.do); err != nil {
			return nil, err
		}
	}
	return im, log.Close()
}

// coldStart follows the leader from an empty directory, as a node does, until it has what
// the leader has.
func (p measuredPart) coldStart(r *partResult) (*meta.Image, error) {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return nil, err
	}
	disk, err := vfs.OS(p.Dir)
	if err != nil {
		return nil, err
	}
	w := beginWatch()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var keeper *snapshots.Keeper
	follower, err := metalog.OpenFollower(metalog.FollowerConfig{
		FS: disk, Dir: "log", SnapshotsDir: metalog.SnapshotsDir, Cluster: p.Cluster,
		Find: func(context.Context) (metalog.LeaderRef, error) { return p.Leader, nil },
		FetchSnapshot: func(ctx context.Context, leader metalog.LeaderRef, ref metalog.SnapshotRef) (*meta.Image, error) {
			return keeper.Fetch(ctx, p.Cluster, leader, ref, nil)
		},
		Deliver: func(im *meta.Image, touched []meta.Key) {
			if im.Next() > 0 && touched == nil {
				r.Steps["snapshot"] = w.span()
				w = beginWatch()
			}
			if im.Next() == p.End {
				r.Steps["rest"] = w.span()
				stop()
			}
		},
		Client: &httpx.Client{Timeout: -1}, Logger: zerolog.New(os.Stderr), Rand: rand.New(rand.NewSource(1)),
	})
	if err != nil {
		return nil, err
	}
	keeper = snapshots.NewKeeper(snapshots.Shared{
		Logger:   zerolog.New(os.Stderr),
		Standing: func() (metalog.Standing, bool) { return metalog.Standing{}, false },
	}, follower.Log(), follower.Snapshots(), func() int64 { return follower.Image().Next() })
	if err := follower.Run(ctx); err != nil {
		return nil, err
	}
	return follower.Image(), follower.Close()
}

// znodes reads the same records out of ZooKeeper.
func (p measuredPart) znodes(*partResult) (*meta.Image, error) {
	conn, err := zkmeta.Connect(zooKeeperAt(p.ZooKeeper))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return zkmeta.Rebuild(context.Background(), conn)
}
