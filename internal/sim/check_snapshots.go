package sim

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// The rules of METALOG §1, §2 and §4 for snapshots: one id is the same bytes everywhere,
// an image that comes out of one is that of history, the log begins where a good one is
// had, and nobody goes over to one that is not durable.

// snapshotTruth is what a snapshot has to be, wherever it is made.
type snapshotTruth struct {
	ref  metalog.SnapshotRef
	data []byte
}

// imagesEvery is how many offsets lie between two images of history that are kept.
const imagesEvery = 16

// imageAt is the image of history before the batch at an offset; nil: there is none.
func (k *checker) imageAt(next int64) *meta.Image {
	if next < 0 || next > int64(len(k.batches)) {
		return nil
	}
	im := k.images[next/imagesEvery]
	for _, b := range k.batches[im.Next():next] {
		var err error
		if im, err = im.Apply(b); err != nil {
			k.fail("I1", "batch %d does not apply: %v", b.Offset, err)
			return nil
		}
	}
	return im
}

// snapshot is what the snapshot of an id must be; false: it is of another history.
func (k *checker) snapshot(id metalog.SnapshotID) (snapshotTruth, bool) {
	if t, known := k.snapshots[id]; known {
		return t, true
	}
	im := k.imageAt(id.EndOffset)
	if im == nil || im.Next() == 0 || im.Epoch() != id.Epoch {
		k.fail("snapshot", "there is a snapshot %s, and history has no such position", id)
		return snapshotTruth{}, false
	}
	mem := vfs.NewMem()
	ref, err := metalog.WriteSnapshot(context.Background(), mem, "s", im)
	var data []byte
	if err == nil {
		data, err = vfs.ReadFile(mem, path.Join("s", snapshotName(id)), ref.SizeBytes)
	}
	if err != nil {
		k.fail("sim", "snapshot %s: %v", id, err)
	}
	t := snapshotTruth{ref, data}
	k.snapshots[id] = t
	return t, true
}

func snapshotName(id metalog.SnapshotID) string { return id.String() + ".checkpoint" }

func snapshotPath(id metalog.SnapshotID) string {
	return path.Join(metalog.SnapshotsDir, snapshotName(id))
}

func sidecarPath(id metalog.SnapshotID) string {
	return path.Join(metalog.SnapshotsDir, id.String()+".pieces")
}

// isGood reports whether a disk really has a snapshot, durable and whole.
func (k *checker) isGood(d *disk, id metalog.SnapshotID) bool {
	data, there := d.mem.Durable(snapshotPath(id))
	if !there {
		return false
	}
	t, ok := k.snapshot(id)
	return ok && bytes.Equal(data, t.data)
}

// made checks a snapshot that a process has made because the log asks for it.
func (k *checker) made(m *metadata, ref metalog.SnapshotRef) {
	if last := ref.EndOffset - 1; last < int64(len(k.batches)) && !k.batches[last].SnapshotHere {
		k.fail("snapshot", "%s has made snapshot %s, and batch %d does not ask for one", m.p.name, ref.SnapshotID, last)
	}
	k.written(m, ref)
}

// written checks a snapshot that a process has written.
func (k *checker) written(m *metadata, ref metalog.SnapshotRef) {
	t, ok := k.snapshot(ref.SnapshotID)
	switch {
	case !ok:
	case ref != t.ref && !m.p.disk.rotted[sidecarPath(ref.SnapshotID)]:
		k.fail("snapshot", "%s has made snapshot %s, and it is %s", m.p.name, ref, t.ref)
	case k.isGood(m.p.disk, ref.SnapshotID):
		delete(m.p.disk.rotted, snapshotPath(ref.SnapshotID))
	case !m.p.disk.rotted[snapshotPath(ref.SnapshotID)]:
		k.fail("snapshot", "%s has made snapshot %s, and a power cut would take it", m.p.name, ref.SnapshotID)
	}
}

