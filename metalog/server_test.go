package metalog

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
)

const leaderURL = "http://leader"

// serverOf serves a log as the leader of its last epoch.
func serverOf(l *Log, earliest, latest *SnapshotRef) *Server {
	s := NewServer(ServerConfig{Log: l, Snapshots: func() (_, _ *SnapshotRef) { return earliest, latest }})
	s.SetStanding(Standing{Cluster: testCluster, Epoch: max(1, l.Position().LastEpoch), URL: leaderURL, Leading: true})
	return s
}

// got is an answer as a test wants it: a code, or what is in it.
type got struct {
	*httptest.ResponseRecorder
}

func request(ctx context.Context, s *Server, query string) got {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metadata/log?"+query, nil))
	return got{w}
}

// String is "frames 3..5", "frames none", "snapshot (3,2)", "diverging (1,3)" or
// "409 FENCED_LEADER_EPOCH".
func (g got) String() string {
	if g.Code != http.StatusOK {
		var problem struct{ Code string }
		if err := json.Unmarshal(g.Body.Bytes(), &problem); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d %s", g.Code, problem.Code)
	}
	a, err := parseAnswer("", g.Header(), g.Body.Bytes())
	switch {
	case err != nil:
		return err.Error()
	case a.Snapshot != nil:
		return fmt.Sprintf("snapshot (%d,%d)", a.Snapshot.EndOffset, a.Snapshot.Epoch)
	case a.Diverging != nil:
		return fmt.Sprintf("diverging (%d,%d)", a.Diverging.Epoch, a.Diverging.EndOffset)
	}
	entries, err := DecodeEntries(a.Frames)
	switch {
	case err != nil:
		return err.Error()
	case len(entries) == 0:
		return "frames none"
	}
	return fmt.Sprintf("frames %d..%d", entries[0].Batch.Offset, entries[len(entries)-1].Batch.Offset)
}

func TestScenarios1To8And10(t *testing.T) {
	trimmed := openLog(t, vfs.NewMem(), onePerFile)
	appendAll(t, trimmed, batchesOf(run{2, 3}, run{4, 3})...)
	if err := trimmed.Trim(3); err != nil {
		t.Fatal(err)
	}
	whole := logOf(t, run{2, 3}, run{4, 3})
	epochs := logOf(t, run{1, 3}, run{3, 3}, run{5, 3})
	for _, c := range []struct {
		name  string
		s     *Server
		query string
		want  string
	}{
		{"scenario 1, two snapshots", serverOf(whole, snap(2, 2), snap(3, 2)), "offset=0", "snapshot (3,2)"},
		{"scenario 2, below the log start, at once", serverOf(trimmed, snap(3, 2), snap(3, 2)), "offset=1&lastEpoch=2&maxWait=5000", "snapshot (3,2)"},
		{"scenario 3, offset 0, a snapshot and the whole log", serverOf(whole, snap(3, 2), snap(3, 2)), "offset=0", "snapshot (3,2)"},
		{"scenario 3, offset 0, no snapshot", serverOf(whole, nil, nil), "offset=0", "frames 0..5"},
		{"scenario 4, lastEpoch above leaderEpoch", serverOf(whole, nil, nil), "offset=6&lastEpoch=5&leaderEpoch=4", "400 INVALID_REQUEST"},
		{"scenario 4, lastEpoch above the leader's, none given", serverOf(whole, nil, nil), "offset=6&lastEpoch=5", "400 INVALID_REQUEST"},
		{"scenario 5, an epoch that never was", serverOf(whole, snap(3, 2), snap(3, 2)), "offset=4&lastEpoch=3", "diverging (2,3)"},
		{"scenario 6, at the log start", serverOf(trimmed, snap(3, 2), snap(3, 2)), "offset=3&lastEpoch=2", "frames 3..3"},
		{"scenario 6, at the log start, another epoch", serverOf(trimmed, snap(3, 2), snap(3, 2)), "offset=3&lastEpoch=3", "snapshot (3,2)"},
		{"scenario 7, an older epoch, log trimmed", serverOf(trimmed, snap(3, 2), snap(3, 2)), "offset=6&lastEpoch=1", "snapshot (3,2)"},
		{"scenario 7, an older epoch, log whole", serverOf(whole, snap(3, 2), snap(3, 2)), "offset=6&lastEpoch=1", "diverging (0,0)"},
		{"scenario 8, diverging, at once", serverOf(epochs, nil, nil), "offset=6&lastEpoch=2&maxWait=500", "diverging (1,3)"},
		{"scenario 10, one whole batch", serverOf(whole, nil, nil), "offset=0&maxBytes=1", "frames 0..0"},
		{"another term", serverOf(whole, nil, nil), "offset=6&lastEpoch=4&lastTerm=" + termOf(9).String(), "diverging (4,6)"},
		{"the same term", serverOf(whole, nil, nil), "offset=6&lastEpoch=4&lastTerm=" + termOf(4).String(), "frames none"},
		{"log trimmed and no snapshot", serverOf(trimmed, nil, nil), "offset=0", "503 NOT_AVAILABLE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				g := request(t.Context(), c.s, c.query)
				if g.String() != c.want {
					t.Fatalf("got %s, want %s", g, c.want)
				}
				if waited := time.Since(began); waited != 0 {
					t.Fatalf("it waited %s", waited)
				}
				wantStanding(t, g, leaderURL, c.s.standing.Epoch)
			})
		})
	}
}

