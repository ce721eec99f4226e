package zkmeta

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

func TestFound(t *testing.T) {
	s := startServer(t)
	t.Run("where there is nothing, parents and all", func(t *testing.T) {
		c := dialRoot(t, "/org/unit/shoal", s.Addr())
		var none *NoTreeError
		if _, err := ReadIdentity(t.Context(), c); !errors.As(err, &none) || none.Root != "/org/unit/shoal" {
			t.Errorf("before: %v", err)
		}
		if _, err := Rebuild(t.Context(), c); !errors.As(err, &none) {
			t.Errorf("before: %v", err)
		}
		if err := Found(t.Context(), c, testCluster); err != nil {
			t.Fatal(err)
		}
		if id, err := ReadIdentity(t.Context(), c); err != nil || id != testCluster {
			t.Errorf("%s, %v", id, err)
		}
		im, batches := wantOneHistory(t, c)
		if im.Len() != 0 || im.Next() != 0 || len(batches) != 0 {
			t.Errorf("%d records, next %d", im.Len(), im.Next())
		}
		var there *FoundedError
		wantUnchanged(t, c, func() {
			if err := Found(t.Context(), c, uuid.New()); !errors.As(err, &there) || there.ClusterID != testCluster {
				t.Errorf("again: %v", err)
			}
		})
	})
	t.Run("where an empty znode is", func(t *testing.T) {
		c := dialRoot(t, "/empty", s.Addr())
		if err := c.Create(t.Context(), c.Path(), nil); err != nil {
			t.Fatal(err)
		}
		var none *NoTreeError
		if _, err := ReadIdentity(t.Context(), c); !errors.As(err, &none) {
			t.Errorf("before: %v", err)
		}
		if err := Found(t.Context(), c, testCluster); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("not where somebody else is", func(t *testing.T) {
		c := dialRoot(t, "/kafka", s.Addr())
		for _, rel := range []string{"", "brokers"} {
			if err := c.Create(t.Context(), c.Path(rel), []byte("theirs")); err != nil {
				t.Fatal(err)
			}
		}
		wantUnchanged(t, c, func() {
			var foreign *ForeignTreeError
			if err := Found(t.Context(), c, testCluster); !errors.As(err, &foreign) || !strings.Contains(err.Error(), "brokers") {
				t.Errorf("founded: %v", err)
			}
		})
	})
	t.Run("not inside of another tree", func(t *testing.T) {
		outer := dialRoot(t, "/outer", s.Addr())
		if err := Found(t.Context(), outer, testCluster); err != nil {
			t.Fatal(err)
		}
		for _, root := range []string{"/outer/inner", "/outer/tables/deep/down"} {
			wantUnchanged(t, outer, func() {
				err := Found(t.Context(), dialRoot(t, root, s.Addr()), uuid.New())
				if err == nil || !strings.Contains(err.Error(), testCluster.String()+" at /outer") {
					t.Errorf("%s: %v", root, err)
				}
			})
		}
	})
	t.Run("once, by two at the same time", func(t *testing.T) {
		var (
			wg   sync.WaitGroup
			errs [4]error
		)
		c := dialRoot(t, "/race", s.Addr())
		for i := range errs {
			wg.Go(func() { errs[i] = Found(t.Context(), c, uuid.UUID{1, byte(i)}) })
		}
		wg.Wait()
		id, err := ReadIdentity(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range errs {
			if won := id == (uuid.UUID{1, byte(i)}); won != (err == nil) {
				t.Errorf("%d, with cluster %s there: %v", i, id, err)
			}
		}
		wantOneHistory(t, c)
	})
	t.Run("not at a root that leaves too little room", func(t *testing.T) {
		c := dialRoot(t, "/"+strings.Repeat("r", rootBytesMax-1), s.Addr())
		if err := Found(t.Context(), c, testCluster); err == nil || !strings.Contains(err.Error(), "256") {
			t.Errorf("founded: %v", err)
		}
		longest := dialRoot(t, "/"+strings.Repeat("r", rootBytesMax-2), s.Addr())
		if err := Found(t.Context(), longest, testCluster); err != nil {
			t.Error(err)
		}
	})
}

// TestPermissions: with user and password the tree is for that user alone. Others
// are refused by name of the znode, and change nothing.
func TestPermissions(t *testing.T) {
	s := startServer(t)
	as := func(user, root string) *Conn {
		return dialTo(t, func(cfg *ConnConfig) {
			cfg.Address.Root, cfg.SessionTimeout, cfg.User, cfg.Password = root, treeTimeout, user, map[bool]string{true: "pass of " + user}[user != ""]
		}, s.Addr())
	}
	alice := as("alice", "/org/shoal")
	if err := Found(t.Context(), alice, testCluster); err != nil {
		t.Fatal(err)
	}
	l := opened(t, alice, nil)
	l.put(t, jobOf("a", "hers", 10))
	for _, user := range []string{"", "bob"} {
		c := as(user, "/org/shoal")
		stranger := NewDevice(DeviceConfig{Conn: c, Head: TailHead{l.head}, Version: l.version, Base: func() *meta.Image { return l.image }})
		wantUnchanged(t, alice, func() {
			_, err := ReadIdentity(t.Context(), c)
			_, again := Rebuild(t.Context(), c)
			for what, err := range map[string]error{
				"identity": err, "rebuild": again, "found": Found(t.Context(), c, uuid.New()),
				"append": stranger.Append(t.Context(), l.batch(jobOf("a", "not theirs", 10))),
			} {
				if !errors.Is(err, ErrNoAuth) || !strings.Contains(err.Error(), "/org/shoal") {
					t.Errorf("%s as %q: %v", what, user, err)
				}
			}
		})
	}
	wantOneHistory(t, alice)

	// A parent that is there need not be made: carol may not write above /team.
	conn, _, err := zk.Connect([]string{s.Addr()}, treeTimeout, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/locked", nil, 0, zk.WorldACL(zk.PermRead)); err != nil {
		t.Fatal(err)
	}
	if err := Found(t.Context(), as("carol", "/locked/shoal"), testCluster); !errors.Is(err, ErrNoAuth) || !strings.Contains(err.Error(), "/locked/shoal") {
		t.Errorf("below a znode where nobody may create: %v", err)
	}
	team := append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermAll, "carol", "pass of carol")...)
	if _, err := conn.Create("/team", nil, 0, team); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.SetACL("/", zk.WorldACL(zk.PermRead), -1); err != nil {
		t.Fatal(err)
	}
	if err := Found(t.Context(), as("carol", "/team/shoal"), testCluster); err != nil {
		t.Errorf("below a znode of her own: %v", err)
	}
}