// adopted checks a snapshot that a process has downloaded.
func (k *checker) adopted(m *metadata, ref metalog.SnapshotRef, im *meta.Image) {
	if t, ok := k.snapshot(ref.SnapshotID); ok && ref != t.ref {
		k.fail("snapshot", "%s takes snapshot %s, and it is %s", m.p.name, ref, t.ref)
		return
	}
	if !k.isGood(m.p.disk, ref.SnapshotID) {
		k.fail("snapshot", "%s takes snapshot %s, which is damaged or not durable", m.p.name, ref.SnapshotID)
	}
	delete(m.p.disk.rotted, snapshotPath(ref.SnapshotID))
	delete(m.p.disk.rotted, sidecarPath(ref.SnapshotID))
	k.loaded(m, ref, im)
}

// loaded checks an image that was read from a snapshot.
func (k *checker) loaded(m *metadata, ref metalog.SnapshotRef, im *meta.Image) {
	if im.Next() != ref.EndOffset || im.Epoch() != ref.Epoch {
		k.fail("snapshot", "%s reads snapshot %s, and is at offset %d, epoch %d", m.p.name, ref.SnapshotID, im.Next(), im.Epoch())
	}
	k.sameState(m.p.name, im)
}

// recovered checks an image that a process has found on its disk.
func (k *checker) recovered(m *metadata, im *meta.Image) {
	m.p.disk.sound(m.dir) // every frame was read
	k.setAside(m)
	m.p.disk.restarting = false // it was cut short, and is begun again if need be
	k.connected(m)
	k.same(m.p.name, im)
	k.sameState(m.p.name, im)
}

// sameState compares every record of an image with those of history at its offset.
func (k *checker) sameState(who string, im *meta.Image) {
	if im.Next() == 0 || k.c.w.failure != nil {
		return
	}
	want := k.imageAt(im.Next())
	if want == nil {
		return // same has told
	}
	if im.Len() != want.Len() || im.Epoch() != want.Epoch() || im.LastTerm() != want.LastTerm() || im.LastTime() != want.LastTime() {
		k.fail("I5", "%s has an image at offset %d with %d records of epoch %d, time %d; history has %d of epoch %d, time %d",
			who, im.Next(), im.Len(), im.Epoch(), im.LastTime(), want.Len(), want.Epoch(), want.LastTime())
		return
	}
	records := slices.Collect(want.Records())
	i := 0
	for r := range im.Records() {
		if !sameRecord(r, records[i]) {
			k.fail("I5", "%s has at offset %d the record %+v; history has %+v", who, im.Next(), r, records[i])
			return
		}
		i++
	}
}

func sameRecord(a, b meta.Record) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	// What is empty may be there or not.
	one, err1 := meta.EncodeRecord(a)
	two, err2 := meta.EncodeRecord(b)
	return a.Key() == b.Key() && err1 == nil && err2 == nil && bytes.Equal(one, two)
}

// connected checks that a log goes on from a good snapshot, unless a fault has damaged
// the one that it did go on from.
func (k *checker) connected(m *metadata) {
	start, end := m.log.Start(), m.log.End()
	if start < 0 || start > end {
		k.fail("snapshot", "the log of %s is [%d, %d)", m.p.name, start, end)
	}
	if start == 0 || m.p.disk.restarting {
		return
	}
	for name := range m.p.disk.rotted {
		id, err := metalog.ParseSnapshotID(strings.TrimSuffix(path.Base(name), ".checkpoint"))
		if err == nil && id.EndOffset >= start {
			return
		}
	}
	for _, ref := range m.snaps.List() {
		if ref.EndOffset >= start && k.isGood(m.p.disk, ref.SnapshotID) {
			return
		}
	}
	k.fail("snapshot", "the log of %s begins at %d, and it has no good snapshot that reaches there, but %v", m.p.name, start, m.snaps.List())
}

// resetting: the log goes only once there is a snapshot in its place that no power cut
// takes.
func (k *checker) resetting(m *metadata, to metalog.Position) {
	id := metalog.SnapshotID{EndOffset: to.Offset, Epoch: to.LastEpoch}
	if !k.isGood(m.p.disk, id) && !m.p.disk.rotted[snapshotPath(id)] {
		k.fail("snapshot", "%s is about to drop its log for snapshot %s, which is not there, whole and durable", m.p.name, id)
	}
}

