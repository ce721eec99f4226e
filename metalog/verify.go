package metalog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// VerifyConfig says what is verified.
type VerifyConfig struct {
	FS                   vfs.FS
	LogDir, SnapshotsDir string // below FS
	// Led says that the log is written here and no copy: there has to be an epoch file, and
	// nothing is in a snapshot that the log has not had.
	Led bool
	// Cluster is the one that the directory is of, zero if only log and snapshots say it.
	Cluster uuid.UUID
	// Running says that a process has the directory open: what looks damaged is read once
	// more, because it may have been changed while it was being read.
	Running bool
	// Same returns an error that says how two images differ, nil if they do not.
	Same func(want, got *meta.Image) error
}

// FindingKind says what to do about a finding.
type FindingKind string

// The kinds of findings. The last three are no damage: only worth knowing.
const (
	DamagedLog      FindingKind = "damagedLog"      // not what was written, or not there
	MissingSnapshot FindingKind = "missingSnapshot" // the log begins later than anything that stands for what was before
	DamagedSnapshot FindingKind = "damagedSnapshot"
	StrangeSnapshot FindingKind = "strangeSnapshot" // good, and of another history than the log
	OtherImage      FindingKind = "otherImage"      // good, of this history, and other records than the log gives
	DamagedPieces   FindingKind = "damagedPieces"   // a piece list that is not its snapshot's
	DamagedEpoch    FindingKind = "damagedEpoch"
	NewerFormat     FindingKind = "newerFormat" // a newer program wrote it
	TornAppend      FindingKind = "tornAppend"  // the last frame is not whole
	Leftover        FindingKind = "leftover"    // the next start finishes or removes it
	SetAside        FindingKind = "setAside"    // found damaged before; nothing reads it
)

// Finding is what was found at a place.
type Finding struct {
	Kind    FindingKind `json:"kind"`
	File    string      `json:"file"`     // below the FS
	Offset  int64       `json:"position"` // byte in File
	Problem string      `json:"problem"`
}

// IsDamage tells damage from what is only worth knowing.
func (f Finding) IsDamage() bool {
	return f.Kind != TornAppend && f.Kind != Leftover && f.Kind != SetAside
}

// VerifiedSnapshot is a snapshot that was read through.
type VerifiedSnapshot struct {
	SnapshotRef
	Records int
	// Compared: the log gives the same records at its end offset. Otherwise the log does
	// not have all that is before.
	Compared bool
}

// Verified is what Verify found.
type Verified struct {
	Cluster   uuid.UUID // zero if nothing says it
	Start     int64     // of the log
	End       Position  // of the log
	Batches   int64     // that were read
	Snapshots []VerifiedSnapshot
	Findings  []Finding
}

// Damaged reports whether any finding is damage.
func (v *Verified) Damaged() bool { return slices.ContainsFunc(v.Findings, Finding.IsDamage) }

// Verify reads every frame of the log and every snapshot beside it, and changes nothing.
// It checks what a start would (docs/format/log.md and snapshot.md, "What is found on
// start"), and goes on behind damage; and that each snapshot is the very image that the
// log gives at its end, where the log or an older snapshot still has what is before. The
// error is that of a disk that cannot be read, or of a directory that never stays the same
// for long enough.
func Verify(cfg VerifyConfig) (*Verified, error) {
	tries := 1
	if cfg.Running {
		tries = 2
	}
	var v *verifier
	for range tries {
		err := undisturbed(func() error {
			v = &verifier{cfg: cfg, out: Verified{Cluster: cfg.Cluster}, noFile: map[string]bool{}}
			return v.run()
		})
		if err != nil {
			return nil, err
		}
		if !v.out.Damaged() {
			break
		}
	}
	return &v.out, nil
}

type verifier struct {
	cfg VerifyConfig
	out Verified

	left   []SnapshotFile  // to be read, by end offset
	image  *meta.Image     // where the log was read to; nil: not known
	usable bool            // a good snapshot connects to the log
	noFile map[string]bool // what has the name of a snapshot's file and is none
}

func (v *verifier) run() error {
	files, err := ListSnapshotFiles(v.cfg.FS, v.cfg.SnapshotsDir)
	if err != nil {
		return err
	}
	if err := v.noFiles(); err != nil {
		return err
	}
	for _, f := range files {
		if f.State == SnapshotWhole {
			v.left = append(v.left, f)
		}
	}
	slices.SortStableFunc(v.left, func(a, b SnapshotFile) int { return cmp.Compare(a.EndOffset, b.EndOffset) })
	if err := v.log(); err != nil {
		return err
	}
	if v.out.Start > 0 && !v.usable {
		v.find(MissingSnapshot, logFileName(v.cfg.LogDir, v.out.Start), 0,
			"the log begins here, and no good snapshot of its history holds what comes before offset %d", v.out.Start)
	}
	if err := v.epoch(); err != nil {
		return err
	}
	return v.leftovers(files)
}

