package zkmeta

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// What is known of a call that failed. An error that is none of these and does
// not wrap ErrNoAnswer is of a call that was never sent.
var (
	ErrNoNode     = errors.New("there is no such znode")
	ErrNodeExists = errors.New("the znode exists")
	ErrBadVersion = errors.New("the znode has another version")
	ErrNotEmpty   = errors.New("the znode has children")
	ErrNoAuth     = errors.New("ZooKeeper does not allow it to this user")
	ErrTooLarge   = errors.New("the request is too large and was not sent")
	ErrBadPath    = errors.New("not a path of a znode")
	ErrClosed     = errors.New("the connection is closed")

	// ErrNoAnswer is wrapped by every error that leaves open what became of the
	// request: it may have been carried out, may yet be, or may never.
	ErrNoAnswer = errors.New("no answer that counts")
)

// MultiError says that ZooKeeper refused a Multi, so that none of it was done,
// and because of which operation.
type MultiError struct {
	Index int    // of the operation
	Path  string // that it was for
	Err   error  // ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty or ErrNoAuth
}

func (e *MultiError) Error() string {
	return fmt.Sprintf("operation %d on %s: %v", e.Index, e.Path, e.Err)
}

// Unwrap returns the reason.
func (e *MultiError) Unwrap() error { return e.Err }

// refusals are the answers that say for certain that nothing was done.
var refusals = map[error]error{
	zk.ErrNoNode:     ErrNoNode,
	zk.ErrNodeExists: ErrNodeExists,
	zk.ErrBadVersion: ErrBadVersion,
	zk.ErrNotEmpty:   ErrNotEmpty,
	zk.ErrNoAuth:     ErrNoAuth,
	zk.ErrAuthFailed: ErrNoAuth,
	zk.ErrInvalidACL: ErrNoAuth, // "creator" of a connection that nobody stands behind
}

// translate turns an error of the library into one of ours: a refusal, or
// ErrNoAnswer with the reason.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var multi *MultiError
	if errors.As(err, &multi) {
		return err
	}
	if ours, ok := refusals[err]; ok {
		return ours
	}
	return noAnswer(err)
}

func noAnswer(why error) error { return fmt.Errorf("%w: %w", ErrNoAnswer, why) }

// answered tells whether ZooKeeper has said what became of the request.
func answered(err error) bool { return err == nil || !errors.Is(err, ErrNoAnswer) }