// wantStanding: every answer names leader and epoch.
func wantStanding(t *testing.T, g got, leader string, epoch int64) {
	t.Helper()
	if l, e := g.Header().Get(HeaderLeader), g.Header().Get(HeaderLeaderEpoch); l != leader || e != fmt.Sprint(epoch) {
		t.Fatalf("%s names leader %q and epoch %q, want %q and %d", g, l, e, leader, epoch)
	}
}

// A leader whose log is damaged goes on, and so do its followers: by the snapshot that holds
// what they would have read there.
func TestFetchFromADamagedLog(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, onePerFile)
	appendAll(t, l, batchesOf(run{1, 9})...)
	patch(t, disk, logFileName("log", 3), flip(-5))
	latest := &SnapshotRef{SnapshotID: SnapshotID{EndOffset: 6, Epoch: 1}}
	for query, want := range map[string]string{
		"offset=2&lastEpoch=1": "frames 2..2",
		"offset=3&lastEpoch=1": "snapshot (6,1)",
		"offset=4&lastEpoch=1": "frames 4..4",
		"offset=6&lastEpoch=1": "frames 6..6",
	} {
		if got := request(t.Context(), serverOf(l, latest, latest), query).String(); got != want {
			t.Errorf("%s → %s, want %s", query, got, want)
		}
	}
	earlier := &SnapshotRef{SnapshotID: SnapshotID{EndOffset: 3, Epoch: 1}}
	for name, s := range map[string]*Server{"none": serverOf(l, nil, nil), "one that ends before it": serverOf(l, earlier, earlier)} {
		if got := request(t.Context(), s, "offset=3&lastEpoch=1").String(); got != "500 INTERNAL" {
			t.Errorf("snapshot: %s → %s", name, got)
		}
	}
}

func TestFetchChecksComeInTheirOrder(t *testing.T) {
	l := logOf(t, run{1, 2}, run{4, 2})
	at := func(leading, down bool) *Server {
		s := NewServer(ServerConfig{Log: l})
		s.SetStanding(Standing{Cluster: testCluster, Epoch: 4, URL: leaderURL, Leading: leading})
		if down {
			s.Shutdown()
		}
		return s
	}
	leader, other, ending, otherEnding := at(true, false), at(false, false), at(true, true), at(false, true)
	wrong := "clusterId=" + uuid.NewString()
	for _, c := range []struct {
		s           *Server
		query, want string
	}{
		// 17 and the codes one by one; 16.
		{leader, "offset=4&lastEpoch=4&clusterId=" + testCluster.String(), "frames none"},
		{leader, "offset=4&lastEpoch=4", "frames none"},
		{leader, "offset=4&lastEpoch=4&clusterId=", "412 INCONSISTENT_CLUSTER_ID"},
		{leader, "offset=4&lastEpoch=4&" + wrong, "412 INCONSISTENT_CLUSTER_ID"},
		{leader, "lastEpoch=4", "400 INVALID_REQUEST"},
		{leader, "offset=x", "400 INVALID_REQUEST"},
		{leader, "offset=", "400 INVALID_REQUEST"},
		{leader, "offset=-1", "400 INVALID_REQUEST"},
		{leader, "offset=99999999999999999999", "400 INVALID_REQUEST"},
		{leader, "offset=0&maxBytes=0", "400 INVALID_REQUEST"},
		{leader, "offset=0&maxBytes=-1", "400 INVALID_REQUEST"},
		{leader, "offset=0&maxWait=-1", "400 INVALID_REQUEST"},
		{leader, "offset=0&lastEpoch=-1", "400 INVALID_REQUEST"},
		{leader, "offset=0&lastTerm=zz", "400 INVALID_REQUEST"},
		{leader, "offset=4&lastEpoch=4&leaderEpoch=3", "400 INVALID_REQUEST"},
		{leader, "offset=2&lastEpoch=1&leaderEpoch=3", "409 FENCED_LEADER_EPOCH"},
		{leader, "offset=4&lastEpoch=4&leaderEpoch=5", "409 UNKNOWN_LEADER_EPOCH"},
		{leader, "offset=4&lastEpoch=4&leaderEpoch=4", "frames none"},
		{other, "offset=4&lastEpoch=4", "421 NOT_LEADER"},
		{ending, "offset=4&lastEpoch=4", "503 NOT_AVAILABLE"},
		// Each against all that come later.
		{otherEnding, "offset=-1&leaderEpoch=3&" + wrong, "412 INCONSISTENT_CLUSTER_ID"},
		{otherEnding, "offset=-1&leaderEpoch=3", "400 INVALID_REQUEST"},
		{otherEnding, "offset=x&leaderEpoch=5", "400 INVALID_REQUEST"},
		{otherEnding, "offset=0&leaderEpoch=3", "409 FENCED_LEADER_EPOCH"},
		{otherEnding, "offset=0&leaderEpoch=5", "409 UNKNOWN_LEADER_EPOCH"},
		{otherEnding, "offset=0&leaderEpoch=4", "421 NOT_LEADER"},
	} {
		g := request(t.Context(), c.s, c.query)
		if g.String() != c.want {
			t.Errorf("%s: got %s, want %s", c.query, g, c.want)
		}
		wantStanding(t, g, leaderURL, 4)
	}
}

