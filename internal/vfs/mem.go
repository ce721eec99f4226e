package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is an FS in memory that knows what a power cut would leave of it. The
// rules are those of a journalling file system at its least kind:
//
//   - A file's content is durable as of its last File.Sync.
//   - An entry of a directory (a creation, rename or removal) is durable after
//     SyncDir of that directory. A file that was created and fsynced, in a
//     directory that was not, may vanish; a rename may be undone.
//   - What is not durable may survive all the same, in any combination, and
//     unsynced content in parts of it.
//   - A file's rename may leave it under both names, but never under none; a
//     directory's is done or not.
//
// Modes are not part of the game: they survive. Free is unlimited; see
// WithSpace for a full disk.
type Mem struct {
	mu      sync.Mutex
	root    *inode
	pending []*entryOp
	locks   map[string]bool
	nextIno uint64
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	m := &Mem{locks: map[string]bool{}}
	m.root = m.newInode(fs.ModeDir | 0o755)
	return m
}

// inode is a file or a directory, whatever its names are.
type inode struct {
	ino     uint64
	mode    fs.FileMode
	modTime time.Time
	// A file: the content as it is, and as of the last Sync.
	now, durable content
	// A directory: its entries as they are, and without those in Mem.pending.
	entries, durableEntries map[string]*inode
}

// entryOp is a change of entries that no SyncDir has made durable yet: one
// entry, or the two that a directory's rename changes at once.
type entryOp struct {
	changes []entryChange
	// needs is set on the removal half of a file's rename: never durable
	// without the other half, or the file would be lost.
	needs *entryOp
}

type entryChange struct {
	dir    *inode
	name   string
	target *inode // nil: removed
}

func (c entryChange) apply(entries map[string]*inode) {
	if c.target == nil {
		delete(entries, c.name)
	} else {
		entries[c.name] = c.target
	}
}

func (m *Mem) newInode(mode fs.FileMode) *inode {
	m.nextIno++
	n := &inode{ino: m.nextIno, mode: mode, modTime: time.Now()}
	if mode.IsDir() {
		n.entries, n.durableEntries = map[string]*inode{}, map[string]*inode{}
	}
	return n
}

// change does changes of entries together, not durably.
func (m *Mem) change(needs *entryOp, changes ...entryChange) *entryOp {
	for _, c := range changes {
		c.apply(c.dir.entries)
		c.dir.modTime = time.Now()
	}
	op := &entryOp{changes: changes, needs: needs}
	m.pending = append(m.pending, op)
	return op
}

// syncDir makes the pending changes of dir durable, in their order, and with
// them what is not to be had apart: the arrival elsewhere of what left by a
// rename.
func (m *Mem) syncDir(dir *inode) {
	for {
		i := slices.IndexFunc(m.pending, func(op *entryOp) bool {
			return slices.ContainsFunc(op.changes, func(c entryChange) bool { return c.dir == dir })
		})
		if i < 0 {
			return
		}
		m.settle(m.pending[i])
	}
}

// settle makes one pending operation durable. Earlier changes of the same
// entries are overtaken by it and go.
func (m *Mem) settle(op *entryOp) {
	if op.needs != nil {
		m.settle(op.needs)
	}
	i := slices.Index(m.pending, op)
	if i < 0 {
		return // durable or overtaken
	}
	for _, c := range op.changes {
		c.apply(c.dir.durableEntries)
	}
	earlier := slices.Clone(m.pending[:i])
	for _, e := range earlier {
		e.changes = slices.DeleteFunc(e.changes, func(old entryChange) bool {
			return slices.ContainsFunc(op.changes, func(c entryChange) bool { return c.dir == old.dir && c.name == old.name })
		})
	}
	earlier = slices.DeleteFunc(earlier, func(e *entryOp) bool { return len(e.changes) == 0 })
	m.pending = append(earlier, m.pending[i+1:]...)
}

// find walks to name; a missing or wrong component is an *fs.PathError.
func (m *Mem) find(op, name string) (*inode, error) {
	n := m.root
	if name == "." {
		return n, nil
	}
	for _, elem := range strings.Split(name, "/") {
		if !n.mode.IsDir() {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		next, ok := n.entries[elem]
		if !ok {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOENT}
		}
		n = next
	}
	return n, nil
}

