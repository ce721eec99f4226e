package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/controller"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/peerdl"
)

// Config is what a restore needs.
type Config struct {
	// FS is the data directory that is written: an empty one, or one that an earlier
	// restore has not finished. Nil: it is not there yet, and Make makes it, once the
	// nodes have told what there is to write.
	FS     vfs.FS
	Make   func() (vfs.FS, error)
	Nodes  []string // their URLs
	Client *httpx.Client
	Logger zerolog.Logger
	// Progress is told of the download of the snapshot. Nil: nobody is.
	Progress func(peerdl.Progress)
}

// Restored says what a directory has after a restore.
type Restored struct {
	ClusterID uuid.UUID `json:"clusterId"`
	// From is the node that had the most, Asked is what each has.
	From  string  `json:"from"`
	Asked []Asked `json:"asked"`

	Snapshot *metalog.SnapshotRef `json:"snapshot,omitempty"`
	// Skipped says why newer snapshots of that node were passed over, Damaged what is wrong
	// with snapshots of nodes that was found besides. What was not needed was not read.
	Skipped []string  `json:"skipped,omitempty"`
	Damaged []string  `json:"damaged,omitempty"`
	Batches int64     `json:"batches"` // of the log after it
	Offset  int64     `json:"offset"`  // of the last batch
	Epoch   int64     `json:"epoch"`
	Term    uuid.UUID `json:"term"`
	Time    time.Time `json:"time"` // of the last batch
	// NextEpoch is the one that the controller opens when it starts.
	NextEpoch int64 `json:"nextEpoch"`

	Records  int                        `json:"records"`
	Tables   int                        `json:"tables"`
	Nodes    int                        `json:"nodes"`
	Segments map[meta.SegmentStatus]int `json:"segments"`
}

// Asked is what one node has.
type Asked struct {
	URL      string    `json:"url"`
	Snapshot string    `json:"snapshot,omitempty"` // id of the newest
	Offset   int64     `json:"offset"`             // of its last batch, −1 if it has none
	Epoch    int64     `json:"epoch"`
	Time     time.Time `json:"time,omitzero"`
}

// Unfinished marks the data directory of a restore that was cut short, in the place where
// one that follows ZooKeeper is marked: no embedded controller starts on it.
const Unfinished = controller.UnfinishedRestore

// modeFile is where controller.WriteMode marks a directory.
const modeFile = "metadata.json"

// epochMargin is how far above every epoch that the nodes know of the next one is. The
// controller that was lost may have opened some that no node told: they were not asked, or
// heard of them and have not kept that. To whoever heard of one, a leader of a lower epoch
// would be an old one.
const epochMargin = 100

// UnfinishedError says that a restore was cut short when it had begun to write.
type UnfinishedError struct {
	Dir string
	Err error
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("%s; %s is not restored: do away with the cause and run the same command again, it goes on with what has come", e.Err, e.Dir)
}

func (e *UnfinishedError) Unwrap() error { return e.Err }

