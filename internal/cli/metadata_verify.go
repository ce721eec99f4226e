package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/restore"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

type metadataVerify struct {
	FromDir string `help:"Verify this data directory, of a controller or a node. Nothing in it is changed, and a process may run on it." placeholder:"DIR" xor:"from"`
	URL     string `name:"url" help:"Verify what this controller or node hands out, instead of the leader." placeholder:"URL" xor:"from"`
}

// verdict is what `shoal metadata verify -o json` prints.
type verdict struct {
	Of        string             `json:"of"` // the directory or the URL
	Owner     owner              `json:"owner"`
	Follows   string             `json:"follows,omitempty"` // where the metadata is, if not there
	Running   bool               `json:"running"`
	ClusterID uuid.UUID          `json:"clusterId,omitzero"`
	Log       verifiedLog        `json:"log"`
	Snapshots []verifiedSnapshot `json:"snapshots"`
	OK        bool               `json:"ok"`
	Damage    []placedFinding    `json:"damage"`
	Notes     []placedFinding    `json:"notes"`

	online bool
}

type verifiedLog struct {
	Start   int64 `json:"start"` // offset of the first batch
	End     int64 `json:"end"`   // offset after the last one
	Epoch   int64 `json:"epoch"` // of the last one
	Batches int64 `json:"batches"`
}

type verifiedSnapshot struct {
	ID string `json:"id"`
	metalog.SnapshotRef
	Records int `json:"records"`
	// Compared: the log gives the same records. Otherwise what comes before is not there.
	Compared bool `json:"compared"`
}

// placedFinding is a finding with what to do about it.
type placedFinding struct {
	metalog.Finding
	Do string `json:"do,omitempty"`
}

// Run exits with 1 if anything is damaged.
func (c metadataVerify) Run(ctx context.Context, a *app) error {
	verify := c.remote
	if c.FromDir != "" {
		verify = c.directory
	}
	v, err := verify(ctx, a)
	if err != nil {
		return err
	}
	if a.json {
		err = a.writeJSON(v)
	} else {
		err = a.printVerdict(v)
	}
	if err == nil && !v.OK {
		err = no("")
	}
	return err
}

func (c metadataVerify) directory(_ context.Context, _ *app) (*verdict, error) {
	d, err := openDataDir(c.FromDir)
	if err != nil {
		return nil, err
	}
	found, err := metalog.Verify(metalog.VerifyConfig{
		FS: d.fs, LogDir: d.logDir, SnapshotsDir: metalog.SnapshotsDir, Cluster: d.cluster, Led: d.owner == ownerController, Running: d.running, Same: sameAsLog,
	})
	if err != nil {
		return nil, err
	}
	v := &verdict{Of: d.path, Owner: d.owner, Follows: d.follows, Running: d.running}
	v.take(found, d.file, func(f metalog.Finding) string { return d.advise(f) })
	return v, nil
}

// sameAsLog says where a snapshot differs from the image that the log gives.
func sameAsLog(log, snapshot *meta.Image) error {
	err := zkmeta.Same(log, snapshot)
	var d *zkmeta.DifferenceError
	if errors.As(err, &d) {
		return fmt.Errorf("%s is %s by the log and %s in the snapshot", d.What, d.Want, d.Got)
	}
	return err
}

// take takes over what was found, with names that tell where it is.
func (v *verdict) take(found *metalog.Verified, name func(string) string, advise func(metalog.Finding) string) {
	v.ClusterID = found.Cluster
	v.Log = verifiedLog{Start: found.Start, End: found.End.Offset, Epoch: found.End.LastEpoch, Batches: found.Batches}
	v.Snapshots, v.Notes = []verifiedSnapshot{}, []placedFinding{}
	if v.Damage == nil {
		v.Damage = []placedFinding{}
	}
	for _, s := range found.Snapshots {
		v.Snapshots = append(v.Snapshots, verifiedSnapshot{ID: s.SnapshotID.String(), SnapshotRef: s.SnapshotRef, Records: s.Records, Compared: s.Compared})
	}
	for _, f := range found.Findings {
		placed := placedFinding{f, advise(f)}
		placed.File = name(f.File)
		if f.IsDamage() {
			v.Damage = append(v.Damage, placed)
		} else {
			v.Notes = append(v.Notes, placed)
		}
	}
	v.OK = len(v.Damage) == 0
}

// What to do about damage to what can be had again.
const (
	adviceNode   = "stop the node and start it: it sets its copy aside and fetches it again; its segments stay"
	adviceMember = "stop the controller and start it: it sets its copy aside and begins it anew from ZooKeeper"
)

// advise says what to do about a finding in the directory.
func (d *dataDir) advise(f metalog.Finding) string {
	switch f.Kind {
	case metalog.TornAppend:
		return "nothing: " + d.tornMeans()
	case metalog.Leftover:
		if d.running {
			return "nothing: the process that has the directory goes on with it, or its next start does"
		}
		return "nothing: the next start goes on with it, or removes it"
	case metalog.SetAside:
		return "look why, and remove it: nothing reads it"
	case metalog.NewerFormat:
		return "use the program that wrote it, or a newer one"
	case metalog.DamagedPieces:
		return "stop the process, remove this file, and start it again: the list is made anew"
	case metalog.OtherImage:
		return "stop the process, keep a copy of the directory, move the snapshot out of it, and report this: one snapshot has to be the same everywhere"
	}
	switch {
	case d.owner == ownerNode:
		return adviceNode
	case d.owner == ownerMember:
		return adviceMember
	case d.owner == ownerUnfinished:
		return "run shoal metadata restore again"
	case f.Kind == metalog.DamagedSnapshot:
		return "the next start sets it aside and takes the one before it, as long as the log goes back to that; else as for the log: a backup, or shoal metadata restore into another directory"
	case f.Kind == metalog.StrangeSnapshot:
		return "no controller starts here: find out which of the two is the cluster's, and move the other out of the directory"
	case f.Kind == metalog.DamagedEpoch:
		return "no controller starts here: bring the file back from a backup, or shoal metadata restore into another directory"
	}
	return "keep the directory, and bring it back from a backup, or from nodes into another one: shoal metadata restore --from-node URL,… --data DIR"
}