func TestServerThatWasToldNothingRefuses(t *testing.T) {
	s := NewServer(ServerConfig{Log: logOf(t, run{1, 1})})
	if g := request(t.Context(), s, "offset=0"); g.String() != "421 NOT_LEADER" {
		t.Fatalf("got %s", g)
	}
}

func TestHighWatermarkIsNamed(t *testing.T) {
	s := serverOf(logOf(t, run{1, 3}), nil, nil)
	for _, query := range []string{"offset=1&lastEpoch=1&maxBytes=1", "offset=3&lastEpoch=1", "offset=9&lastEpoch=1"} {
		if hw := request(t.Context(), s, query).Header().Get(HeaderHighWatermark); hw != "3" {
			t.Errorf("%s: high watermark %q", query, hw)
		}
	}
}

func TestScenario9LongPoll(t *testing.T) { // METALOG §5, 9
	for _, c := range []struct {
		name    string
		maxWait string
		// happens after a second of waiting
		event func(l *Log, s *Server)
		want  string
		after time.Duration
	}{
		{"nothing comes", "3000", func(*Log, *Server) {}, "frames none", 3 * time.Second},
		{"more than the cap is cut down", "3600000", func(*Log, *Server) {}, "frames none", 5 * time.Second},
		{"no wait", "0", func(*Log, *Server) {}, "frames none", 0},
		{"a batch comes", "3000", func(l *Log, _ *Server) { l.Append(context.Background(), batchAt(2, 1, false)) }, "frames 2..2", time.Second},
		{"the leader is deposed", "3000", func(_ *Log, s *Server) {
			s.SetStanding(Standing{Cluster: testCluster, Epoch: 2, URL: "http://next"})
		}, "409 FENCED_LEADER_EPOCH", time.Second},
		{"the same standing again", "3000", func(_ *Log, s *Server) { s.SetStanding(s.standing) }, "frames none", 3 * time.Second},
		{"shutting down", "3000", func(_ *Log, s *Server) { s.Shutdown() }, "503 NOT_AVAILABLE", time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := logOf(t, run{1, 2})
				s := serverOf(l, nil, nil)
				began := time.Now()
				happened := make(chan struct{})
				time.AfterFunc(time.Second, func() { c.event(l, s); close(happened) })
				g := request(t.Context(), s, "offset=2&lastEpoch=1&leaderEpoch=1&maxWait="+c.maxWait)
				if g.String() != c.want {
					t.Errorf("got %s, want %s", g, c.want)
				}
				if waited := time.Since(began); waited != c.after {
					t.Errorf("after %s, want %s", waited, c.after)
				}
				<-happened // before the log is closed
			})
		})
	}
}

func TestLongPollEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(logOf(t, run{1, 2}), nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		request(ctx, s, "offset=2&lastEpoch=1&maxWait=5000")
		if waited := time.Since(began); waited != time.Second {
			t.Fatalf("it ended after %s", waited)
		}
	})
}

func TestManyLongPollsWakeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := logOf(t, run{1, 2})
		s := serverOf(l, nil, nil)
		answers := make(chan string)
		const pollers = 200
		for range pollers {
			go func() { answers <- request(t.Context(), s, "offset=2&lastEpoch=1&maxWait=5000").String() }()
		}
		synctest.Wait()
		appendAll(t, l, batchAt(2, 1, false))
		for range pollers {
			if a := <-answers; a != "frames 2..2" {
				t.Fatalf("got %s", a)
			}
		}
	})
}

func FuzzParseFetch(f *testing.F) {
	f.Add("offset=3&lastEpoch=2&lastTerm=" + termOf(2).String() + "&leaderEpoch=4&clusterId=&maxBytes=1&maxWait=500")
	f.Add("offset=9223372036854775807&maxBytes=9223372036854775807&maxWait=9223372036854775807")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil || strings.Contains(query, ";") {
			return
		}
		q := parseFetch(v)
		if code, err := q.Refuse(Standing{Epoch: 4, Leading: true}, false); (code == "") != (err == nil) {
			t.Fatalf("%q is refused with code %q, error %v", query, code, err)
		} else if code != "" {
			return
		}
		if q.MaxBytes < 1 || q.MaxBytes > fetchBytesMax || q.MaxWait < 0 || q.MaxWait > fetchWaitMax || q.Offset < 0 {
			t.Fatalf("%q is accepted as %+v", query, q)
		}
		again := parseFetch(q.values())
		if again.malformed != nil || again.Position != q.Position || again.MaxBytes != q.MaxBytes || again.MaxWait != q.MaxWait {
			t.Fatalf("%+v comes back as %+v, %v", q, again, again.malformed)
		}
	})
}