// Restore writes the data directory of an embedded controller from what nodes have: the
// newest snapshot and the log after it of the one that has the most. What no node had
// fetched when the controller was lost is lost with it.
//
// All nodes must answer, and tell one history (else a *HistoriesError), and no controller
// may lead. Cut short anywhere, it is done by calling it again; until its last step the
// directory is refused to a controller. Any error but an *UnfinishedError means that nothing
// was written, and no directory made.
func Restore(ctx context.Context, cfg Config) (_ *Restored, err error) {
	if cfg.Nodes, err = nodeURLs(cfg.Nodes); err != nil {
		return nil, err
	}
	var lock io.Closer
	defer func() {
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	if cfg.FS != nil {
		// A lock that is not there yet is taken later: nothing is written before the nodes
		// have been asked.
		if lock, err = claim(cfg.FS, false); err != nil {
			return nil, err
		}
	}
	all, best, err := survey(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.FS == nil {
		if cfg.FS, err = cfg.Make(); err != nil {
			return nil, fmt.Errorf("restore: the directory cannot be made: %w. Give one that can be written here", err)
		}
	}
	if lock == nil {
		if lock, err = claim(cfg.FS, true); err != nil {
			return nil, err
		}
	}
	r, err := write(ctx, cfg, all, best)
	if err != nil {
		return nil, &UnfinishedError{Dir: cfg.FS.String(), Err: err}
	}
	return r, nil
}

// write does what comes after the questions.
func write(ctx context.Context, cfg Config, all []*Holding, best *Holding) (*Restored, error) {
	if err := begin(cfg.FS, best.Snapshots); err != nil {
		return nil, err
	}
	copied, err := best.CopyImage(ctx, CopyConfig{FS: cfg.FS, Logger: cfg.Logger, Others: all, Progress: cfg.Progress})
	if err == nil && copied.End.Offset < best.End.Offset {
		err = errors.Join(append(copied.Skipped, fmt.Errorf("restore: %s said that it has everything up to offset %d, and what came ends at %d", best.URL, best.End.Offset, copied.End.Offset))...)
	}
	if err != nil {
		return nil, err
	}
	image, err := reopen(cfg, copied.End)
	if err != nil {
		return nil, err
	}
	seen := image.Epoch()
	for _, h := range all {
		seen = max(seen, h.Epoch)
	}
	if err := metalog.RaiseEpoch(cfg.FS, seen+epochMargin); err != nil {
		return nil, err
	}
	if err := controller.WriteMode(cfg.FS, controller.Embedded); err != nil {
		return nil, err
	}
	r := describe(image)
	r.From, r.Snapshot, r.Batches, r.NextEpoch = best.URL, copied.Snapshot, image.Next()-copied.From.Offset, seen+epochMargin+1
	r.tell(all, best, copied)
	return r, nil
}

// tell adds what each node has, and what is wrong with it.
func (r *Restored) tell(all []*Holding, best *Holding, copied Copied) {
	for _, err := range copied.Skipped {
		r.Skipped = append(r.Skipped, err.Error())
	}
	if copied.Replaced != nil {
		r.Damaged = append(r.Damaged, copied.Replaced.Error())
	}
	for _, h := range all {
		r.Asked = append(r.Asked, h.asked())
		for _, ref := range h.Snapshots {
			if why := h.Damaged[ref.SnapshotID]; why != nil && h != best { // best's are told of above
				r.Damaged = append(r.Damaged, fmt.Sprintf("snapshot %s of %s: %s", ref.SnapshotID, h.URL, why))
			}
		}
	}
	for _, err := range disagree(all) {
		r.Damaged = append(r.Damaged, err.Error())
	}
}

// lockFile is what a process holds that has the directory open.
const lockFile = "LOCK"

// claim locks the directory, once it turned out to be one that may be written. Unless it may
// make the lock file, it returns none for a directory that has no such file.
func claim(fsys vfs.FS, make bool) (io.Closer, error) {
	if err := mayWrite(fsys); err != nil {
		return nil, err
	}
	if !make {
		if _, err := fsys.Stat(lockFile); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	lock, err := fsys.Lock(lockFile)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("restore: %s is in use: another restore or a controller has it locked (%w). Wait for it or stop it, or give another directory", fsys, err)
	}
	if err != nil {
		return nil, fmt.Errorf("restore: %s cannot be written: %w. Give one that can be written here", fsys, err)
	}
	if err := mayWrite(fsys); err != nil { // now that nobody else can
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// mayWrite refuses a directory that may be somebody's.
func mayWrite(fsys vfs.FS) error {
	if unfinished, err := isUnfinished(fsys); unfinished || err != nil {
		return err
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	for _, e := range entries {
		// lost+found is in the root of a new file system, the mark's .tmp is of a restore
		// that came no further.
		if name := e.Name(); name != lockFile && name != "lost+found" && name != modeFile+".tmp" {
			done := ""
			if name == metalog.EpochFile {
				done = "; if a restore wrote it, that one has come to its end"
			}
			return fmt.Errorf("restore: %s is not empty: it has %q in it%s. Give an empty directory, or one that is not there yet", fsys, name, done)
		}
	}
	return nil
}

// isUnfinished reports whether the directory is one that a restore was cut short in.
func isUnfinished(fsys vfs.FS) (bool, error) {
	data, err := vfs.ReadFile(fsys, modeFile, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("restore: %w", err)
	}
	var mode struct {
		Metadata string `json:"metadata"`
	}
	return json.Unmarshal(data, &mode) == nil && mode.Metadata == Unfinished, nil
}

// survey asks all nodes, and returns the one that has the most.
func survey(ctx context.Context, cfg Config) (all []*Holding, best *Holding, err error) {
	if all, err = lookAtNodes(ctx, cfg.Client, cfg.Nodes); err != nil {
		return nil, nil, err
	}
	if best, err = furthest(ctx, all); err != nil {
		return nil, nil, err
	}
	for _, h := range all {
		if err := leads(ctx, cfg.Client, h.Leader, best.Cluster); err != nil {
			return nil, nil, err
		}
	}
	return all, best, nil
}

// leads returns an error if a controller leads the cluster: its metadata is not lost, and
// a second one would be another history.
func leads(ctx context.Context, client *httpx.Client, url string, cluster uuid.UUID) error {
	if url == "" {
		return nil
	}
	var v api.LeaderView
	if err := client.GetJSON(ctx, strings.TrimRight(url, "/")+"/leader", &v); err != nil || v.ClusterID != cluster {
		return nil
	}
	return fmt.Errorf("restore: controller %s leads cluster %s in epoch %d: its metadata is not lost. Stop it first, if it has to be replaced", url, cluster, v.Epoch)
}

// begin marks the directory, and removes what an earlier restore has left in it, but for
// what it has of the snapshots that are wanted now.
func begin(fsys vfs.FS, wanted []metalog.SnapshotRef) error {
	if err := controller.WriteMode(fsys, Unfinished); err != nil {
		return err
	}
	// The epoch first: without a log beside it, it would say that there was one.
	for _, name := range []string{metalog.EpochFile, LogDir} {
		if err := fsys.RemoveAll(name); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if err := fsys.SyncDir("."); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	files, err := metalog.ListSnapshotFiles(fsys, metalog.SnapshotsDir)
	if err != nil {
		return err
	}
	for _, f := range files {
		// One that is being downloaded names its digest, and the download knows which it goes
		// on with.
		if f.State == metalog.SnapshotDownloading || slices.Contains(wanted, f.SnapshotRef) {
			continue
		}
		if err := fsys.RemoveAll(path.Join(metalog.SnapshotsDir, f.Name)); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}

// reopen reads what is on the disk, as a controller would.
func reopen(cfg Config, end metalog.Position) (im *meta.Image, err error) {
	log, err := metalog.OpenLog(cfg.FS, metalog.LogOptions{Dir: LogDir, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	snaps, err := metalog.OpenSnapshots(cfg.FS, metalog.SnapshotsDir, cfg.Logger)
	if err != nil {
		return nil, err
	}
	if im, err = metalog.Recover(log, snaps, cfg.Logger); err != nil {
		return nil, err
	}
	if at := log.Position(); at != end || im.Next() != end.Offset {
		return nil, fmt.Errorf("restore: the log in %s was written up to %s, and reads up to %s", cfg.FS, standing(end), standing(at))
	}
	if im.Cluster() == nil {
		return nil, errors.New("restore: what was written is of no cluster")
	}
	return im, nil
}

// describe counts what is in an image.
func describe(im *meta.Image) *Restored {
	r := &Restored{
		ClusterID: im.Cluster().ID, Offset: im.Next() - 1, Epoch: im.Epoch(), Term: im.LastTerm(), Time: time.UnixMilli(im.LastTime()).UTC(),
		Records: im.Len(), Segments: map[meta.SegmentStatus]int{}, Asked: []Asked{},
	}
	for t := range im.Tables() {
		r.Tables++
		for s := range im.TableSegments(t.ID) {
			r.Segments[s.Status]++
		}
	}
	for range im.Nodes() {
		r.Nodes++
	}
	return r
}

func (h *Holding) asked() Asked {
	a := Asked{URL: h.URL, Offset: h.End.Offset - 1, Epoch: h.End.LastEpoch}
	if h.Newest.Offset > 0 {
		a.Snapshot = h.Newest.ID().String()
	}
	if h.Time > 0 {
		a.Time = time.UnixMilli(h.Time).UTC()
	}
	return a
}
