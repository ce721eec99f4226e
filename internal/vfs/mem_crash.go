package vfs

import (
	"io/fs"
	"maps"
	"math/rand"
	"path"
	"slices"
	"strings"
	"time"
)

// Clone returns a copy that shares nothing with m: as if the process had died
// and the power had stayed. Locks are not held in it.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crash(func(*entryOp) bool { return true }, func(n *inode) content { return n.now.share() })
}

// CrashClone returns what a start after a power cut at this moment could find.
// What was durable is there, always. With a nil rnd nothing else is; otherwise
// each pending change of a directory is kept or lost, and unsynced content is
// kept, lost or torn at sector boundaries, as rnd decides: the same rnd on the
// same history gives the same disk.
func (m *Mem) CrashClone(rnd *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rnd == nil {
		return m.crash(func(*entryOp) bool { return false }, func(n *inode) content { return n.durable.share() })
	}
	return m.crash(
		func(*entryOp) bool { return rnd.Intn(2) == 0 },
		func(n *inode) content { return tear(rnd, &n.durable, &n.now) },
	)
}

// crash builds the file system of the durable entries plus those pending
// changes that keep chooses, with the content that pick chooses. What is in it
// is durable: the machine has read it from its disk.
func (m *Mem) crash(keep func(*entryOp) bool, pick func(*inode) content) *Mem {
	entries := map[*inode]map[string]*inode{}
	of := func(dir *inode) map[string]*inode {
		if entries[dir] == nil {
			entries[dir] = maps.Clone(dir.durableEntries)
		}
		return entries[dir]
	}
	kept := map[*entryOp]bool{}
	for _, op := range m.pending {
		// needs is either earlier in pending, or settled and so durable.
		if op.needs != nil && !kept[op.needs] && slices.Contains(m.pending, op.needs) {
			continue
		}
		if kept[op] = keep(op); kept[op] {
			for _, c := range op.changes {
				c.apply(of(c.dir))
			}
		}
	}
	out := &Mem{locks: map[string]bool{}, nextIno: m.nextIno}
	copies := map[*inode]*inode{} // a file under two names stays one file
	var build func(*inode) *inode
	build = func(n *inode) *inode {
		if c := copies[n]; c != nil {
			return c
		}
		c := &inode{ino: n.ino, mode: n.mode, modTime: n.modTime}
		copies[n] = c
		if !n.mode.IsDir() {
			c.now = pick(n)
			c.durable = c.now.share()
			return c
		}
		c.entries = map[string]*inode{}
		for _, name := range slices.Sorted(maps.Keys(of(n))) { // sorted: rnd is drawn in build
			c.entries[name] = build(of(n)[name])
		}
		c.durableEntries = maps.Clone(c.entries)
		return c
	}
	out.root = build(m.root)
	return out
}

// sectorSize is what a disk writes whole or not at all.
const sectorSize = 512

// tear draws what is left of a file whose content was durable as old and has
// become now without a Sync: now, old, or a size between with each sector of
// either, zeros where neither had written it yet.
func tear(rnd *rand.Rand, old, now *content) content {
	switch rnd.Intn(3) {
	case 0:
		return now.share()
	case 1:
		return old.share()
	}
	low, high := min(old.size, now.size), max(old.size, now.size)
	torn := old.share()
	torn.truncate(low + rnd.Int63n(high-low+1))
	sector := make([]byte, sectorSize)
	for off := int64(0); off < torn.size; off += sectorSize {
		if rnd.Intn(2) == 0 {
			n := now.readAt(sector[:min(sectorSize, torn.size-off)], off)
			torn.writeAt(sector[:n], off)
		}
	}
	return torn
}

// info describes the inode under a name; it does not change afterwards.
func (n *inode) info(name string) fs.FileInfo {
	return memInfo{name: path.Base(name), size: n.now.size, mode: n.mode, modTime: n.modTime, ino: n.ino}
}

type memInfo struct {
	name    string
	size    int64
	mode    fs.FileMode
	modTime time.Time
	ino     uint64
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return i.modTime }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return i.ino }

// Durable returns what a power cut at this moment would leave of a file at least,
// and whether that is anything: the content as of its last Sync, if the way to it
// is durable too.
func (m *Mem) Durable(name string) (data []byte, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range strings.Split(path.Clean(name), "/") {
		if n = n.durableEntries[part]; n == nil {
			return nil, false
		}
	}
	if n.mode.IsDir() {
		return nil, false
	}
	data = make([]byte, n.durable.size)
	n.durable.readAt(data, 0)
	return data, true
}