func (v *verifier) find(kind FindingKind, file string, at int64, format string, args ...any) {
	v.out.Findings = append(v.out.Findings, Finding{Kind: kind, File: file, Offset: at, Problem: fmt.Sprintf(format, args...)})
}

// damaged takes note of an error that says damage, and returns any other.
func (v *verifier) damaged(kind FindingKind, err error) error {
	var damage *CorruptionError
	var newer *FormatError
	switch {
	case errors.As(err, &newer):
		v.find(NewerFormat, newer.File, 0, "it has format version %d; this program knows up to %d", newer.Version, newer.Known)
	case errors.As(err, &damage):
		problem := damage.Reason
		if damage.Err != nil {
			problem += ": " + damage.Err.Error()
		}
		v.find(kind, damage.File, damage.Offset, "%s", problem)
	default:
		return err
	}
	return nil
}

// log reads the log, and each snapshot where it ends.
func (v *verifier) log() error {
	r := &LogReader{fs: v.cfg.FS, dir: v.cfg.LogDir}
	_, err := r.readOn()
	if err := v.damaged(DamagedLog, err); err != nil {
		return err
	}
	whole := err == nil
	if !whole && r.file.name == "" {
		return v.snapshotsPast(r.at, whole) // its files cannot even be listed
	}
	if r.file.name == "" {
		if err := v.noLog(); err != nil {
			return err
		}
	}
	if v.out.Start = r.file.base; v.out.Start == 0 {
		v.image = meta.Empty()
	}
	if !whole {
		v.image = nil
		r.skip()
	}
	for !errors.As(err, new(*FormatError)) {
		if err := v.snapshotsUpTo(r, whole); err != nil {
			return err
		}
		want := r.at.Offset
		var b LoggedBatch
		b, err = r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err := v.damaged(DamagedLog, err); err != nil {
			return err
		}
		if err != nil {
			v.image, whole = nil, false
			r.skip()
			continue
		}
		v.batch(b, want)
		whole = true
	}
	v.out.End = r.at
	if file, at, size := r.Torn(); size > 0 && whole {
		v.find(TornAppend, file, at, "the log ends in %d bytes of a frame that is not whole", size)
	}
	return v.snapshotsPast(r.at, whole)
}

// noLog looks for what says that there was a log.
func (v *verifier) noLog() error {
	_, err := v.cfg.FS.Stat(EpochFile)
	if err == nil {
		v.find(DamagedLog, v.cfg.LogDir, 0, "it holds no log, and the file %s beside it says that it did", EpochFile)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("metalog: %w", err)
	}
	return nil
}

// batch takes the next batch, which should have had the offset want.
func (v *verifier) batch(b LoggedBatch, want int64) {
	v.out.Batches++
	switch id := ClusterIn(b.Batch); {
	case id == uuid.Nil || id == v.out.Cluster:
	case v.out.Cluster == uuid.Nil:
		v.out.Cluster = id
	default:
		v.find(DamagedLog, b.File, b.At, "the batch founds cluster %s, and this is a directory of cluster %s", id, v.out.Cluster)
	}
	if gone := b.Batch.Offset - want; gone > 0 && len(v.out.Findings) > 0 {
		last := &v.out.Findings[len(v.out.Findings)-1]
		last.Problem += fmt.Sprintf("; the next good batch is %d: %d before it cannot be read", b.Batch.Offset, gone)
	}
	if v.image == nil {
		return
	}
	im, err := v.image.Apply(b.Batch)
	if err != nil {
		v.find(DamagedLog, b.File, b.At, "the batch does not apply: %s", err)
	}
	v.image = im
}

// snapshotsUpTo reads the snapshots that end where the reader is, or before. Only behind
// a whole log is it known what the one there has to continue.
func (v *verifier) snapshotsUpTo(r *LogReader, whole bool) error {
	for len(v.left) > 0 && v.left[0].EndOffset <= r.at.Offset {
		f := v.left[0]
		v.left = v.left[1:]
		im, name, err := v.snapshot(f)
		if err != nil {
			return err
		}
		if im == nil || f.EndOffset < r.at.Offset || !whole {
			continue
		}
		if h := headerOf(im); h.Position != r.at {
			v.find(StrangeSnapshot, name, 0, "%s", otherHistory(h.Position, r.at))
			continue
		}
		v.usable = true
		if v.image == nil {
			v.image = im
			continue
		}
		if err := v.cfg.Same(v.image, im); err != nil {
			v.find(OtherImage, name, 0, "it is not what the log gives at offset %d: %s", f.EndOffset, err)
			continue
		}
		v.out.Snapshots[len(v.out.Snapshots)-1].Compared = true
	}
	return nil
}

// snapshotsPast reads the snapshots past the end of the log.
func (v *verifier) snapshotsPast(end Position, whole bool) error {
	for _, f := range v.left {
		im, name, err := v.snapshot(f)
		switch {
		case err != nil:
			return err
		case im == nil || !whole:
			continue
		case !headerOf(im).passes(end):
			v.find(StrangeSnapshot, name, 0, "it is past the end of the log: %s", otherHistory(headerOf(im).Position, end))
		case v.cfg.Led:
			v.find(DamagedLog, v.cfg.LogDir, 0, "%s", lostTail(end.Offset, f.SnapshotID))
		default:
			v.usable = true
			v.find(Leftover, name, 0, "it is past the end %d of the log, which the next start empties", end.Offset)
		}
	}
	return nil
}

