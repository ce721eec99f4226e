package zkmeta

import (
	"context"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// All calls take absolute paths, made by Path, and have a time-out of a third of
// the session timeout, or as long as ctx lasts. Without a session they wait for
// one within it. Their errors name operation and path, and wrap one of the errors
// of conn_errors.go.

// Stat is what ZooKeeper knows about a znode.
type Stat struct {
	Version        int32
	DataLength     int32 // bytes
	NumChildren    int32
	Ctime          time.Time // on the servers' clocks
	Mtime          time.Time
	EphemeralOwner int64 // the session; 0 if it is not ephemeral
	Czxid          int64 // of the transaction that created it
	Mzxid          int64 // that last set its data
	Pzxid          int64 // that last changed its children
}

func statOf(s *zk.Stat) Stat {
	return Stat{
		Version: s.Version, DataLength: s.DataLength, NumChildren: s.NumChildren,
		Ctime: time.UnixMilli(s.Ctime), Mtime: time.UnixMilli(s.Mtime),
		EphemeralOwner: s.EphemeralOwner, Czxid: s.Czxid, Mzxid: s.Mzxid, Pzxid: s.Pzxid,
	}
}

// Get returns a znode's data and its version.
func (c *Conn) Get(ctx context.Context, path string) (data []byte, version int32, err error) {
	type answer struct {
		data    []byte
		version int32
	}
	a, err := call(ctx, c, "get", path, func(z *zk.Conn) (answer, error) {
		data, stat, err := z.Get(path)
		if err != nil {
			return answer{}, err
		}
		return answer{data, stat.Version}, nil
	})
	return a.data, a.version, err
}

// Stat returns what is known about a znode, and whether it is there.
func (c *Conn) Stat(ctx context.Context, path string) (Stat, bool, error) {
	s, err := call(ctx, c, "stat", path, func(z *zk.Conn) (*Stat, error) {
		// It may say that the znode is there, together with an error.
		there, stat, err := z.Exists(path)
		if err != nil || !there {
			return nil, err
		}
		s := statOf(stat)
		return &s, nil
	})
	if err != nil || s == nil {
		return Stat{}, false, err
	}
	return *s, true, nil
}

// Children returns the names of a znode's children, sorted.
func (c *Conn) Children(ctx context.Context, path string) ([]string, error) {
	return call(ctx, c, "children", path, func(z *zk.Conn) ([]string, error) {
		names, _, err := z.Children(path)
		slices.Sort(names)
		return names, err
	})
}

// Create creates a znode. Its parent must be there.
func (c *Conn) Create(ctx context.Context, path string, data []byte) error {
	if err := fits("create", path, Op{Kind: OpCreate, Path: path, Data: data}); err != nil {
		return err
	}
	_, err := call(ctx, c, "create", path, func(z *zk.Conn) (string, error) {
		return z.Create(path, notNil(data), 0, c.acl)
	})
	return err
}

// CreateEphemeralSequential creates an empty znode that goes with the session, and
// returns its name, without the directory: what prefix ends in, and ten digits.
// One whose outcome is not known may be there: who calls again puts into the
// prefix what it will know it by.
func (c *Conn) CreateEphemeralSequential(ctx context.Context, prefix string) (name string, err error) {
	created, err := call(ctx, c, "create", prefix, func(z *zk.Conn) (string, error) {
		return z.Create(prefix, []byte{}, zk.FlagEphemeral|zk.FlagSequence, c.acl)
	})
	if err != nil {
		return "", err
	}
	return path.Base(created), nil
}

// Set sets a znode's data if it has that version, and returns the new one. The
// version -1 is any: it makes the write unconditional.
func (c *Conn) Set(ctx context.Context, path string, data []byte, version int32) (int32, error) {
	if err := fits("set", path, Op{Kind: OpSet, Path: path, Data: data}); err != nil {
		return 0, err
	}
	return call(ctx, c, "set", path, func(z *zk.Conn) (int32, error) {
		stat, err := z.Set(path, notNil(data), version)
		if err != nil {
			return 0, err
		}
		return stat.Version, nil
	})
}

// Delete deletes a znode if it has that version; -1 is any.
func (c *Conn) Delete(ctx context.Context, path string, version int32) error {
	_, err := call(ctx, c, "delete", path, func(z *zk.Conn) (struct{}, error) {
		return struct{}{}, z.Delete(path, version)
	})
	return err
}

// Sync brings the server that this Conn talks to up to the leader of the
// ensemble: what is read after it is no older than what was written before it.
func (c *Conn) Sync(ctx context.Context, path string) error {
	_, err := call(ctx, c, "sync", path, func(z *zk.Conn) (string, error) { return z.Sync(path) })
	return err
}

// notNil keeps data that is empty from being none, which other tools show as null.
func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}
