package metalog

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// SnapshotQuery is what a follower asks of GET /metadata/snapshots/{id}. Left out of the
// URL, position is 0, maxBytes is 1 MiB, leaderEpoch and clusterId are not compared.
type SnapshotQuery struct {
	ID          SnapshotID
	Position    int64
	MaxBytes    int64
	LeaderEpoch *int64  // nil: not named
	ClusterID   *string // nil: not named; empty is another cluster

	malformed error // what could not be read of the URL
}

// Values is the inverse of ParseSnapshotQuery, but for the id.
func (q SnapshotQuery) Values() url.Values {
	return identify(url.Values{
		"position": {strconv.FormatInt(q.Position, 10)},
		"maxBytes": {strconv.FormatInt(q.MaxBytes, 10)},
	}, q.LeaderEpoch, q.ClusterID)
}

// ParseSnapshotQuery reads the query for the snapshot of an id. Refuse tells what was
// malformed.
func ParseSnapshotQuery(id string, v url.Values) (q SnapshotQuery) {
	p := params{Values: v}
	var err error
	if q.ID, err = ParseSnapshotID(id); err != nil {
		p.fail(err)
	}
	q.Position = p.number("position", 0)
	q.MaxBytes = p.number("maxBytes", fetchBytesDefault)
	q.LeaderEpoch, q.ClusterID = p.leaderEpoch(), p.clusterID()
	q.malformed = p.malformed
	return q
}

// Refuse says with which code a server of standing st refuses the query, and why; an
// empty code serves it. held is the snapshot asked for, nil if it is not here. These are
// the checks of METALOG §3 in their order, without that for the leader: the bytes of one
// id and digest are the same wherever they are.
func (q *SnapshotQuery) Refuse(st Standing, down bool, held *SnapshotRef) (code string, err error) {
	if code, err := st.refuseCluster(q.ClusterID); code != "" {
		return code, err
	}
	switch {
	case q.malformed != nil:
		return CodeInvalidRequest, q.malformed
	case q.MaxBytes <= 0:
		return CodeInvalidRequest, errors.New("maxBytes must be positive")
	}
	if code, err := st.refuseEpoch(q.LeaderEpoch); code != "" {
		return code, err
	}
	switch {
	case down:
		return CodeNotAvailable, errShuttingDown
	case held == nil:
		return CodeSnapshotNotFound, fmt.Errorf("snapshot %s is not here", q.ID)
	case q.Position < 0, q.Position >= held.SizeBytes:
		return CodePositionOutOfRange, fmt.Errorf("position is %d, the size is %d", q.Position, held.SizeBytes)
	}
	return "", nil
}
