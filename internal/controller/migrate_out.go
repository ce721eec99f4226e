package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// MigrateToEmbedded moves the metadata of a tree into a data directory, for one
// embedded controller: an empty one, or one of a member. No controller runs meanwhile.
// Cut short anywhere, it is done by calling it again; until the tree is marked it is
// the truth, then for a moment nothing can be led from, and then the directory is.
func MigrateToEmbedded(ctx context.Context, cfg MigrateConfig) (_ Migrated, err error) {
	m, err := openMigration(cfg)
	if err != nil {
		return Migrated{}, err
	}
	defer func() { err = errors.Join(err, m.lock.Close()) }()
	tree, err := m.look(ctx)
	if err != nil {
		return Migrated{}, err
	}
	already, err := m.mayMoveOut(tree)
	if err != nil {
		return Migrated{}, err
	}
	if already {
		image, err := m.recover()
		if err != nil {
			return Migrated{}, err
		}
		result := migrated(image)
		result.Already = true
		return result, nil
	}
	var out *zkmeta.Export
	err = m.step(ctx, StepRead, func() (err error) {
		out, err = zkmeta.ReadExport(ctx, m.Conn, tree)
		return err
	})
	if err != nil {
		return Migrated{}, err
	}
	return migrated(out.Image), m.moveOut(ctx, out)
}

// mayMoveOut refuses a tree that is not the truth, and a directory that may be
// somebody's. It reports whether the tree was moved to this directory before.
func (m *migration) mayMoveOut(tree zkmeta.Tree) (already bool, err error) {
	var moved *zkmeta.MovedError
	mine := errors.As(tree.Unusable, &moved) && tree.Migration == m.id
	switch {
	case mine && m.mode == "":
		return true, nil
	case tree.Unusable != nil && !mine:
		return false, tree.Unusable
	case m.mode != "" && !m.follows():
		return false, m.elsewhere(tree)
	case m.mode != "":
		return false, nil
	}
	entries, err := m.fs.ReadDir(".")
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if !unusedName(e.Name()) {
			return false, fmt.Errorf("controller: %s is neither empty nor the directory of a controller in %s: it has %q in it; nothing was changed", m.Data, m.Address, e.Name())
		}
	}
	return false, nil
}

// moveOut writes the directory, and then lets go of the tree. Up to then the directory
// is one of a member that is up to date.
func (m *migration) moveOut(ctx context.Context, out *zkmeta.Export) error {
	for _, s := range []struct {
		name MigrateStep
		do   func() error
	}{
		{StepClaim, func() error { return m.claimDirectory(out) }},
		{StepWrite, func() error { return m.writeDirectory(ctx, out) }},
		{StepVerify, func() error { return m.verifyDirectory(out.Image) }},
		{StepRetire, func() error { return out.Move(ctx, m.id, m.place()) }},
		{StepRelease, func() error { return m.releaseDirectory(out.Image) }},
	} {
		if err := m.step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

func (m *migration) claimDirectory(out *zkmeta.Export) error {
	if out.Moved() {
		return nil // the tree has the id already
	}
	if err := m.begin(); err != nil {
		return err
	}
	if m.mode != "" {
		return nil
	}
	return WriteMode(m.fs, m.Address.String())
}

// writeDirectory brings the log there to the end of the tree's: it goes on where it
// is, or begins anew behind a snapshot.
func (m *migration) writeDirectory(ctx context.Context, out *zkmeta.Export) (err error) {
	c := &Controller{cfg: Config{Data: m.Data, Metadata: m.Address.String()}, root: m.Logger, log: m.Logger, fs: m.fs, logs: m.log().opts.Metrics}
	local, err := openLocalLog(c, out.Image.Cluster().ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.close()) }()
	if local.image.Next() > out.Image.Next() {
		return fmt.Errorf("controller: the log in %s goes on to offset %d, the one in %s ends at %d: another tree of the cluster was here; use an empty directory",
			m.Data, local.image.Next(), m.Address, out.Image.Next())
	}
	err = local.readTail(ctx, m.Conn, out.Head())
	var missing *zkmeta.EntryMissingError
	if errors.As(err, &missing) || errors.Is(err, errContradiction) {
		return local.restart(out.Image)
	}
	return err
}

// verifyDirectory reads what is on the disk.
func (m *migration) verifyDirectory(want *meta.Image) error {
	got, err := m.recover()
	if err != nil {
		return err
	}
	return zkmeta.Same(want, got)
}

// releaseDirectory makes the directory an embedded controller's: the mark goes last.
func (m *migration) releaseDirectory(image *meta.Image) error {
	if err := metalog.RaiseEpoch(m.fs, image.Epoch()); err != nil {
		return err
	}
	return WriteMode(m.fs, Embedded)
}
