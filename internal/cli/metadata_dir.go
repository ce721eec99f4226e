package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/shoalstore/shoal/internal/restore"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
)

// owner is whose data directory it is: that says where its log is, and what to do about
// damage.
type owner string

const (
	ownerController owner = "controller"                   // embedded: its log is the metadata
	ownerMember     owner = "controller with ZooKeeper"    // its log is a copy of what is in ZooKeeper
	ownerUnfinished owner = "controller, not yet restored" // by `shoal metadata restore`
	ownerNode       owner = "node"                         // its log is a copy of the leader's
)

// dataDir is a data directory that is looked at, while a process may have it open.
type dataDir struct {
	path    string
	fs      vfs.FS
	owner   owner
	logDir  string // below fs
	follows string // where the metadata is, if not here
	running bool
	cluster uuid.UUID // of a node's; zero if nothing but log and snapshots says it
}

// What a data directory has in it.
const (
	controllerLogDir = "log"
	nodeLogDir       = "cache"
	nodeIdentity     = "identity.json"
	modeFile         = "metadata.json"
	lockFile         = "LOCK"
)

// openDataDir tells whose data directory it is. It takes no lock.
func openDataDir(path string) (*dataDir, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	d := &dataDir{path: path}
	if err := d.identify(); err != nil {
		return nil, err
	}
	if d.running, err = isLocked(filepath.Join(path, lockFile)); err != nil {
		return nil, err
	}
	d.fs, err = vfs.OS(path)
	return d, err
}

func (d *dataDir) identify() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(name string) bool { return slices.Contains(names, name) })
	}
	node := has(nodeLogDir, nodeIdentity)
	controller := has(controllerLogDir, metalog.EpochFile, modeFile)
	switch {
	case node && controller:
		return fmt.Errorf("%s has in it what a controller has and what a node has (%s): it is no data directory of either", d.path, strings.Join(names, ", "))
	case node:
		d.owner, d.logDir = ownerNode, nodeLogDir
		return d.readIdentity()
	case controller || has(metalog.SnapshotsDir):
		d.owner, d.logDir = ownerController, controllerLogDir
		return d.readMode()
	}
	return fmt.Errorf("%s is no data directory of a controller or a node: it has neither %s/ nor %s/ in it%s", d.path, controllerLogDir, nodeLogDir, d.hint(names))
}

// hint names the directory that was meant.
func (d *dataDir) hint(names []string) string {
	if slices.ContainsFunc(names, func(name string) bool {
		return strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".checkpoint")
	}) {
		return "; give the directory above it"
	}
	var below []string
	for _, name := range names {
		dir := &dataDir{path: filepath.Join(d.path, name)}
		if info, err := os.Stat(dir.path); err == nil && info.IsDir() {
			if _, err := os.Stat(filepath.Join(dir.path, lockFile)); err == nil {
				below = append(below, name)
			}
		}
	}
	if len(below) > 0 {
		return "; below it are those of " + strings.Join(below, ", ")
	}
	return ""
}

// readIdentity reads which cluster a node has met.
func (d *dataDir) readIdentity() error {
	var identity struct {
		ClusterID uuid.UUID `json:"clusterId"`
	}
	err := d.readJSON(nodeIdentity, &identity)
	d.cluster = identity.ClusterID
	return err
}

// readMode reads where the metadata is that a controller's directory follows.
func (d *dataDir) readMode() error {
	var mode struct {
		Metadata string `json:"metadata"`
	}
	if err := d.readJSON(modeFile, &mode); err != nil {
		return err
	}
	switch mode.Metadata {
	case "":
	case restore.Unfinished:
		d.owner = ownerUnfinished
	default:
		d.owner, d.follows = ownerMember, mode.Metadata
	}
	return nil
}

// readJSON reads a file of the directory, nothing if it is not there.
func (d *dataDir) readJSON(name string, v any) error {
	name = filepath.Join(d.path, name)
	data, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// isLocked reports whether a process has the data directory. It asks for a shared lock,
// which writes nothing, and gives it back at once.
func isLocked(name string) (bool, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// file names a file of the directory for people.
func (d *dataDir) file(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// noteRunning says on standard error that what is read may be written at this moment.
func (a *app) noteRunning(d *dataDir) {
	if d.running {
		fmt.Fprintf(a.Err, "note: a process has %s open and may be writing to it; it was not asked\n", d.path)
	}
}

// noteTorn says how the log ends, if not in a whole frame.
func (a *app) noteTorn(d *dataDir, r *metalog.LogReader) {
	file, at, size := r.Torn()
	if size == 0 {
		return
	}
	fmt.Fprintf(a.Err, "note: %s at byte %d: %d bytes of a frame that is not whole: %s\n", d.file(file), at, size, d.tornMeans())
}

// tornMeans says what a frame is that the log ends in the middle of.
func (d *dataDir) tornMeans() string {
	if d.running {
		return "it is being written"
	}
	return "an append that was cut short, and acknowledged to nobody; the next start cuts it off"
}
