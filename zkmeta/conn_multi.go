package zkmeta

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// MultiBytesMax is the most that a request may have, in bytes. ZooKeeper takes
// 1 MiB by default; of anything larger it drops the connection, and with it every
// other call in flight.
const MultiBytesMax = 768 << 10

// OpKind says what an Op does.
type OpKind uint8

// What an Op can do.
const (
	OpCreate OpKind = iota + 1 // with Data
	OpSet                      // Data, if it has Version
	OpDelete                   // if it has Version
	OpCheck                    // that it has Version
)

// Op is one operation of a Multi. Version -1 is any.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte
	Version int32
}

// The bytes of a request beside paths and data.
const (
	requestBytes = 4 + 8 + 9             // length, header, end of the operations
	opHeadBytes  = 9 + 4 + 4 + 4         // header, two lengths, version or flags
	aclBytes     = 4 + 4 + 4 + 4 + 5 + 6 // one entry, of world:anyone, the longest
)

// Size returns how many bytes the operation has in a request, at most.
func (o Op) Size() int {
	n := opHeadBytes + len(o.Path) + len(o.Data)
	if o.Kind == OpCreate {
		n += aclBytes
	}
	return n
}

// MultiSize returns how many bytes the request of a Multi has, at most.
func MultiSize(ops ...Op) int {
	n := requestBytes
	for _, op := range ops {
		n += op.Size()
	}
	return n
}

// fits refuses what ZooKeeper would not take.
func fits(name, path string, ops ...Op) error {
	if n := MultiSize(ops...); n > MultiBytesMax {
		return fmt.Errorf("zkmeta: %s %s: %w: %d bytes of at most %d", name, path, ErrTooLarge, n, MultiBytesMax)
	}
	return nil
}

// Multi does all operations, or none. *MultiError says that none was done.
func (c *Conn) Multi(ctx context.Context, ops ...Op) error {
	if len(ops) == 0 {
		return errors.New("zkmeta: multi: there is no operation")
	}
	first := ops[0].Path
	if err := fits("multi", first, ops...); err != nil {
		return err
	}
	requests := make([]any, len(ops))
	for i, op := range ops {
		if why := pathFault(op.Path); why != "" {
			return fmt.Errorf("zkmeta: multi: operation %d on %q: %w: it %s", i, op.Path, ErrBadPath, why)
		}
		if requests[i] = c.request(op); requests[i] == nil {
			return fmt.Errorf("zkmeta: multi: operation %d on %s is of no kind", i, op.Path)
		}
	}
	_, err := call(ctx, c, "multi", first, func(z *zk.Conn) (struct{}, error) {
		answers, err := z.Multi(requests...)
		return struct{}{}, multiError(ops, answers, err)
	})
	return err
}

func (c *Conn) request(op Op) any {
	switch op.Kind {
	case OpCreate:
		return &zk.CreateRequest{Path: op.Path, Data: notNil(op.Data), Acl: c.acl}
	case OpSet:
		return &zk.SetDataRequest{Path: op.Path, Data: notNil(op.Data), Version: op.Version}
	case OpDelete:
		return &zk.DeleteRequest{Path: op.Path, Version: op.Version}
	case OpCheck:
		return &zk.CheckVersionRequest{Path: op.Path, Version: op.Version}
	}
	return nil
}

// multiError finds the operation that was refused: the first with an error, as
// those before it have none, and those after it a word for not having been tried.
// A refusal that is not known for one is left to be of no known outcome.
func multiError(ops []Op, answers []zk.MultiResponse, err error) error {
	if err == nil && len(answers) != len(ops) {
		return fmt.Errorf("%d answers to %d operations", len(answers), len(ops))
	}
	if err == nil || len(answers) != len(ops) {
		return err
	}
	for i, a := range answers {
		if a.Error == nil {
			continue
		}
		if why, ok := refusals[a.Error]; ok {
			return &MultiError{Index: i, Path: ops[i].Path, Err: why}
		}
		return fmt.Errorf("operation %d on %s: %w", i, ops[i].Path, a.Error)
	}
	return err
}
