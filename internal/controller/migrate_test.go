package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// migrationRig is a server, and a history to move.
type migrationRig struct {
	*testing.T
	server  *zktest.Server
	history *metatest.Log
}

func newMigrationRig(t *testing.T, segments int) *migrationRig {
	// Sessions may be long, so that calls may be slow: the machine may be busy.
	r := &migrationRig{T: t, server: zktest.Start(t, zktest.WithTickTime(3*time.Second)), history: metatest.NewLog(t)}
	l := r.history
	for _, n := range []string{"n1", "n2"} {
		l.AddNode(t, n, "zone")
	}
	backed := metatest.Config("backed")
	backed.DeepStore = &meta.DeepStoreConfig{URI: "file:///backups"}
	k := meta.PartitionKey{Table: l.AddTable(t, backed, 3), Partition: 1}
	for range segments {
		l.Do(t, meta.CommitSegment(l.Commit(t, k, 10)))
	}
	l.Do(t, meta.ExpireSegments(k, 2, math.MaxInt64, metatest.ObjectKey))
	l.Do(t, meta.CreateJob(metatest.ID("job"), "forceCommit", map[string]string{"table": "backed"}))
	l.TakeOver(t)
	kinds := map[meta.Kind]bool{}
	for rec := range l.Image.Records() {
		kinds[rec.Key().Kind] = true
	}
	if len(kinds) != 9 {
		t.Fatalf("the history has records of %d kinds: %v", len(kinds), kinds)
	}
	return r
}

// embedded makes the data directory of an embedded controller with the history.
func (r *migrationRig) embedded() string {
	r.Helper()
	dir := r.TempDir()
	fsys := r.open(dir)
	log, err := metalog.OpenLog(fsys, metalog.LogOptions{Dir: localLogDir})
	if err != nil {
		r.Fatal(err)
	}
	var entries []metalog.Entry
	for _, b := range r.history.Batches {
		e, err := metalog.NewEntry(b)
		if err != nil {
			r.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := errors.Join(log.AppendEntries(r.Context(), entries), log.Close(), metalog.RaiseEpoch(fsys, r.history.Image.Epoch())); err != nil {
		r.Fatal(err)
	}
	return dir
}

func (r *migrationRig) open(dir string) vfs.FS {
	r.Helper()
	fsys, err := vfs.OS(dir)
	if err != nil {
		r.Fatal(err)
	}
	return fsys
}

// config is that of a migration between dir and the tree at the root.
func (r *migrationRig) config(dir, root string) MigrateConfig {
	r.Helper()
	address, err := zkmeta.ParseAddress(fmt.Sprintf("zookeeper://%s%s", r.server.Addr(), root))
	if err != nil {
		r.Fatal(err)
	}
	return MigrateConfig{Data: dir, Address: address, Conn: r.connect(address), Logger: zerolog.Nop()}
}

func (r *migrationRig) connect(address zkmeta.Address) *zkmeta.Conn {
	r.Helper()
	conn, err := zkmeta.Connect(zkmeta.Access{SessionTimeout: time.Minute}.Conn(address, zerolog.Nop(), nil))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close() })
	return conn
}

func (r *migrationRig) in(cfg MigrateConfig) Migrated {
	r.Helper()
	m, err := MigrateToZooKeeper(r.Context(), cfg)
	if err != nil {
		r.Fatal(err)
	}
	return m
}

func (r *migrationRig) out(cfg MigrateConfig) Migrated {
	r.Helper()
	m, err := MigrateToEmbedded(r.Context(), cfg)
	if err != nil {
		r.Fatal(err)
	}
	return m
}

