package metalog

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Bounds of a fetch. What is asked beyond them is cut down, not refused.
const (
	fetchBytesDefault = 1 << 20
	fetchBytesMax     = 4 << 20
	fetchWaitMax      = 5 * time.Second
)

// FetchQuery is what a follower asks of GET /metadata/log. Left out of the URL,
// lastEpoch is 0, lastTerm is not compared, leaderEpoch is the server's own, clusterId
// is not compared, maxBytes is 1 MiB, and there is no waiting. offset is required.
type FetchQuery struct {
	Position
	LeaderEpoch *int64  // nil: not named
	ClusterID   *string // nil: not named; empty is another cluster
	MaxBytes    int
	MaxWait     time.Duration // in the URL: milliseconds

	malformed error // what could not be read of the URL
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
	return identify(v, q.LeaderEpoch, q.ClusterID)
}

// parseFetch reads the query. Refuse tells what was malformed.
func parseFetch(v url.Values) (q FetchQuery) {
	p := params{Values: v}
	if !v.Has("offset") {
		p.fail(errors.New("offset is missing"))
	}
	q.Offset = p.number("offset", 0)
	q.LastEpoch = p.number("lastEpoch", 0)
	q.LeaderEpoch, q.ClusterID = p.leaderEpoch(), p.clusterID()
	if v.Has("lastTerm") {
		term, err := uuid.Parse(v.Get("lastTerm"))
		if err != nil {
			p.fail(fmt.Errorf("lastTerm=%q is not a UUID", v.Get("lastTerm")))
		}
		q.LastTerm = term
	}
	q.MaxBytes = int(min(p.number("maxBytes", fetchBytesDefault), fetchBytesMax))
	q.MaxWait = time.Duration(min(p.number("maxWait", 0), fetchWaitMax.Milliseconds())) * time.Millisecond
	q.malformed = p.malformed
	return q
}

// Refuse says with which code a controller of standing st refuses the query, and why;
// an empty code serves it. These are the checks of METALOG §3 in their order.
func (q *FetchQuery) Refuse(st Standing, down bool) (code string, err error) {
	if code, err := st.refuseCluster(q.ClusterID); code != "" {
		return code, err
	}
	leaderEpoch := st.Epoch
	if q.LeaderEpoch != nil {
		leaderEpoch = *q.LeaderEpoch
	}
	switch {
	case q.malformed != nil:
		return CodeInvalidRequest, q.malformed
	case q.MaxBytes <= 0, q.Offset < 0, q.LastEpoch < 0, q.MaxWait < 0:
		return CodeInvalidRequest, errors.New("offset, lastEpoch and maxWait must not be negative, maxBytes must be positive")
	case q.LastEpoch > leaderEpoch:
		return CodeInvalidRequest, fmt.Errorf("lastEpoch %d is above leaderEpoch %d", q.LastEpoch, leaderEpoch)
	}
	if code, err := st.refuseEpoch(&leaderEpoch); code != "" {
		return code, err
	}
	switch {
	case !st.Leading:
		return CodeNotLeader, fmt.Errorf("the leader is %q", st.URL)
	case down:
		return CodeNotAvailable, errShuttingDown
	}
	return "", nil
}
