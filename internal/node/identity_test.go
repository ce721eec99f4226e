package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
)

func TestIdentityIsReadBackAndRefusedWhenItIsNotOurs(t *testing.T) {
	fsys := vfs.NewMem()
	if id, err := readIdentity(fsys); id != nil || err != nil {
		t.Fatalf("a new directory has %v, %v", id, err)
	}
	id := identity{ClusterID: uuid.New(), NodeID: "n1", StoreID: uuid.New(), FormatVersion: formatVersion}
	if err := id.write(fsys); err != nil {
		t.Fatal(err)
	}
	if got, err := readIdentity(fsys.CrashClone(nil)); err != nil || *got != id { // it is durable
		t.Fatalf("%+v, %v; want %+v", got, err, id)
	}
	for text, want := range map[string]string{
		`{"clusterId":`: "not readable",
		`{"formatVersion": 2, "nodeId": "n1", "storeId": "` + uuid.NewString() + `"}`:    "format version 2; this program knows up to 1",
		`{"formatVersion": 1, "nodeId": "../n1", "storeId": "` + uuid.NewString() + `"}`: "not a node's identity",
		`{"formatVersion": 1, "nodeId": "n1"}`:                                           "not a node's identity",
		`{}`:                                                                             "not a node's identity",
		`{"formatVersion": 1, "nodeId": "n1", "storeId": "` + strings.Repeat("x", 1<<20) + `"}`: identityFile,
	} {
		fsys := vfs.NewMem()
		if err := vfs.WriteFile(fsys, identityFile, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if id, err := readIdentity(fsys); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), identityFile) && !strings.Contains(err.Error(), "data directory") {
			t.Errorf("%.80s: %+v, %v; want %q", text, id, err, want)
		}
	}
}

// A registration of an earlier process on the directory, late, is no reason to take
// the directory for a copy; that of a process which this directory never saw is.
func TestADirectoryKnowsItsProcesses(t *testing.T) {
	fsys := vfs.NewMem()
	var all []uuid.UUID
	for range bootsMax + 3 {
		all = append(all, uuid.New())
		if err := readBoots(fsys).and(all[len(all)-1]).write(fsys); err != nil {
			t.Fatal(err)
		}
		fsys = fsys.CrashClone(nil) // it is durable
	}
	if known := readBoots(fsys); !slices.Equal(known, all[3:]) {
		t.Errorf("%d are known: %v, want the last %d of %v", len(known), known, bootsMax, all)
	}
	if err := vfs.WriteFile(fsys, bootsFile, []byte("[1")); err != nil {
		t.Fatal(err)
	}
	if known := readBoots(fsys).and(all[0]); !slices.Equal(known, all[:1]) {
		t.Errorf("after a file that is not readable: %v", known)
	}
}

func TestWhoTheNodeIs(t *testing.T) {
	store, disk := uuid.New(), uuid.New()
	found := &identity{ClusterID: uuid.New(), NodeID: "n1", StoreID: store, FormatVersion: 1}
	for _, c := range []struct {
		name     string
		found    *identity
		wanted   string
		store    uuid.UUID
		id       string
		replaced bool
		refused  string
	}{
		{name: "a new directory", wanted: "n7", store: store, id: "n7"},
		{name: "an id that no node can have", wanted: "a b", store: store, refused: "INVALID_NODE"},
		{name: "the one that the directory remembers", found: found, store: store, id: "n1"},
		{name: "the same again", found: found, wanted: "n1", store: store, id: "n1"},
		{name: "another one's directory", found: found, wanted: "n2", store: store, refused: `belongs to node "n1", not to "n2"`},
		{name: "a replaced disk", found: found, store: disk, id: "n1", replaced: true},
	} {
		id, replaced, err := settleIdentity(c.found, c.wanted, c.store, "/data")
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil || id.NodeID != c.id || id.StoreID != c.store || replaced != c.replaced || id.FormatVersion != formatVersion:
			t.Errorf("%s: %+v, %v, %v", c.name, id, replaced, err)
		case c.found != nil && id.ClusterID != c.found.ClusterID:
			t.Errorf("%s: it forgets its cluster", c.name)
		}
	}
	a, _, _ := settleIdentity(nil, "", store, "/data")
	if b, _, err := settleIdentity(nil, "", store, "/data"); err != nil || a.NodeID == b.NodeID || a.NodeID == "" {
		t.Errorf("two nodes without an id are called %q and %q: %v", a.NodeID, b.NodeID, err)
	}
}