// holdings are what cleaning changes.
type holdings struct {
	snapshots []metalog.SnapshotRef
	pinned    []metalog.SnapshotID
	start     int64
	applied   int64
}

func (m *metadata) holdings() holdings {
	h := holdings{snapshots: m.snaps.List(), pinned: m.snaps.Pinned(m.p.wall()), start: m.log.Start(), applied: m.log.End()}
	if m.applied != nil {
		h.applied = min(h.applied, m.applied())
	}
	return h
}

// cleaned checks what a cleaning has left.
func (k *checker) cleaned(m *metadata, was holdings, gone []metalog.SnapshotID, err error) {
	k.c.w.count.outcomes["snapshots: let go"] += int64(len(gone))
	if err != nil && !m.p.disk.full {
		k.fail("snapshot", "%s cannot let go of old snapshots: %v", m.p.name, err)
	}
	is := m.holdings()
	has := func(id metalog.SnapshotID) bool {
		return slices.ContainsFunc(is.snapshots, func(r metalog.SnapshotRef) bool { return r.SnapshotID == id })
	}
	for i, ref := range was.snapshots {
		switch {
		case has(ref.SnapshotID), m.p.disk.rotted[snapshotPath(ref.SnapshotID)]:
		case i >= len(was.snapshots)-2:
			k.fail("snapshot", "%s lets go of snapshot %s, one of the two newest of %v", m.p.name, ref.SnapshotID, was.snapshots)
		case slices.Contains(was.pinned, ref.SnapshotID):
			k.fail("snapshot", "%s lets go of snapshot %s, which is being sent", m.p.name, ref.SnapshotID)
		}
	}
	if is.start > was.start {
		k.c.w.count.outcomes["snapshots: log start moved"]++
		newest := is.snapshots[max(0, len(is.snapshots)-2)]
		switch {
		case is.start > was.applied:
			k.fail("snapshot", "the log of %s begins at %d now, and only what is before %d was applied", m.p.name, is.start, was.applied)
		case len(is.snapshots) < 2 || is.start > newest.EndOffset:
			k.fail("snapshot", "the log of %s begins at %d now, and its snapshots are %v", m.p.name, is.start, is.snapshots)
		}
	}
	k.connected(m)
	k.setAside(m)
}

// setAside looks at the snapshots that were set aside, as an operator does: none of them
// was good, unless the log was being begun anew. Those that were there before are known.
func (k *checker) setAside(m *metadata) {
	for _, name := range filesIn(m.p.disk.mem, metalog.SnapshotsDir) {
		id, err := metalog.ParseSnapshotID(strings.TrimSuffix(name, ".checkpoint.corrupt"))
		if err != nil || m.p.disk.aside[id] {
			continue
		}
		m.p.disk.aside[id] = true
		k.c.w.count.outcomes["snapshots: set aside"]++
		data, err := vfs.ReadFile(m.p.disk.mem, path.Join(metalog.SnapshotsDir, name), 1<<30)
		if t, ok := k.snapshot(id); err == nil && ok && bytes.Equal(data, t.data) && !m.p.disk.restarting {
			k.fail("snapshot", "%s sets snapshot %s aside, which is good", m.p.name, id)
		}
	}
}

func filesIn(mem *vfs.Mem, dir string) (names []string) {
	entries, err := mem.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// unrest says what a process still has to do for its log and its snapshots.
func (m *metadata) unrest(im *meta.Image) string {
	switch {
	case m == nil || m.log == nil || m.shotter == nil:
		return "has no log open"
	case m.log.End() != im.Next():
		return fmt.Sprintf("has a log that ends at %d of %d", m.log.End(), im.Next())
	case m.owed != (metalog.SnapshotID{}) && !slices.ContainsFunc(m.snaps.List(), func(r metalog.SnapshotRef) bool { return r.Compare(m.owed) >= 0 }):
		return fmt.Sprintf("has not made snapshot %s, but %v", m.owed, m.snaps.List())
	}
	return ""
}
