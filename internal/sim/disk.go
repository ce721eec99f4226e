package sim

import (
	"os"
	"path"
	"syscall"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
)

// disk is that of one process. The real store and the real log write to it, by way
// of fs; what they have not fsynced a power cut may take.
type disk struct {
	w   *world
	mem *vfs.Mem
	fs  vfs.FS
	// cutIn is how many durable operations there will be until the power goes, in
	// the middle of whatever is being done; 0: it does not.
	cutIn int
	off   bool // the power has gone; the process dies when its event returns
	full  bool

	// Of the log and the snapshots beside it. cutInSnapshots: the power goes at that
	// durable operation of the next work on snapshots.
	cutInSnapshots int
	rotted         map[string]bool             // files that a fault has damaged, by path
	aside          map[metalog.SnapshotID]bool // snapshots that are known to have been set aside
	// restarting: the log is being begun anew after an image that was rebuilt. Until that
	// has succeeded what is there need not fit together, and good snapshots are set aside.
	restarting bool
}

func newDisk(w *world) *disk {
	d := &disk{w: w}
	d.renew()
	return d
}

// renew puts an empty medium in.
func (d *disk) renew() {
	d.replace(vfs.NewMem())
	d.cutInSnapshots, d.rotted, d.aside, d.restarting = 0, map[string]bool{}, map[metalog.SnapshotID]bool{}, false
}

// replace puts another medium in.
func (d *disk) replace(mem *vfs.Mem) {
	d.mem, d.cutIn, d.off, d.full = mem, 0, false, false
	d.fs = vfs.WithFaults(mem, d.fault)
}

func (d *disk) fault(op vfs.Op) error {
	if d.off {
		return vfs.ErrPowerCut
	}
	if d.full && op.Kind.Mutates() && op.Size > 0 {
		d.w.count.faults["write to a full disk"]++
		return &os.PathError{Op: string(op.Kind), Path: op.Name, Err: syscall.ENOSPC}
	}
	if d.cutIn > 0 && op.Kind.Durable() {
		if d.cutIn--; d.cutIn == 0 {
			d.off = true
			d.w.count.faults["power cut within an operation"]++
			return vfs.ErrPowerCut
		}
	}
	return nil
}

// died settles what a start after the process's death finds.
func (d *disk) died(power bool) {
	if power || d.off {
		d.replace(d.mem.CrashClone(d.w.rnd))
		return
	}
	d.cutIn = 0
}

// durable is what would be left if the power went now and nothing unsynced made it.
func (d *disk) durable() *vfs.Mem { return d.mem.CrashClone(nil) }

// rottedIn reports whether a fault has damaged a file in a directory.
func (d *disk) rottedIn(dir string) bool {
	for name := range d.rotted {
		if name == dir || path.Dir(name) == dir {
			return true
		}
	}
	return false
}

// sound forgets the damage in a directory: it was found, or is out of the way.
func (d *disk) sound(dir string) {
	for name := range d.rotted {
		if name == dir || path.Dir(name) == dir {
			delete(d.rotted, name)
		}
	}
}

// rot flips a bit of a file, on the medium: no power cut takes it back.
func (d *disk) rot(name string, at int64) error {
	f, err := d.mem.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] ^= 1 << (at % 8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		return err
	}
	return f.Sync()
}