// remote verifies what a server hands out: a copy of it.
func (c metadataVerify) remote(ctx context.Context, a *app) (*verdict, error) {
	h, err := a.look(ctx, c.URL)
	if err != nil {
		return nil, err
	}
	v := &verdict{Of: h.URL, Owner: ownerNode, Running: true, online: true}
	if !h.Node {
		v.Owner = ownerController
	}
	err = inTemporary(func(d *dataDir) error {
		failed, err := a.copyAll(ctx, h, d)
		if err != nil {
			return err
		}
		found, err := metalog.Verify(metalog.VerifyConfig{FS: d.fs, LogDir: d.logDir, SnapshotsDir: metalog.SnapshotsDir, Same: sameAsLog})
		if err != nil {
			return err
		}
		there := "run shoal metadata verify --from-dir on its data directory"
		for _, ref := range h.Snapshots {
			if err := failed[ref.SnapshotID]; err != nil {
				v.Damage = append(v.Damage, placedFinding{metalog.Finding{
					Kind: metalog.DamagedSnapshot, File: h.URL + snapshots.Path + "/" + ref.SnapshotID.String(), Problem: err.Error(),
				}, there})
			}
		}
		v.take(found, func(file string) string { return h.URL + ": " + file }, func(f metalog.Finding) string {
			if f.IsDamage() {
				return there
			}
			return ""
		})
		return nil
	})
	return v, err
}

// copyAll copies all that a server hands out: its snapshots, and its log from as early on
// as it has it. failed are the snapshots that could not be had.
func (a *app) copyAll(ctx context.Context, h *restore.Holding, d *dataDir) (failed map[metalog.SnapshotID]error, err error) {
	to := restore.CopyConfig{FS: d.fs, Logger: zerolog.Nop()}
	if failed, err = h.CopySnapshots(ctx, to, h.Snapshots...); err != nil {
		return nil, err
	}
	for id, why := range failed {
		if errors.Is(why, metalog.ErrSnapshotNotFound) { // it may have been let go of since it was listed
			now, err := a.snapshotsOf(ctx, h.URL)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(now, func(r snapshotRow) bool { return r.SnapshotID == id }) {
				delete(failed, id)
			}
		}
	}
	if h.Node || len(h.Snapshots) == 0 { // a leader hands out snapshots instead of the first batches
		if _, err := h.CopyLog(ctx, to, metalog.Position{}); !restore.IsNoLog(err) {
			return failed, err
		}
	}
	snaps, err := metalog.OpenSnapshots(d.fs, metalog.SnapshotsDir, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	for _, ref := range snaps.List() {
		header, err := snaps.Header(ref.SnapshotID)
		if err != nil {
			return nil, err
		}
		if _, err := h.CopyLog(ctx, to, header.Position); !restore.IsNoLog(err) {
			return failed, err
		}
	}
	return failed, nil
}

func (a *app) printVerdict(v *verdict) error {
	cluster := "of no cluster yet"
	if v.ClusterID != uuid.Nil {
		cluster = "cluster " + v.ClusterID.String()
	}
	log := "no batch"
	if v.Log.Batches > 0 {
		log = fmt.Sprintf("%s, the last is %d of epoch %d", batches(v.Log.Batches), v.Log.End-1, v.Log.Epoch)
	}
	fmt.Fprintf(a.Out, "%s: %s, %s\nlog from offset %d on: %s\n", v.Of, v.Owner, cluster, v.Log.Start, log)
	if v.Follows != "" {
		fmt.Fprintf(a.Out, "the metadata is in %s; this is a copy\n", v.Follows)
	}
	if len(v.Snapshots) > 0 {
		t := newTable(a.Out, "SNAPSHOT", "RECORDS", "SIZE", "READ THROUGH")
		for _, s := range v.Snapshots {
			how := "yes; what comes before is not there to compare with"
			if s.Compared {
				how = "yes; the log gives the same"
			}
			t.row(s.ID, count(int64(s.Records)), size(s.SizeBytes), how)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	switch {
	case v.online:
	case v.Running:
		fmt.Fprintln(a.Out, "note: a process has the directory open and may be writing to it; it was not asked")
	default:
		fmt.Fprintln(a.Out, "note: no process has the directory open")
	}
	for _, f := range v.Notes {
		fmt.Fprintf(a.Out, "note: %s\n", f)
	}
	for _, f := range v.Damage {
		fmt.Fprintf(a.Out, "damage: %s\n", f)
	}
	if v.OK {
		fmt.Fprintln(a.Out, "nothing is damaged")
	}
	return nil
}

// String is one line.
func (f placedFinding) String() string {
	s := fmt.Sprintf("%s at byte %d: %s", f.File, f.Offset, f.Problem)
	if f.Do != "" {
		s += "; do: " + f.Do
	}
	return s
}
