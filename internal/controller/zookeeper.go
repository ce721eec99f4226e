package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// idBytesMax bounds the id of a controller: it is in each listing of the candidates.
const idBytesMax = 128

// distributed reports whether the metadata is in ZooKeeper.
func (c Config) distributed() bool { return c.Metadata != "" && c.Metadata != Embedded }

func (c Config) validateZooKeeper(faults *config.Faults) {
	if !strings.HasPrefix(c.Metadata, "zookeeper://") {
		faults.Addf("metadata", c.Metadata, "neither %q nor zookeeper://host:port,.../root", Embedded)
	} else if _, err := zkmeta.ParseAddress(c.Metadata); err != nil {
		faults.Addf("metadata", c.Metadata, "%s", err)
	}
	if (c.ZooKeeper.User == "") != (c.ZooKeeper.Password == "") {
		faults.Addf("zookeeper-user", c.ZooKeeper.User, "user and password belong together")
	}
	if strings.ContainsAny(c.ID, "/\x00") {
		faults.Addf("id", c.ID, "it names a znode: no slash")
	}
	if len(c.ID) > idBytesMax {
		faults.Addf("id", c.ID[:32]+"…", "%d bytes; at most %d", len(c.ID), idBytesMax)
	}
}

// modeFile says where the metadata of a data directory is, when that is not the
// directory alone. Without it, an embedded controller that is started by mistake on a
// member's directory would lead a cluster whose truth is elsewhere.
const modeFile = "metadata.json"

// UnfinishedRestore is what modeFile says while a data directory is being written by a
// restore: no controller starts on it.
const UnfinishedRestore = "an unfinished restore (run shoal metadata restore again)"

// mode is the content of modeFile.
type mode struct {
	Metadata string `json:"metadata"`
}

// claimMode refuses a data directory of the other mode, and marks one that is not yet.
func (c *Controller) claimMode() error {
	marked, err := readMode(c.fs)
	if err != nil {
		return err
	}
	if marked.Metadata == UnfinishedRestore {
		return fmt.Errorf("controller: %s is of a restore that was cut short: run `shoal metadata restore` again, or use another directory", c.cfg.Data)
	}
	if !c.cfg.distributed() {
		if marked.Metadata != "" {
			return fmt.Errorf("controller: %s follows the metadata in %s: start with --metadata %s, or bring the metadata here with `shoal metadata migrate`",
				c.cfg.Data, marked.Metadata, marked.Metadata)
		}
		return nil
	}
	if marked.Metadata == "" {
		if _, err := c.fs.Stat(metalog.EpochFile); err == nil {
			return fmt.Errorf("controller: %s holds the metadata of an embedded controller: bring it to %s with `shoal metadata migrate`, or use another directory",
				c.cfg.Data, c.cfg.Metadata)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("controller: %w", err)
		}
	}
	if marked.Metadata != "" {
		return nil // see remark
	}
	return WriteMode(c.fs, c.cfg.Metadata)
}

// remark has a directory that was marked before name the address of now. Its log was
// found to be of the cluster there: a mistyped address must not take the place of the
// one by which `shoal metadata migrate` knows the directory.
func (c *Controller) remark() error {
	marked, err := readMode(c.fs)
	if err != nil || marked.Metadata == c.cfg.Metadata {
		return err
	}
	return WriteMode(c.fs, c.cfg.Metadata)
}

func readMode(fsys vfs.FS) (m mode, err error) {
	data, err := vfs.ReadFile(fsys, modeFile, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		return m, fmt.Errorf("controller: %s: %w", modeFile, err)
	}
	return m, nil
}

// WriteMode marks a data directory as one that follows the metadata elsewhere; with
// Embedded, as one that does not.
func WriteMode(fsys vfs.FS, metadata string) error {
	if metadata == Embedded {
		if err := fsys.Remove(modeFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("controller: %w", err)
		}
		return fsys.SyncDir(".")
	}
	data, err := json.Marshal(mode{Metadata: metadata})
	if err != nil {
		return err
	}
	return vfs.WriteFile(fsys, modeFile, data)
}

// dial begins a session with the ensemble.
func (c *Controller) dial() (*zkmeta.Conn, error) {
	address, err := zkmeta.ParseAddress(c.cfg.Metadata)
	if err != nil {
		return nil, err
	}
	return zkmeta.Connect(c.cfg.ZooKeeper.Conn(address, c.root, zkmeta.NewMetrics(c.reg)))
}

// waitForTree returns the id of the cluster that is in ZooKeeper, once ZooKeeper can
// be reached.
func (m *member) waitForTree(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, leadRetryMax) {
		before, changed := m.conn.Watch()
		cluster, err := zkmeta.ReadIdentity(ctx, m.conn)
		switch {
		case err == nil:
			m.cluster = cluster
			return nil
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, zkmeta.ErrNoAnswer):
			return fmt.Errorf("controller: metadata in %s: %w", m.c.cfg.Metadata, err)
		}
		m.log.Warn().Err(err).Dur("dur", wait).Msg("ZooKeeper does not answer, asked again after a pause")
		if before.Connected {
			changed = nil // what it says while it is connected is what the pause is for
		}
		if !m.restFor(ctx, wait, changed) {
			return nil
		}
	}
}

// restFor waits for a time, or until a session that was not there is: ZooKeeper that
// comes back is not made to wait. It returns false when ctx has ended.
func (m *member) restFor(ctx context.Context, wait time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-changed:
		case <-ctx.Done():
			return false
		}
		var now zkmeta.Session
		if now, changed = m.conn.Watch(); now.Connected {
			return true
		}
	}
}
