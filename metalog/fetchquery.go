package metalog

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// The codes of METALOG §3 that a fetch is refused with.
const (
	CodeInconsistentClusterID = "INCONSISTENT_CLUSTER_ID"
	CodeInvalidRequest        = "INVALID_REQUEST"
	CodeFencedLeaderEpoch     = "FENCED_LEADER_EPOCH"
	CodeUnknownLeaderEpoch    = "UNKNOWN_LEADER_EPOCH"
	CodeNotLeader             = "NOT_LEADER"
	CodeNotAvailable          = "NOT_AVAILABLE"
)

// Bounds of a fetch. What is asked beyond them is cut down, not refused.
const (
	fetchBytesDefault = 1 << 20
	fetchBytesMax     = 4 << 20
	fetchWaitMax      = 5 * time.Second
)

// Standing is what a controller knows of who leads.
type Standing struct {
	Cluster uuid.UUID // zero while unknown: then no cluster id is refused
	Epoch   int64     // of the leader
	URL     string    // of the leader, empty while unknown
	Leading bool      // this process is it
}

// FetchQuery is what a follower asks of GET /metadata/log. Left out of the URL,
// lastEpoch is 0, lastTerm is not compared, leaderEpoch is the server's own, clusterId
// is not compared, maxBytes is 1 MiB, and there is no waiting. offset is required.
type FetchQuery struct {
	Position
	LeaderEpoch *int64  // nil: not named
	ClusterID   *string // nil: not named; empty is another cluster
	MaxBytes    int
	MaxWait     time.Duration // in the URL: milliseconds

	// malformed is what could not be read of the URL. It is kept beside the rest
	// because the cluster id is judged first.
	malformed error
}

// values is the inverse of parseFetch, for the follower.
func (q FetchQuery) values() url.Values {
	v := url.Values{
		"offset":    {strconv.FormatInt(q.Offset, 10)},
		"lastEpoch": {strconv.FormatInt(q.LastEpoch, 10)},
		"maxBytes":  {strconv.Itoa(q.MaxBytes)},
		"maxWait":   {strconv.FormatInt(q.MaxWait.Milliseconds(), 10)},
	}
	if q.LastTerm != uuid.Nil {
		v.Set("lastTerm", q.LastTerm.String())
	}
	if q.LeaderEpoch != nil {
		v.Set("leaderEpoch", strconv.FormatInt(*q.LeaderEpoch, 10))
	}
	if q.ClusterID != nil {
		v.Set("clusterId", *q.ClusterID)
	}
	return v
}

// parseFetch reads the query. Refuse tells what was malformed.
func parseFetch(v url.Values) (q FetchQuery) {
	number := func(key string, absent int64) int64 {
		if !v.Has(key) {
			return absent
		}
		n, err := strconv.ParseInt(v.Get(key), 10, 64)
		if err != nil && q.malformed == nil {
			q.malformed = fmt.Errorf("%s=%q is not a number", key, v.Get(key))
		}
		return n
	}
	if v.Has("clusterId") {
		id := v.Get("clusterId")
		q.ClusterID = &id
	}
	if !v.Has("offset") {
		q.malformed = errors.New("offset is missing")
	}
	q.Offset = number("offset", 0)
	q.LastEpoch = number("lastEpoch", 0)
	if v.Has("leaderEpoch") {
		epoch := number("leaderEpoch", 0)
		q.LeaderEpoch = &epoch
	}
	if v.Has("lastTerm") {
		term, err := uuid.Parse(v.Get("lastTerm"))
		if err != nil && q.malformed == nil {
			q.malformed = fmt.Errorf("lastTerm=%q is not a UUID", v.Get("lastTerm"))
		}
		q.LastTerm = term
	}
	maxBytes := number("maxBytes", fetchBytesDefault)
	q.MaxBytes = int(min(maxBytes, fetchBytesMax))
	maxWait := number("maxWait", 0)
	q.MaxWait = time.Duration(min(maxWait, fetchWaitMax.Milliseconds())) * time.Millisecond
	return q
}

// Refuse says with which code a controller of standing st refuses the query, and why;
// an empty code serves it. These are the checks of METALOG §3 in their order.
func (q *FetchQuery) Refuse(st Standing, down bool) (code string, err error) {
	leaderEpoch := st.Epoch
	if q.LeaderEpoch != nil {
		leaderEpoch = *q.LeaderEpoch
	}
	switch {
	case q.ClusterID != nil && st.Cluster != uuid.Nil && *q.ClusterID != st.Cluster.String():
		return CodeInconsistentClusterID, fmt.Errorf("the follower is of cluster %q, this is cluster %s", *q.ClusterID, st.Cluster)
	case q.malformed != nil:
		return CodeInvalidRequest, q.malformed
	case q.MaxBytes <= 0, q.Offset < 0, q.LastEpoch < 0, q.MaxWait < 0:
		return CodeInvalidRequest, errors.New("offset, lastEpoch and maxWait must not be negative, maxBytes must be positive")
	case q.LastEpoch > leaderEpoch:
		return CodeInvalidRequest, fmt.Errorf("lastEpoch %d is above leaderEpoch %d", q.LastEpoch, leaderEpoch)
	case leaderEpoch < st.Epoch:
		return CodeFencedLeaderEpoch, fmt.Errorf("the leader's epoch is %d, not %d", st.Epoch, leaderEpoch)
	case leaderEpoch > st.Epoch:
		return CodeUnknownLeaderEpoch, fmt.Errorf("epoch %d is not known here; the newest is %d", leaderEpoch, st.Epoch)
	case !st.Leading:
		return CodeNotLeader, fmt.Errorf("the leader is %q", st.URL)
	case down:
		return CodeNotAvailable, errors.New("shutting down")
	}
	return "", nil
}