// isInTree compares the tree with an image.
func (r *migrationRig) isInTree(cfg MigrateConfig, want *meta.Image) {
	r.Helper()
	got, err := zkmeta.Rebuild(r.Context(), cfg.Conn)
	if err == nil {
		err = zkmeta.Same(want, got)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// isIn compares what a start on a directory would find with an image.
func (r *migrationRig) isIn(dir string, want *meta.Image) {
	r.Helper()
	if err := zkmeta.Same(want, r.onDisk(dir)); err != nil {
		r.Fatal(err)
	}
}

func (r *migrationRig) onDisk(dir string) *meta.Image {
	r.Helper()
	m, err := openMigration(MigrateConfig{Data: dir})
	if err != nil {
		r.Fatal(err)
	}
	im, err := m.recover()
	if err := errors.Join(err, m.lock.Close()); err != nil {
		r.Fatal(err)
	}
	return im
}

// leads reports whether an embedded controller starts on a directory.
func (r *migrationRig) leads(dir string) error {
	c, err := Open(Config{Data: dir, Listen: "127.0.0.1:0"}, zerolog.Nop())
	if err != nil {
		return err
	}
	return c.Close()
}

// lead runs a controller until it leads, and returns its image.
func (r *migrationRig) lead(dir, metadata string) *meta.Image {
	r.Helper()
	c, err := Open(Config{
		Data: dir, Listen: "127.0.0.1:0", Metadata: metadata, StreamRoot: r.TempDir(),
		ZooKeeper: zkmeta.Access{SessionTimeout: 10 * time.Second},
	}, zerolog.New(zerolog.NewTestWriter(r.T)))
	if err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	var im *meta.Image
	await(r.T, "it to lead", func() (bool, string) {
		l, err := c.leading()
		if err == nil {
			im = l.writer.Image()
		}
		return err == nil, fmt.Sprint(err)
	})
	stop()
	if err := errors.Join(<-ended, c.Close()); err != nil {
		r.Fatal(err)
	}
	return im
}

// goesOn fails unless a leader that came later has written behind an image.
func (r *migrationRig) goesOn(before, after *meta.Image) {
	r.Helper()
	if after.Cluster().ID != before.Cluster().ID || after.Epoch() <= before.Epoch() || after.Next() <= before.Next() || after.LastTerm() == before.LastTerm() {
		r.Fatalf("cluster %s, epoch %d, offset %d follows cluster %s, epoch %d, offset %d",
			after.Cluster().ID, after.Epoch(), after.Next(), before.Cluster().ID, before.Epoch(), before.Next())
	}
}

func TestMigrationThereAndBack(t *testing.T) {
	r := newMigrationRig(t, 1200)
	dir, want := r.embedded(), r.history.Image
	cfg := r.config(dir, "/there/and/back")

	m := r.in(cfg)
	if m.Already || m.Epoch != want.Epoch() || m.Offset != want.Next()-1 || m.Term != want.LastTerm() || m.Records != want.Len() {
		t.Errorf("moved %+v", m)
	}
	r.isInTree(cfg, want)
	if err := r.leads(dir); err == nil {
		t.Error("an embedded controller starts on the directory that was left")
	}
	if m := r.in(cfg); !m.Already {
		t.Errorf("moved twice: %+v", m)
	}
	r.isIn(dir, want) // a member goes on with it

	back := r.config(t.TempDir(), "/there/and/back")
	r.out(back)
	r.isIn(back.Data, want)
	if m := r.out(back); !m.Already {
		t.Errorf("moved back twice: %+v", m)
	}
	var moved *zkmeta.MovedError
	if _, err := zkmeta.ReadIdentity(t.Context(), back.Conn); !errors.As(err, &moved) {
		t.Errorf("the tree that was left: %v", err)
	}
	if _, err := MigrateToEmbedded(t.Context(), r.config(dir, "/there/and/back")); !errors.As(err, &moved) {
		t.Errorf("moved to a second directory: %v", err)
	}
	// The directory that was left first is of the past, though the tree knows it.
	if _, err := MigrateToZooKeeper(t.Context(), cfg); !errors.As(err, &moved) {
		t.Errorf("moved from a directory that is not the truth: %v", err)
	}
	r.in(back)
	r.isInTree(back, want)
}

func TestControllersLeadOnEitherSideOfAMigration(t *testing.T) {
	r := newMigrationRig(t, 20)
	dir := r.embedded()
	cfg := r.config(dir, "/shoal")
	at := r.history.Image
	for range 2 {
		after := r.lead(dir, Embedded)
		r.goesOn(at, after)
		r.in(cfg)
		member := r.lead(dir, cfg.Address.String())
		r.goesOn(after, member)
		other := r.lead(t.TempDir(), cfg.Address.String())
		r.goesOn(member, other)
		r.out(cfg) // into the member's own directory, which lags behind
		at = other
	}
	r.goesOn(at, r.lead(dir, Embedded))
}

var errKilled = errors.New("killed")

// killAt ends a migration behind a step.
func killAt(step MigrateStep) func(MigrateStep) error {
	return func(s MigrateStep) error {
		if s == step {
			return errKilled
		}
		return nil
	}
}

func TestMigrationKilledAtEachStepGoesOn(t *testing.T) {
	r := newMigrationRig(t, 20)
	want := r.history.Image
	// Who may be led from once a step is done.
	const source, nobody, destination = "source", "nobody", "destination"
	steps := []struct {
		step MigrateStep
		can  string
	}{
		{StepRead, source}, {StepClaim, source}, {StepWrite, source}, {StepVerify, source}, {StepRetire, nobody}, {StepRelease, destination},
	}
	check := func(t *testing.T, cfg MigrateConfig, embedded, tree bool) {
		t.Helper()
		if err := r.leads(cfg.Data); (err == nil) != embedded {
			t.Errorf("the directory can be led from: %v; %v", err == nil, err)
		}
		if _, err := zkmeta.ReadIdentity(t.Context(), cfg.Conn); (err == nil) != tree {
			t.Errorf("the tree can be led from: %v; %v", err == nil, err)
		}
	}
	for _, s := range steps {
		t.Run("in/"+string(s.step), func(t *testing.T) {
			cfg := r.config(r.embedded(), "/in-"+string(s.step))
			cut := cfg
			cut.at = killAt(s.step)
			for range 2 { // cut short at the same place twice
				if _, err := MigrateToZooKeeper(t.Context(), cut); !errors.Is(err, errKilled) && s.can != destination {
					t.Fatal(err)
				}
				check(t, cfg, s.can == source, s.can == destination)
			}
			r.in(cfg)
			check(t, cfg, false, true)
			r.isInTree(cfg, want)
		})
		t.Run("out/"+string(s.step), func(t *testing.T) {
			cfg := r.config(r.embedded(), "/out-"+string(s.step))
			r.in(cfg)
			cfg.Data = t.TempDir()
			cut := cfg
			cut.at = killAt(s.step)
			for range 2 {
				if _, err := MigrateToEmbedded(t.Context(), cut); !errors.Is(err, errKilled) && s.can != destination {
					t.Fatal(err)
				}
				// Before it is claimed, the directory is any empty one.
				check(t, cfg, s.can == destination || s.step == StepRead, s.can == source)
			}
			r.out(cfg)
			check(t, cfg, true, false)
			r.isIn(cfg.Data, want)
		})
	}
}

func TestMigrationCutShortWhileTheTreeIsWritten(t *testing.T) {
	r := newMigrationRig(t, 1200)
	want := r.history.Image
	cfg := r.config(r.embedded(), "/half")
	ctx, kill := context.WithCancel(t.Context())
	cut := cfg
	var half int
	cut.Progress = func(s MigrateStep, done, total int) {
		if s == StepWrite && done > 0 && done < total {
			half = done
			kill()
		}
	}
	if _, err := MigrateToZooKeeper(ctx, cut); !errors.Is(err, context.Canceled) || half == 0 {
		t.Fatalf("%v, after %d records", err, half)
	}
	var begun *zkmeta.MigratingError
	c, err := Open(Config{Data: t.TempDir(), Listen: "127.0.0.1:0", Metadata: cfg.Address.String()}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Run(t.Context()), c.Close()); !errors.As(err, &begun) {
		t.Errorf("a controller on half a tree: %v", err)
	}
	// The source is led from once more, and goes on: what is there is outdated.
	r.goesOn(want, r.lead(cfg.Data, Embedded))
	after := r.onDisk(cfg.Data)
	r.in(cfg)
	r.isInTree(cfg, after)
}

func TestMigrationIsRefused(t *testing.T) {
	r := newMigrationRig(t, 5)
	found := func(t *testing.T, root string) MigrateConfig {
		cfg := r.config(t.TempDir(), root)
		if err := zkmeta.Found(t.Context(), cfg.Conn, uuid.New()); err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	t.Run("into another cluster's tree", func(t *testing.T) {
		other := found(t, "/other")
		cfg := r.config(r.embedded(), "/other")
		before, err := zkmeta.ReadIdentity(t.Context(), other.Conn)
		if err != nil {
			t.Fatal(err)
		}
		var founded *zkmeta.FoundedError
		if _, err := MigrateToZooKeeper(t.Context(), cfg); !errors.As(err, &founded) {
			t.Error(err)
		}
		if now, err := zkmeta.ReadIdentity(t.Context(), other.Conn); now != before {
			t.Errorf("the tree is of %s now, it was of %s; %v", now, before, err)
		}
		if err := r.leads(cfg.Data); err != nil {
			t.Errorf("the source: %v", err)
		}
	})
	t.Run("into somebody else's tree", func(t *testing.T) {
		cfg := r.config(r.embedded(), "/foreign")
		if err := errors.Join(cfg.Conn.Create(t.Context(), "/foreign", nil), cfg.Conn.Create(t.Context(), "/foreign/kafka", []byte("x"))); err != nil {
			t.Fatal(err)
		}
		var foreign *zkmeta.ForeignTreeError
		if _, err := MigrateToZooKeeper(t.Context(), cfg); !errors.As(err, &foreign) {
			t.Error(err)
		}
		if names, err := cfg.Conn.Children(t.Context(), "/foreign"); err != nil || len(names) != 1 {
			t.Errorf("%q, %v", names, err)
		}
	})
	t.Run("into a directory with something in it", func(t *testing.T) {
		source := r.config(r.embedded(), "/source")
		r.in(source)
		cfg := r.config(t.TempDir(), "/source")
		if err := os.WriteFile(filepath.Join(cfg.Data, "precious"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := MigrateToEmbedded(t.Context(), cfg); err == nil {
			t.Error("it is not")
		}
		if _, err := MigrateToEmbedded(t.Context(), r.config(r.embedded(), "/source")); err == nil {
			t.Error("over an embedded controller's directory")
		}
		if _, err := zkmeta.ReadIdentity(t.Context(), cfg.Conn); err != nil {
			t.Error(err)
		}
	})
	t.Run("from nothing", func(t *testing.T) {
		if _, err := MigrateToZooKeeper(t.Context(), r.config(t.TempDir(), "/nothing")); err == nil {
			t.Error("an empty directory is moved")
		}
		absent := filepath.Join(t.TempDir(), "absent")
		if _, err := MigrateToZooKeeper(t.Context(), r.config(absent, "/nothing")); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		var none *zkmeta.NoTreeError
		if _, err := MigrateToEmbedded(t.Context(), r.config(t.TempDir(), "/nothing")); !errors.As(err, &none) {
			t.Error(err)
		}
		if _, err := MigrateToEmbedded(t.Context(), found(t, "/founded")); err == nil {
			t.Error("a tree in which nobody has led is moved")
		}
	})
	t.Run("an epoch that was claimed and not opened", func(t *testing.T) {
		cfg := r.config(r.embedded(), "/claimed")
		if _, err := metalog.ClaimEpoch(r.open(cfg.Data), r.history.Image.Epoch()); err != nil {
			t.Fatal(err)
		}
		if _, err := MigrateToZooKeeper(t.Context(), cfg); err == nil {
			t.Error("it is not")
		}
	})
	t.Run("while an embedded controller runs", func(t *testing.T) {
		cfg := r.config(r.embedded(), "/running")
		c, err := Open(Config{Data: cfg.Data, Listen: "127.0.0.1:0"}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := MigrateToZooKeeper(t.Context(), cfg); err == nil {
			t.Error("it is not")
		}
	})
	t.Run("while a candidate stands", func(t *testing.T) {
		cfg := r.config(r.embedded(), "/standing")
		r.in(cfg)
		name, err := cfg.Conn.CreateEphemeralSequential(t.Context(), cfg.Conn.Path("election", "c1_boot_1_"))
		if err != nil {
			t.Fatal(err)
		}
		for _, migrate := range []func(context.Context, MigrateConfig) (Migrated, error){MigrateToEmbedded, MigrateToZooKeeper} {
			var running *zkmeta.CandidatesError
			if _, err := migrate(t.Context(), cfg); !errors.As(err, &running) || len(running.Names) != 1 || running.Names[0] != name {
				t.Errorf("%s stands: %v", name, err)
			}
		}
	})
}
