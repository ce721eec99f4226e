package zkmeta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// headRecord is the content of log/head, the last batch that is in the log. Its
// version is the fence: whoever writes does so on the condition that nobody else has
// since it read.
type headRecord struct {
	Epoch  int64     `json:"epoch"`
	Term   uuid.UUID `json:"term"`
	Offset int64     `json:"offset"`
	// Operation is drawn for each multi: it tells a person whether a write whose
	// answer was lost is the one that is here.
	Operation uuid.UUID `json:"operation"`
	Time      int64     `json:"time"` // of the batch, ms since 1970
	// LogStart is the first batch that is still in log/entries (LSO), TailBytes the
	// size of all that are.
	LogStart  int64 `json:"lso"`
	TailBytes int64 `json:"tailBytes"`
}

// head is the part that an election needs.
func (r headRecord) head() Head { return Head{Epoch: r.Epoch, Offset: r.Offset, Term: r.Term} }

// next is the offset of the next batch; before the first one there is no epoch.
func (r headRecord) next() int64 {
	if r.Epoch == 0 {
		return 0
	}
	return r.Offset + 1
}

// precedes checks that b may follow the last batch: the next offset, an epoch that
// does not go back, one term in each.
func (r headRecord) precedes(b *meta.Batch) error {
	switch {
	case b.Offset != r.next():
		return fmt.Errorf("zkmeta: batch %d does not follow: the next is %d", b.Offset, r.next())
	case b.Epoch < r.Epoch || b.Epoch <= 0:
		return fmt.Errorf("zkmeta: batch %d of epoch %d does not follow one of epoch %d", b.Offset, b.Epoch, r.Epoch)
	case b.Epoch == r.Epoch && b.Term != r.Term:
		return fmt.Errorf("zkmeta: batch %d has another term in epoch %d", b.Offset, b.Epoch)
	case b.Term == uuid.UUID{}:
		return fmt.Errorf("zkmeta: batch %d has no term", b.Offset)
	}
	return nil
}

func (r headRecord) encode() []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // it is integers and ids
	}
	return data
}

func decodeHead(data []byte) (r headRecord, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return r, &TreeError{Path: headName, Reason: "it does not decode", Err: err}
	}
	if r.Epoch < 0 || r.Offset < 0 || r.LogStart < 0 || r.LogStart > r.next() || r.TailBytes < 0 || (r.Epoch == 0) != (r.Term == uuid.UUID{}) {
		return r, &TreeError{Path: headName, Reason: fmt.Sprintf("it contradicts itself: %s", data)}
	}
	return r, nil
}

// entryName is the znode of a batch, below the root.
func entryName(offset int64) string { return fmt.Sprintf("%s/%020d", entriesDir, offset) }

// readHead reads the head after a sync, so that it is no older than this call.
func readHead(ctx context.Context, c *Conn) (headRecord, int32, error) {
	if err := c.Sync(ctx, c.Path(headName)); err != nil {
		return headRecord{}, 0, err
	}
	data, version, err := c.Get(ctx, c.Path(headName))
	if err != nil {
		return headRecord{}, 0, err
	}
	r, err := decodeHead(data)
	return r, version, err
}

// ReadLeader returns the record of the leader that opened the last epoch; nil when
// there was none.
func ReadLeader(ctx context.Context, c *Conn) (*meta.Leader, error) {
	data, _, err := c.Get(ctx, c.Path(leaderName))
	if errors.Is(err, ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeRecord(meta.KindLeader, leaderName, data)
	if err != nil {
		return nil, err
	}
	return r.(*meta.Leader), nil
}

// CurrentHead returns the head and the version of its znode, no older than this call.
func CurrentHead(ctx context.Context, c *Conn) (TailHead, int32, error) {
	r, version, err := readHead(ctx, c)
	return TailHead{r}, version, err
}
