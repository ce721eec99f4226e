package metalog

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/google/uuid"
)

// What Fetch and FetchSnapshot have in common: the codes of METALOG §3, what a server
// knows of the leader, and the checks that come before those of their own.

// The codes of METALOG §3 that a query is refused with.
const (
	CodeInconsistentClusterID = "INCONSISTENT_CLUSTER_ID"
	CodeInvalidRequest        = "INVALID_REQUEST"
	CodeFencedLeaderEpoch     = "FENCED_LEADER_EPOCH"
	CodeUnknownLeaderEpoch    = "UNKNOWN_LEADER_EPOCH"
	CodeNotLeader             = "NOT_LEADER"
	CodeNotAvailable          = "NOT_AVAILABLE"
	CodeSnapshotNotFound      = "SNAPSHOT_NOT_FOUND"
	CodePositionOutOfRange    = "POSITION_OUT_OF_RANGE"
)

var errShuttingDown = errors.New("shutting down")

// Standing is what a server knows of who leads.
type Standing struct {
	Cluster uuid.UUID // zero while unknown: then no cluster id is refused
	Epoch   int64     // of the leader
	URL     string    // of the leader, empty while unknown
	Leading bool      // this process is it
}

// refuseCluster refuses the id of another cluster; nil is none, empty is another.
func (st Standing) refuseCluster(id *string) (code string, err error) {
	if id == nil || st.Cluster == uuid.Nil || *id == st.Cluster.String() {
		return "", nil
	}
	return CodeInconsistentClusterID, fmt.Errorf("the follower is of cluster %q, this is cluster %s", *id, st.Cluster)
}

// refuseEpoch refuses whoever follows the leader of another epoch; nil is none.
func (st Standing) refuseEpoch(leaderEpoch *int64) (code string, err error) {
	switch {
	case leaderEpoch == nil || *leaderEpoch == st.Epoch:
		return "", nil
	case *leaderEpoch < st.Epoch:
		return CodeFencedLeaderEpoch, fmt.Errorf("the leader's epoch is %d, not %d", st.Epoch, *leaderEpoch)
	}
	return CodeUnknownLeaderEpoch, fmt.Errorf("epoch %d is not known here; the newest is %d", *leaderEpoch, st.Epoch)
}

// params reads the values of a query. What was malformed is kept, because the cluster
// id is judged first.
type params struct {
	url.Values
	malformed error // the first
}

func (p *params) fail(err error) {
	if p.malformed == nil {
		p.malformed = err
	}
}

func (p *params) number(key string, absent int64) int64 {
	if !p.Has(key) {
		return absent
	}
	n, err := strconv.ParseInt(p.Get(key), 10, 64)
	if err != nil {
		p.fail(fmt.Errorf("%s=%q is not a number", key, p.Get(key)))
	}
	return n
}

// leaderEpoch and clusterID are nil where they are not named.
func (p *params) leaderEpoch() *int64 {
	if !p.Has("leaderEpoch") {
		return nil
	}
	epoch := p.number("leaderEpoch", 0)
	return &epoch
}

func (p *params) clusterID() *string {
	if !p.Has("clusterId") {
		return nil
	}
	id := p.Get("clusterId")
	return &id
}

// identify adds what is not nil to the values of a query.
func identify(v url.Values, leaderEpoch *int64, clusterID *string) url.Values {
	if leaderEpoch != nil {
		v.Set("leaderEpoch", strconv.FormatInt(*leaderEpoch, 10))
	}
	if clusterID != nil {
		v.Set("clusterId", *clusterID)
	}
	return v
}
