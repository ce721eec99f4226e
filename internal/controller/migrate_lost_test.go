package controller

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// TestMigrationWhoseAnswersAreLost drops a request or its answer at each kind of
// write. Into ZooKeeper the command goes on by itself; out of it there is one write, and
// the command may have to be run again.
func TestMigrationWhoseAnswersAreLost(t *testing.T) {
	r := newMigrationRig(t, 30)
	want := r.history.Image
	writes := map[string]string{
		"records": "/segments/",
		"release": "/log/head",
	}
	for name, mentions := range writes {
		for _, action := range []zktest.Action{zktest.DropReply, zktest.DropRequest} {
			t.Run(fmt.Sprintf("in/%s/%s", name, action), func(t *testing.T) {
				cfg, proxy := r.through(t, r.embedded(), fmt.Sprintf("/in-%s-%s", name, action))
				trap := proxy.On(zktest.OpMulti, zktest.Mentions(mentions), action)
				r.in(cfg)
				trap.WaitHit()
				r.isInTree(cfg, want)
			})
		}
	}
	for _, action := range []zktest.Action{zktest.DropReply, zktest.DropRequest} {
		t.Run("out/"+action.String(), func(t *testing.T) {
			cfg, proxy := r.through(t, r.embedded(), "/out-"+action.String())
			r.in(cfg)
			cfg.Data = t.TempDir()
			trap := proxy.On(zktest.OpMulti, zktest.Mentions(`"moved"`), action)
			_, err := MigrateToEmbedded(t.Context(), cfg)
			trap.WaitHit()
			if action == zktest.DropReply && err != nil {
				t.Error(err)
			}
			if action == zktest.DropRequest && (!errors.Is(err, zkmeta.ErrNoAnswer) || r.leads(cfg.Data) == nil) {
				t.Errorf("not moved: %v", err)
			}
			r.out(cfg)
			r.isIn(cfg.Data, want)
		})
	}
}

// through is a migration whose tree is reached through a proxy.
func (r *migrationRig) through(t *testing.T, dir, root string) (MigrateConfig, *zktest.WireProxy) {
	t.Helper()
	proxy := zktest.NewWireProxy(t, r.server.Addr())
	cfg := r.config(dir, root)
	cfg.Address.Servers = []string{proxy.Addr()}
	cfg.Conn = r.connect(cfg.Address)
	return cfg, proxy
}
