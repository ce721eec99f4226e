package metalog

import (
	"net/url"
	"strings"
	"testing"
)

const queriedID = "00000000000000000007-0000000002"

// refusedWith parses a query for the snapshot (7,2) of 100 bytes and says how a server of
// epoch 2 refuses it; "" serves it.
func refusedWith(t *testing.T, id, query string, down bool, held *SnapshotRef) string {
	t.Helper()
	v, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	q := ParseSnapshotQuery(id, v)
	code, err := q.Refuse(Standing{Cluster: testCluster, Epoch: 2, URL: leaderURL}, down, held)
	if (code == "") != (err == nil) {
		t.Fatalf("%s?%s is refused with code %q, error %v", id, query, code, err)
	}
	return code
}

func TestSnapshotQueriesAreRefusedInOrder(t *testing.T) {
	held := &SnapshotRef{SnapshotID: SnapshotID{EndOffset: 7, Epoch: 2}, SizeBytes: 100}
	right := "clusterId=" + testCluster.String()
	// Each query is wrong in all that comes after the fault it is refused for.
	for _, c := range []struct {
		id, query string
		down      bool
		held      *SnapshotRef
		want      string
	}{
		{"7-2", "clusterId=&maxBytes=0&position=x&leaderEpoch=1", true, nil, CodeInconsistentClusterID},
		{"7-2", "clusterId=" + termOf(9).String(), true, nil, CodeInconsistentClusterID},
		{"7-2", right + "&leaderEpoch=1", true, nil, CodeInvalidRequest},
		{queriedID + "0", "", false, held, CodeInvalidRequest},
		{queriedID, right + "&position=x&leaderEpoch=1", true, nil, CodeInvalidRequest},
		{queriedID, "position=", false, held, CodeInvalidRequest},
		{queriedID, "position=9223372036854775808", false, held, CodeInvalidRequest},
		{queriedID, right + "&maxBytes=0&leaderEpoch=1", true, nil, CodeInvalidRequest},
		{queriedID, "maxBytes=-1&position=-1&leaderEpoch=1", true, nil, CodeInvalidRequest},
		{queriedID, "maxBytes=1.5", false, held, CodeInvalidRequest},
		{queriedID, "leaderEpoch=two", true, nil, CodeInvalidRequest},
		{queriedID, "leaderEpoch=1&position=-1", true, nil, CodeFencedLeaderEpoch},
		{queriedID, "leaderEpoch=3&position=-1", true, nil, CodeUnknownLeaderEpoch},
		{queriedID, "leaderEpoch=2&position=-1", true, nil, CodeNotAvailable},
		{queriedID, "leaderEpoch=2&position=-1", false, nil, CodeSnapshotNotFound},
		{queriedID, "leaderEpoch=2&position=-1", false, held, CodePositionOutOfRange},
		{queriedID, "position=100", false, held, CodePositionOutOfRange},
		{queriedID, "position=9223372036854775807", false, held, CodePositionOutOfRange},
		{queriedID, right + "&leaderEpoch=2&position=99&maxBytes=1", false, held, ""},
		{queriedID, "", false, held, ""},
		{queriedID, "maxBytes=9223372036854775807", false, held, ""},
	} {
		if got := refusedWith(t, c.id, c.query, c.down, c.held); got != c.want {
			t.Errorf("%s?%s: %q, want %q", c.id, c.query, got, c.want)
		}
	}
}

func TestEveryRefusalHasAStatus(t *testing.T) {
	for _, code := range []string{
		CodeInconsistentClusterID, CodeInvalidRequest, CodeFencedLeaderEpoch, CodeUnknownLeaderEpoch, CodeNotLeader, CodeNotAvailable,
		CodeSnapshotNotFound, CodePositionOutOfRange,
	} {
		if e := Refusal(code, errShuttingDown); e.Status < 400 || e.Code != code {
			t.Errorf("%s is answered %v", code, e)
		}
	}
}

func FuzzParseSnapshotQuery(f *testing.F) {
	f.Add(queriedID, "position=3&maxBytes=5&leaderEpoch=2&clusterId="+testCluster.String())
	f.Add("-7-2", "position=-1&maxBytes=9223372036854775808&clusterId=")
	f.Fuzz(func(t *testing.T, id, query string) {
		v, err := url.ParseQuery(query)
		if err != nil || strings.Contains(query, ";") {
			return
		}
		held := &SnapshotRef{SizeBytes: 100}
		if code := refusedWith(t, id, query, false, held); code != "" {
			return
		}
		q := ParseSnapshotQuery(id, v)
		if q.ID.String() != id || q.Position < 0 || q.Position >= 100 || q.MaxBytes < 1 {
			t.Fatalf("%q?%q is accepted as %+v", id, query, q)
		}
		again := ParseSnapshotQuery(id, q.Values())
		if again.malformed != nil || again.ID != q.ID || again.Position != q.Position || again.MaxBytes != q.MaxBytes {
			t.Fatalf("%+v comes back as %+v, %v", q, again, again.malformed)
		}
	})
}
