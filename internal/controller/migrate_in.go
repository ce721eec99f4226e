package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
)

// MigrateToZooKeeper moves the metadata of an embedded controller into a tree. No
// controller runs meanwhile. Cut short anywhere, it is done by calling it again; until
// its last step but one the directory is the truth, then for a moment nothing can be
// led from, and then the tree is.
func MigrateToZooKeeper(ctx context.Context, cfg MigrateConfig) (_ Migrated, err error) {
	if _, err := os.Stat(cfg.Data); err != nil {
		return Migrated{}, fmt.Errorf("controller: data directory: %w", err)
	}
	m, err := openMigration(cfg)
	if err != nil {
		return Migrated{}, err
	}
	defer func() { err = errors.Join(err, m.lock.Close()) }()
	tree, err := m.look(ctx)
	if err != nil {
		return Migrated{}, err
	}
	var image *meta.Image
	err = m.step(ctx, StepRead, func() (err error) {
		image, err = m.readSource(tree)
		return err
	})
	if err != nil {
		return Migrated{}, err
	}
	result := migrated(image)
	if result.Already = tree.Unusable == nil && m.mode != ""; !result.Already {
		err = m.moveIn(ctx, image)
	}
	if err == nil {
		err = m.step(ctx, StepTidy, m.dropEpoch)
	}
	return result, err
}

// readSource reads the image of the directory, and makes sure that it is the truth.
func (m *migration) readSource(tree zkmeta.Tree) (*meta.Image, error) {
	led, err := m.has(metalog.EpochFile)
	if err != nil {
		return nil, err
	}
	var half *zkmeta.MigratingError
	switch {
	case m.mode == "" && !led:
		return nil, fmt.Errorf("controller: %s holds no metadata of an embedded controller", m.Data)
	case m.mode == "":
	case m.follows() && tree.Unusable == nil:
		// Moved already, if the cluster is the same.
	case m.follows() && led && errors.As(tree.Unusable, &half) && tree.Migration == m.id:
		// Cut short between the last two steps.
	default:
		return nil, m.elsewhere(tree)
	}
	image, err := m.recover()
	if err != nil {
		return nil, err
	}
	cluster := image.Cluster()
	switch {
	case cluster == nil:
		return nil, fmt.Errorf("controller: the log in %s is of no cluster", m.Data)
	case cluster.FormatVersion > meta.FormatVersion:
		return nil, &newerClusterError{cluster.FormatVersion}
	case m.mode != "" && tree.Cluster != cluster.ID:
		return nil, fmt.Errorf("controller: %s holds the log of cluster %s, and in %s there is cluster %s", m.Data, cluster.ID, m.Address, tree.Cluster)
	case m.mode != "":
		return image, nil
	}
	return image, m.checkEpoch(image)
}

// checkEpoch refuses a log whose last epoch is not the last that was claimed: the next
// leader would claim it a second time.
func (m *migration) checkEpoch(image *meta.Image) error {
	const sizeMax = 100 // bytes; the longest line is 45
	data, err := vfs.ReadFile(m.fs, metalog.EpochFile, sizeMax)
	if err != nil {
		return err
	}
	var claimed int64
	if _, err := fmt.Sscanf(string(data), "epoch %d", &claimed); err != nil {
		return fmt.Errorf("controller: %s: %w", metalog.EpochFile, err)
	}
	if claimed > image.Epoch() {
		return fmt.Errorf("controller: epoch %d was claimed in %s and never opened; the log ends in epoch %d: start the controller there once more, stop it, and try again",
			claimed, m.Data, image.Epoch())
	}
	return nil
}

// moveIn writes the tree, and then lets go of the directory.
func (m *migration) moveIn(ctx context.Context, image *meta.Image) error {
	if m.mode == "" { // else the tree has the id already
		if err := m.begin(); err != nil {
			return err
		}
	}
	in := zkmeta.NewImport(zkmeta.ImportConfig{
		Conn: m.Conn, Image: image, Migration: m.id, From: m.place(),
		Progress: func(done, total int) { m.Progress(StepWrite, done, total) },
	})
	for _, s := range []struct {
		name MigrateStep
		do   func() error
	}{
		{StepClaim, func() error { return in.Begin(ctx) }},
		{StepWrite, func() error { return in.Write(ctx) }},
		{StepVerify, func() error { return in.Verify(ctx) }},
		{StepRetire, func() error { return WriteMode(m.fs, m.Address.String()) }},
		{StepRelease, func() error { return in.Finish(ctx) }},
	} {
		if err := m.step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	return nil
}

// dropEpoch makes the directory a member's, whose log may be begun anew. An embedded
// controller refuses it from now on even if the mark is taken away by hand.
func (m *migration) dropEpoch() error {
	if err := m.fs.Remove(metalog.EpochFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("controller: %w", err)
	}
	return m.fs.SyncDir(".")
}
