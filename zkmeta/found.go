package zkmeta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// product says in the id znode whose tree it is.
const product = "shoal"

// identity is the content of the id znode.
type identity struct {
	Product       string    `json:"product"`
	ClusterID     uuid.UUID `json:"clusterId"`
	FormatVersion int       `json:"formatVersion"`
	// One of them, or none: see migrate.go.
	Migrating *migratingMark `json:"migrating,omitempty"`
	Moved     *movedMark     `json:"moved,omitempty"`
}

func (id identity) encode() []byte {
	data, err := json.Marshal(id)
	if err != nil {
		panic(err) // it is text, integers and times of this century
	}
	return data
}

// NoTreeError says that there is nothing at the root: a mistyped root must not found
// a second cluster, so founding is a command of its own.
type NoTreeError struct{ Root string }

func (e *NoTreeError) Error() string {
	return fmt.Sprintf("zkmeta: there is no cluster at %s: found one there with `shoal metadata init`, or mend the address", e.Root)
}

// ForeignTreeError says that what is at the root is not Shoal's, or not of this
// version. Nothing is written there.
type ForeignTreeError struct {
	Path, Reason string
	Newer        bool // it is Shoal's, and of a newer program
}

func (e *ForeignTreeError) Error() string {
	return fmt.Sprintf("zkmeta: %s is not a tree of Shoal's that this program can use: %s; nothing was changed", e.Path, e.Reason)
}

// ReadIdentity returns the id of the cluster whose tree is at the root. A root with
// nothing is a *NoTreeError, somebody else's a *ForeignTreeError; one that must not
// be led from is a *MigratingError or a *MovedError.
func ReadIdentity(ctx context.Context, c *Conn) (uuid.UUID, error) {
	id, _, err := readIdentity(ctx, c)
	if err == nil {
		err = id.unusable(c.Path())
	}
	if err != nil {
		return uuid.UUID{}, err
	}
	return id.ClusterID, nil
}

// readIdentity returns the id znode and its version, whatever it is marked with.
func readIdentity(ctx context.Context, c *Conn) (id identity, version int32, err error) {
	if n := len(c.Path()); n >= rootBytesMax {
		return identity{}, 0, fmt.Errorf("zkmeta: the root %s… has %d bytes: it must have fewer than %d", c.Path()[:32], n, rootBytesMax)
	}
	data, version, err := c.Get(ctx, c.Path(idName))
	switch {
	case errors.Is(err, ErrNoNode):
		return identity{}, 0, whyNoIdentity(ctx, c)
	case err != nil:
		return identity{}, 0, err
	}
	if err := json.Unmarshal(data, &id); err != nil || id.Product != product || id.ClusterID == (uuid.UUID{}) {
		return identity{}, 0, &ForeignTreeError{Path: c.Path(idName), Reason: "it does not say whose it is"}
	}
	if id.FormatVersion > meta.FormatVersion {
		return identity{}, 0, &ForeignTreeError{
			Path:   c.Path(idName),
			Reason: fmt.Sprintf("format version %d; this program knows up to %d", id.FormatVersion, meta.FormatVersion),
			Newer:  true,
		}
	}
	return id, version, nil
}

// whyNoIdentity tells an empty root from a full one.
func whyNoIdentity(ctx context.Context, c *Conn) error {
	names, err := c.Children(ctx, c.Path())
	switch {
	case errors.Is(err, ErrNoNode):
		return &NoTreeError{Root: c.Path()}
	case err != nil:
		return err
	case len(names) == 0:
		return &NoTreeError{Root: c.Path()}
	}
	return &ForeignTreeError{Path: c.Path(), Reason: fmt.Sprintf("it has %q in it, and no %s", names[0], idName)}
}

// Found makes the tree of a new cluster at the root, all of it in one multi, and the
// root with its parents before that if they are not there. Where anything is already
// it is refused: with a *ForeignTreeError, or with a *FoundedError by Shoal's own.
func Found(ctx context.Context, c *Conn, cluster uuid.UUID) error {
	id, err := ReadIdentity(ctx, c)
	var none *NoTreeError
	switch {
	case err == nil:
		return &FoundedError{Root: c.Path(), ClusterID: id}
	case !errors.As(err, &none):
		return err
	}
	if err := makeRoot(ctx, c); err != nil {
		return err
	}
	ops := foundingOps(cluster)
	ops = append(ops, Op{Kind: OpCreate, Path: headName, Data: headRecord{}.encode()})
	if err := c.Multi(ctx, under(c.Path(), ops)...); err != nil {
		return fmt.Errorf("zkmeta: found a cluster at %s: %w", c.Path(), err)
	}
	return nil
}

// notATree refuses a znode that is the root of a tree of Shoal's, of whatever version
// and standing. One that nobody lets us look into is taken for none.
func notATree(ctx context.Context, c *Conn, znode string) error {
	data, _, err := c.Get(ctx, znode+"/"+idName)
	if errors.Is(err, ErrNoNode) || errors.Is(err, ErrNoAuth) {
		return nil
	}
	if err != nil {
		return err
	}
	var id identity
	if json.Unmarshal(data, &id) == nil && id.Product == product {
		return fmt.Errorf("zkmeta: %s is inside of the tree of cluster %s at %s: use a root beside it; nothing was changed", c.Path(), id.ClusterID, znode)
	}
	return nil
}

// FoundedError says that there is a cluster already.
type FoundedError struct {
	Root      string
	ClusterID uuid.UUID
}

func (e *FoundedError) Error() string {
	return fmt.Sprintf("zkmeta: at %s there is cluster %s already; nothing was changed", e.Root, e.ClusterID)
}

// identityOf is that of a tree which is whole.
func identityOf(cluster uuid.UUID) identity {
	return identity{Product: product, ClusterID: cluster, FormatVersion: meta.FormatVersion}
}

// foundingOps make the tree but for the head.
func foundingOps(cluster uuid.UUID) []Op {
	ops := []Op{{Kind: OpCreate, Path: idName, Data: identityOf(cluster).encode()}}
	for _, dir := range fixedDirs {
		ops = append(ops, Op{Kind: OpCreate, Path: dir})
	}
	return ops
}

// makeRoot makes the root and those of its parents that are not there: where one is,
// this user may have no right to make it. A root inside of another tree is refused: to
// that one it would be damage.
func makeRoot(ctx context.Context, c *Conn) error {
	root := c.Path()
	for i := 1; i <= len(root); i++ {
		if i < len(root) && root[i] != '/' {
			continue
		}
		if i < len(root) {
			if err := notATree(ctx, c, root[:i]); err != nil {
				return err
			}
		}
		_, there, err := c.Stat(ctx, root[:i])
		if err != nil {
			return fmt.Errorf("zkmeta: make %s: %w", root[:i], err)
		}
		if there {
			continue
		}
		if err := c.Create(ctx, root[:i], nil); err != nil && !errors.Is(err, ErrNodeExists) {
			return fmt.Errorf("zkmeta: make %s: %w", root[:i], err)
		}
	}
	return nil
}