// snapshot reads one through. It returns no image if it is damaged, or of another cluster.
func (v *verifier) snapshot(f SnapshotFile) (im *meta.Image, name string, err error) {
	name = snapshotFile(v.cfg.SnapshotsDir, f.SnapshotID)
	im, ref, err := LoadSnapshot(v.cfg.FS, v.cfg.SnapshotsDir, f.SnapshotID)
	if err != nil {
		return nil, name, v.damaged(DamagedSnapshot, err)
	}
	if err := v.pieces(ref); err != nil {
		return nil, name, err
	}
	switch cluster := headerOf(im).Cluster; v.out.Cluster {
	case cluster:
	case uuid.Nil:
		v.out.Cluster = cluster
	default:
		v.find(StrangeSnapshot, name, 0, "it is of cluster %s, the rest of %s", cluster, v.out.Cluster)
		return nil, name, nil
	}
	v.out.Snapshots = append(v.out.Snapshots, VerifiedSnapshot{SnapshotRef: ref, Records: im.Len()})
	return im, name, nil
}

// pieces checks the piece list of a good snapshot, if there is one.
func (v *verifier) pieces(ref SnapshotRef) error {
	name, sizeMax := sidecarFile(v.cfg.SnapshotsDir, ref.SnapshotID), segment.SidecarSize(ref.SizeBytes)
	if v.noFile[name] {
		return nil // told already
	}
	switch info, err := v.cfg.FS.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil // made by the next start
	case err != nil:
		return fmt.Errorf("metalog: %w", err)
	case info.Size() > sizeMax:
		v.find(DamagedPieces, name, 0, "it is not of its snapshot, which is good: it has %d bytes, and cannot have more than %d", info.Size(), sizeMax)
		return nil
	}
	data, err := vfs.ReadFile(v.cfg.FS, name, sizeMax)
	if err != nil {
		return fmt.Errorf("metalog: %w", err)
	}
	p, err := segment.ParsePieces(data, ref.Digest)
	if err == nil && p.Size != ref.SizeBytes {
		err = fmt.Errorf("it is of %d bytes, not %d", p.Size, ref.SizeBytes)
	}
	if err != nil {
		v.find(DamagedPieces, name, 0, "it is not of its snapshot, which is good: %s", err)
	}
	return nil
}

// epoch checks the epoch file against the log.
func (v *verifier) epoch() error {
	claimed, err := readEpoch(v.cfg.FS)
	if err != nil {
		return v.damaged(DamagedEpoch, err)
	}
	switch last := v.out.End.LastEpoch; {
	case claimed == 0 && v.cfg.Led && last > 0:
		v.find(DamagedEpoch, EpochFile, 0, "it is not there, and the log holds epoch %d", last)
	case claimed > 0 && claimed < last:
		v.find(DamagedEpoch, EpochFile, 0, "it says epoch %d, and the log holds epoch %d", claimed, last)
	}
	return nil
}

// noFiles takes note of what is in the place of a snapshot's files.
func (v *verifier) noFiles() error {
	entries, err := v.cfg.FS.ReadDir(v.cfg.SnapshotsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("metalog: %w", err)
	}
	for _, e := range entries {
		if !isSnapshotName(e.Name()) {
			continue
		}
		name := path.Join(v.cfg.SnapshotsDir, e.Name())
		if err := notAFile(name, e); err != nil {
			v.noFile[name] = true
			if err := v.damaged(DamagedSnapshot, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftovers takes note of what else lies there.
func (v *verifier) leftovers(files []SnapshotFile) error {
	for _, f := range files {
		name := path.Join(v.cfg.SnapshotsDir, f.Name)
		switch f.State {
		case SnapshotSetAside:
			v.find(SetAside, name, 0, "it was found damaged and set aside")
		case SnapshotWriting, SnapshotDownloading, SnapshotRemoving:
			v.find(Leftover, name, 0, "it is %s", map[SnapshotState]string{
				SnapshotWriting: "being written", SnapshotDownloading: "being downloaded", SnapshotRemoving: "being removed"}[f.State])
		}
	}
	entries, err := v.cfg.FS.ReadDir(v.cfg.LogDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("metalog: %w", err)
	}
	for _, e := range entries {
		for suffix, what := range map[string]string{
			tmpSuffix: "being made", deletedSuffix: "being removed", resetSuffix: "what the log begins anew with; the files before it are over",
		} {
			if plain, ok := strings.CutSuffix(e.Name(), suffix); ok {
				if _, ours := parseLogFileName(plain); ours {
					v.find(Leftover, path.Join(v.cfg.LogDir, e.Name()), 0, "it is %s", what)
				}
			}
		}
	}
	return nil
}
