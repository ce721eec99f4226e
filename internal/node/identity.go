package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// formatVersion is that of a node's data directory.
const formatVersion = 1

const (
	identityFile    = "identity.json"
	identityMaxSize = 64 << 10
)

// identity says whose data directory this is.
type identity struct {
	ClusterID     uuid.UUID `json:"clusterId"` // zero until first registered
	NodeID        string    `json:"nodeId"`
	StoreID       uuid.UUID `json:"storeId"`
	FormatVersion int       `json:"formatVersion"`
}

// boots are the boot ids of the last processes on a directory that had something to
// say to the cluster, the running one last. A registration of an earlier one, late,
// may displace the running one; any other process under the same node id and store
// has a copy of the directory.
type boots []uuid.UUID

const (
	bootsFile = "boots.json"
	// bootsMax is how many boots a directory remembers.
	bootsMax = 16
)

// readBoots reads what a directory remembers. A file that is not readable is one
// that remembers nothing: it is written anew.
func readBoots(fsys vfs.FS) (known boots) {
	data, err := vfs.ReadFile(fsys, bootsFile, identityMaxSize)
	if err != nil || json.Unmarshal(data, &known) != nil {
		return nil
	}
	return known
}

// and returns them with one more.
func (b boots) and(boot uuid.UUID) boots {
	all := append(slices.Clone(b), boot)
	return all[max(0, len(all)-bootsMax):]
}

func (b boots) write(fsys vfs.FS) error {
	data, err := json.Marshal(b)
	if err == nil {
		err = vfs.WriteFile(fsys, bootsFile, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("node: %s: %w", bootsFile, err)
	}
	return nil
}

// readIdentity reads the identity of a data directory, nil for a new one.
func readIdentity(fsys vfs.FS) (*identity, error) {
	data, err := vfs.ReadFile(fsys, identityFile, identityMaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("node: %s: %w", identityFile, err)
	}
	var id identity
	if err := json.Unmarshal(data, &id); err != nil {
		return nil, fmt.Errorf("node: %s in %s is not readable: %w", identityFile, fsys, err)
	}
	switch {
	case id.FormatVersion > formatVersion:
		return nil, fmt.Errorf("node: data directory %s has format version %d; this program knows up to %d", fsys, id.FormatVersion, formatVersion)
	case id.FormatVersion < 1 || id.StoreID == uuid.Nil || meta.CheckNodeID(id.NodeID) != nil:
		return nil, fmt.Errorf("node: %s in %s is not a node's identity: it has node %q, store %s and format version %d",
			identityFile, fsys, id.NodeID, id.StoreID, id.FormatVersion)
	}
	return &id, nil
}

func (id *identity) write(fsys vfs.FS) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("node: %s: %w", identityFile, err)
	}
	if err := vfs.WriteFile(fsys, identityFile, append(data, '\n')); err != nil {
		return fmt.Errorf("node: %s: %w", identityFile, err)
	}
	return nil
}

// settleIdentity decides who the node is from what it was told (an id, or
// none), what its directory says, and the store that is there. A directory of
// another node is refused; a store that is not the one the directory remembers
// is a replaced disk, and the new one counts.
func settleIdentity(found *identity, wantID string, storeID uuid.UUID, dir string) (id identity, replaced bool, err error) {
	if found == nil {
		if wantID == "" {
			wantID = "node-" + uuid.NewString()[:8]
		}
		if err := meta.CheckNodeID(wantID); err != nil { // before the directory remembers it
			return identity{}, false, fmt.Errorf("node: %w", err)
		}
		return identity{NodeID: wantID, StoreID: storeID, FormatVersion: formatVersion}, false, nil
	}
	if wantID != "" && wantID != found.NodeID {
		return identity{}, false, fmt.Errorf("node: data directory %s belongs to node %q, not to %q", dir, found.NodeID, wantID)
	}
	id = *found
	replaced = id.StoreID != storeID
	id.StoreID = storeID
	return id, replaced, nil
}