// findDir is find for a directory.
func (m *Mem) findDir(op, name string) (*inode, error) {
	n, err := m.find(op, name)
	if err == nil && !n.mode.IsDir() {
		err = &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return n, err
}

func (m *Mem) String() string { return "mem" }

func (m *Mem) Open(name string) (File, error) {
	return m.OpenFile(name, os.O_RDONLY, 0)
}

func (m *Mem) Create(name string) (File, error) {
	return m.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
}

func (m *Mem) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := checkName("open", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.openInode(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &memFile{fs: m, inode: n, name: name, flag: flag}, nil
}

func (m *Mem) openInode(name string, flag int, perm fs.FileMode) (*inode, error) {
	fail := func(err error) (*inode, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	dir, err := m.findDir("open", path.Dir(name))
	if err != nil {
		return nil, err
	}
	n := dir.entries[path.Base(name)]
	if name == "." {
		n = m.root
	}
	writes := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return fail(syscall.ENOENT)
	case n == nil:
		n = m.newInode(perm.Perm())
		m.change(nil, entryChange{dir, path.Base(name), n})
		return n, nil
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return fail(syscall.EEXIST)
	case n.mode.IsDir() && (writes || flag&os.O_CREATE != 0):
		return fail(syscall.EISDIR)
	case flag&os.O_TRUNC != 0 && writes:
		n.now.truncate(0)
	}
	return n, nil
}

func (m *Mem) Rename(oldName, newName string) error {
	for _, name := range []string{oldName, newName} {
		if err := checkNotRoot("rename", name); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	fail := func(err error) error {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	n, err := m.find("rename", oldName)
	if err != nil {
		return err
	}
	to, err := m.findDir("rename", path.Dir(newName))
	if err != nil {
		return err
	}
	if n.mode.IsDir() && strings.HasPrefix(newName, oldName+"/") {
		return fail(syscall.EINVAL)
	}
	switch there := to.entries[path.Base(newName)]; {
	case there == nil:
	case there.mode.IsDir(): // as package os has it, an empty one included
		return fail(syscall.EEXIST)
	case there == n:
		return nil
	case n.mode.IsDir():
		return fail(syscall.ENOTDIR)
	}
	from, err := m.findDir("rename", path.Dir(oldName))
	if err != nil {
		return err
	}
	arrive, leave := entryChange{to, path.Base(newName), n}, entryChange{from, path.Base(oldName), nil}
	if n.mode.IsDir() {
		m.change(nil, arrive, leave)
	} else {
		m.change(m.change(nil, arrive), leave)
	}
	return nil
}

func (m *Mem) Remove(name string) error {
	if err := checkNotRoot("remove", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("remove", name)
	if err != nil {
		return err
	}
	if len(n.entries) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	m.unlink(name)
	return nil
}

// unlink removes the entry of name, whose parent exists.
func (m *Mem) unlink(name string) {
	dir, _ := m.find("remove", path.Dir(name))
	m.change(nil, entryChange{dir, path.Base(name), nil})
}

func (m *Mem) RemoveAll(name string) error {
	if err := checkNotRoot("removeall", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("removeall", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	m.removeTree(name, n)
	return nil
}

// removeTree removes entry by entry, as the operating system does, so that a
// power cut may find any part of the tree.
func (m *Mem) removeTree(name string, n *inode) {
	for _, child := range slices.Sorted(maps.Keys(n.entries)) {
		m.removeTree(path.Join(name, child), n.entries[child])
	}
	m.unlink(name)
}

func (m *Mem) MkdirAll(name string, perm fs.FileMode) error {
	if err := checkName("mkdir", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, dir := range parents(name) {
		parent, err := m.findDir("mkdir", path.Dir(dir))
		if err != nil {
			return err
		}
		switch there := parent.entries[path.Base(dir)]; {
		case there == nil:
			m.change(nil, entryChange{parent, path.Base(dir), m.newInode(fs.ModeDir | perm.Perm())})
		case !there.mode.IsDir():
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		m.syncDir(parent)
	}
	return nil
}

func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := checkName("readdir", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.findDir("readdir", name)
	if err != nil {
		return nil, err
	}
	list := make([]fs.DirEntry, 0, len(dir.entries))
	for _, base := range slices.Sorted(maps.Keys(dir.entries)) {
		list = append(list, fs.FileInfoToDirEntry(dir.entries[base].info(base)))
	}
	return list, nil
}

func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	if err := checkName("stat", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n.info(path.Base(name)), nil
}

func (m *Mem) Chmod(name string, mode fs.FileMode) error {
	if err := checkName("chmod", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("chmod", name)
	if err != nil {
		return err
	}
	n.mode = n.mode&^fs.ModePerm | mode.Perm()
	return nil
}

func (m *Mem) SyncDir(name string) error {
	if err := checkName("syncdir", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.findDir("syncdir", name)
	if err != nil {
		return err
	}
	m.syncDir(dir)
	return nil
}

func (m *Mem) Lock(name string) (io.Closer, error) {
	if err := checkNotRoot("lock", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: ErrLocked}
	}
	if _, err := m.openInode(name, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	m.locks[name] = true
	return &memLock{fs: m, name: name}, nil
}

type memLock struct {
	fs   *Mem
	name string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.locks, l.name)
	})
	return nil
}

func (m *Mem) Free() (int64, error) { return 1 << 50, nil }
