package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// MigrateConfig is what a migration needs.
type MigrateConfig struct {
	// Data is the data directory of the embedded controller, or of the one to be.
	Data string
	// Address is that of the tree, Conn a connection to it.
	Address zkmeta.Address
	Conn    *zkmeta.Conn
	Logger  zerolog.Logger
	// Progress is told what is being done, and how many records of how many are done
	// with; total is 0 where nobody counts.
	Progress func(step MigrateStep, done, total int)

	at func(MigrateStep) error // tests stop after a step
}

// MigrateStep is a step of a migration.
type MigrateStep string

// The steps, in the order of MigrateToZooKeeper and MigrateToEmbedded.
const (
	StepRead    MigrateStep = "read"    // the image is read from where it is
	StepClaim   MigrateStep = "claim"   // the destination is marked as being made
	StepWrite   MigrateStep = "write"   // the image is in the destination
	StepVerify  MigrateStep = "verify"  // it was read back and is the same
	StepRetire  MigrateStep = "retire"  // the source is marked as left
	StepRelease MigrateStep = "release" // the destination is marked as whole
	StepTidy    MigrateStep = "tidy"    // what the source does not need any more is removed
)

// Migrated is what a migration has moved.
type Migrated struct {
	ClusterID uuid.UUID `json:"clusterId"`
	Offset    int64     `json:"offset"` // of the last batch
	Epoch     int64     `json:"epoch"`
	Term      uuid.UUID `json:"term"`
	Records   int       `json:"records"`
	// Already says that it had been moved before, and nothing was left to do.
	Already bool `json:"already"`
}

func migrated(im *meta.Image) Migrated {
	return Migrated{ClusterID: im.Cluster().ID, Offset: im.Next() - 1, Epoch: im.Epoch(), Term: im.LastTerm(), Records: im.Len()}
}

// migrationFile keeps in the directory which migration it took part in last.
const migrationFile = "migration.json"

// migrationRecord is its content. The tree is marked with the same id, so that no
// other directory of the cluster passes for this one.
type migrationRecord struct {
	Migration uuid.UUID `json:"migration"`
}

// migration is one run of a migration, in a directory that is locked.
type migration struct {
	MigrateConfig
	fs   vfs.FS
	lock io.Closer
	mode string // where the directory's metadata is; empty: in itself
	id   uuid.UUID
}

// openMigration locks the directory.
func openMigration(cfg MigrateConfig) (_ *migration, err error) {
	if cfg.Progress == nil {
		cfg.Progress = func(MigrateStep, int, int) {}
	}
	if cfg.at == nil {
		cfg.at = func(MigrateStep) error { return nil }
	}
	m := &migration{MigrateConfig: cfg}
	if m.fs, err = vfs.OS(cfg.Data); err != nil {
		return nil, fmt.Errorf("controller: data directory %s: %w", cfg.Data, err)
	}
	if m.lock, err = m.fs.Lock("LOCK"); err != nil {
		return nil, fmt.Errorf("controller: data directory %s: %w; stop the controller that runs on it first", cfg.Data, err)
	}
	found, err := readMode(m.fs)
	m.mode = found.Metadata
	if err == nil {
		err = m.readID()
	}
	if err != nil {
		return nil, errors.Join(err, m.lock.Close())
	}
	return m, nil
}

// look says what is at the root, and refuses while a controller runs there.
func (m *migration) look(ctx context.Context) (zkmeta.Tree, error) {
	if err := zkmeta.Deserted(ctx, m.Conn); err != nil {
		return zkmeta.Tree{}, err
	}
	return zkmeta.LookAt(ctx, m.Conn)
}

func (m *migration) readID() error {
	data, err := vfs.ReadFile(m.fs, migrationFile, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var r migrationRecord
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return fmt.Errorf("controller: %s: %w", migrationFile, err)
	}
	m.id = r.Migration
	return nil
}

// begin gives this migration an id, before the tree has it.
func (m *migration) begin() error {
	m.id = uuid.New()
	data, err := json.Marshal(migrationRecord{m.id})
	if err != nil {
		return err
	}
	return vfs.WriteFile(m.fs, migrationFile, data)
}

// step does one step.
func (m *migration) step(ctx context.Context, s MigrateStep, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.Progress(s, 0, 0)
	if err := do(); err != nil {
		return err
	}
	return m.at(s)
}

// place says to people where the directory is.
func (m *migration) place() string {
	dir, err := filepath.Abs(m.Data)
	if err != nil {
		dir = m.Data
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("%s:%s on %s", Embedded, dir, host)
}

// log is the log in the directory, of whoever it is.
func (m *migration) log() localLog {
	opts := metalog.LogOptions{Dir: localLogDir, Logger: m.Logger, Metrics: metalog.NewMetrics(prometheus.NewRegistry())}
	return localLog{fs: m.fs, opts: opts}
}

// recover reads the image of the directory.
func (m *migration) recover() (*meta.Image, error) {
	local := m.log()
	if err := local.open(); err != nil {
		return nil, err
	}
	return local.image, local.close()
}

func (m *migration) has(name string) (bool, error) {
	_, err := m.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// follows reports whether the directory follows the tree of this migration. The
// servers may be named in another way by now.
func (m *migration) follows() bool {
	at, err := zkmeta.ParseAddress(m.mode)
	return err == nil && at.Root == m.Address.Root
}

// elsewhere says that the metadata is not in the directory.
func (m *migration) elsewhere(t zkmeta.Tree) error {
	err := fmt.Errorf("controller: %s follows the metadata in %s: it is not here", m.Data, m.mode)
	if t.Unusable != nil {
		err = fmt.Errorf("%w; and %w", err, t.Unusable)
	}
	return err
}

// unusedName tells what a directory may have in it and be empty still.
func unusedName(name string) bool {
	return name == "LOCK" || strings.TrimSuffix(name, ".tmp") == migrationFile || strings.TrimSuffix(name, ".tmp") == modeFile
}
