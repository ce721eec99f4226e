package metalog

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/httpx"
)

// Bounds of a fetch. What is asked beyond them is cut down, not refused.
const (
	fetchBytesDefault = 1 << 20
	fetchBytesMax     = 4 << 20
	fetchWaitMax      = 5 * time.Second
)

// fetchQuery is the query of GET /metadata/log, and what it means to be without a
// parameter: lastEpoch 0, no lastTerm to compare, the server's own leaderEpoch, no
// cluster id to compare, 1 MiB, no waiting. offset is required.
type fetchQuery struct {
	Position
	leaderEpoch *int64
	clusterID   *string
	maxBytes    int
	maxWait     time.Duration // maxWait=<milliseconds>
}

// values is the inverse of parseFetch, for the follower.
func (q fetchQuery) values() url.Values {
	v := url.Values{
		"offset":    {strconv.FormatInt(q.Offset, 10)},
		"lastEpoch": {strconv.FormatInt(q.LastEpoch, 10)},
		"maxBytes":  {strconv.Itoa(q.maxBytes)},
		"maxWait":   {strconv.FormatInt(q.maxWait.Milliseconds(), 10)},
	}
	if q.LastTerm != uuid.Nil {
		v.Set("lastTerm", q.LastTerm.String())
	}
	if q.leaderEpoch != nil {
		v.Set("leaderEpoch", strconv.FormatInt(*q.leaderEpoch, 10))
	}
	if q.clusterID != nil {
		v.Set("clusterId", *q.clusterID)
	}
	return v
}

// parseFetch reads the query. What is malformed comes back as an error beside the
// rest, because the cluster id is judged first.
func parseFetch(v url.Values) (q fetchQuery, malformed error) {
	number := func(key string, absent int64) int64 {
		if !v.Has(key) {
			return absent
		}
		n, err := strconv.ParseInt(v.Get(key), 10, 64)
		if err != nil && malformed == nil {
			malformed = fmt.Errorf("%s=%q is not a number", key, v.Get(key))
		}
		return n
	}
	if v.Has("clusterId") {
		id := v.Get("clusterId")
		q.clusterID = &id
	}
	if !v.Has("offset") {
		malformed = fmt.Errorf("offset is missing")
	}
	q.Offset = number("offset", 0)
	q.LastEpoch = number("lastEpoch", 0)
	if v.Has("leaderEpoch") {
		epoch := number("leaderEpoch", 0)
		q.leaderEpoch = &epoch
	}
	if v.Has("lastTerm") {
		term, err := uuid.Parse(v.Get("lastTerm"))
		if err != nil && malformed == nil {
			malformed = fmt.Errorf("lastTerm=%q is not a UUID", v.Get("lastTerm"))
		}
		q.LastTerm = term
	}
	maxBytes := number("maxBytes", fetchBytesDefault)
	q.maxBytes = int(min(maxBytes, fetchBytesMax))
	maxWait := number("maxWait", 0)
	q.maxWait = time.Duration(min(maxWait, fetchWaitMax.Milliseconds())) * time.Millisecond
	return q, malformed
}

// check refuses a fetch, or returns nil: the checks of METALOG §3 in their order.
func (q *fetchQuery) check(malformed error, st Standing, down bool) error {
	leaderEpoch := st.Epoch
	if q.leaderEpoch != nil {
		leaderEpoch = *q.leaderEpoch
	}
	switch {
	case q.clusterID != nil && st.Cluster != uuid.Nil && *q.clusterID != st.Cluster.String():
		return httpx.Errorf(http.StatusPreconditionFailed, CodeInconsistentClusterID,
			"the follower is of cluster %q, this is cluster %s", *q.clusterID, st.Cluster)
	case malformed != nil:
		return httpx.Errorf(http.StatusBadRequest, CodeInvalidRequest, "%s", malformed)
	case q.maxBytes <= 0, q.Offset < 0, q.LastEpoch < 0, q.maxWait < 0:
		return httpx.Errorf(http.StatusBadRequest, CodeInvalidRequest,
			"offset, lastEpoch and maxWait must not be negative, maxBytes must be positive")
	case q.LastEpoch > leaderEpoch:
		return httpx.Errorf(http.StatusBadRequest, CodeInvalidRequest,
			"lastEpoch %d is above leaderEpoch %d", q.LastEpoch, leaderEpoch)
	case leaderEpoch < st.Epoch:
		return httpx.Errorf(http.StatusConflict, CodeFencedLeaderEpoch,
			"the leader's epoch is %d, not %d", st.Epoch, leaderEpoch)
	case leaderEpoch > st.Epoch:
		return httpx.Errorf(http.StatusConflict, CodeUnknownLeaderEpoch,
			"epoch %d is not known here; the newest is %d", leaderEpoch, st.Epoch)
	case !st.Leading:
		return httpx.Errorf(http.StatusMisdirectedRequest, CodeNotLeader, "the leader is %q", st.URL)
	case down:
		return httpx.Errorf(http.StatusServiceUnavailable, CodeNotAvailable, "shutting down")
	}
	return nil
}
