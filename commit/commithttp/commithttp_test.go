package commithttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/segment"
)

var (
	table = uuid.MustParse("6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c01")
	store = uuid.MustParse("6f1c9f5e-36a8-4b3a-9a55-0d2f6f3a1c02")
)

// message returns a well-formed message of that kind.
func message(kind commit.Kind) commit.Message {
	m := commit.Message{
		Kind: kind, Table: table, Partition: 3, Seq: 7, Segment: "flights__3__7__20261101T000000Z",
		Instance: "n1", Incarnation: 2, StreamEpoch: "0", Offset: 40, Rows: 40,
		MinTimestamp: segment.NoTimestamp, MaxTimestamp: segment.NoTimestamp,
	}
	switch kind {
	case commit.SegmentConsumed:
		m.Reason, m.Bytes = commit.TimeLimit, 4000
	case commit.SegmentStoppedConsuming:
		m.Error = "row too large"
	case commit.SegmentCommitEnd:
		epoch := int32(5)
		m.Digest, m.SHA256, m.RowsDigest = segment.Digest{1}, segment.SHA256{2}, segment.RowsDigest{3}
		m.SizeBytes, m.MinTimestamp, m.MaxTimestamp = 1234, 0, 99
		m.StoreID, m.LastLeaderEpoch, m.DeepStoreURI = store, &epoch, "file:///there"
	case commit.ExtendBuildTime:
		m.ExtraTimeSec = 120
	}
	return m
}

var kinds = []commit.Kind{
	commit.SegmentConsumed, commit.SegmentStoppedConsuming, commit.SegmentCommitStart, commit.SegmentCommitEnd, commit.ExtendBuildTime,
}

// controller is a server that answers as told and counts.
type controller struct {
	*httptest.Server
	asked atomic.Int64
	last  atomic.Pointer[commit.Message]
	dead  atomic.Bool
}

func newController(t *testing.T, answer Answerer) *controller {
	c := &controller{}
	handler := Handler(zerolog.Nop(), func(ctx context.Context, m commit.Message) commit.Reply {
		c.asked.Add(1)
		c.last.Store(&m)
		return answer(ctx, m)
	})
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.dead.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

// die breaks every connection from now on. It keeps the address, at which somebody
// else's server would answer otherwise.
func (c *controller) die() {
	c.dead.Store(true)
	c.CloseClientConnections()
}

func answering(r commit.Reply) Answerer {
	return func(context.Context, commit.Message) commit.Reply { return r }
}

func newClient(t *testing.T, controllers ...string) *Client {
	c := NewClient(controllers, "")
	t.Cleanup(c.Close)
	return c
}

func TestMessagesArriveAsTheyWereSent(t *testing.T) {
	want := commit.Reply{Status: commit.Keep, Offset: 40, Digest: segment.Digest{9}}
	server := newController(t, answering(want))
	client := newClient(t, server.URL+"/")
	for _, kind := range kinds {
		sent := message(kind)
		got, err := client.Send(t.Context(), sent)
		if err != nil || got != want {
			t.Fatalf("%s: got %+v, %v, want %+v", kind, got, err, want)
		}
		if !reflect.DeepEqual(*server.last.Load(), sent) {
			t.Errorf("%s arrived as %+v, sent %+v", kind, *server.last.Load(), sent)
		}
	}
}

func TestTheWireHasTheProtocolsNames(t *testing.T) {
	body, err := json.Marshal(message(commit.SegmentCommitEnd))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"tableId", "partition", "seq", "segment", "instance", "incarnation", "streamEpoch", "offset", "digest", "sha256",
		"rowsDigest", "sizeBytes", "rows", "minTimestamp", "maxTimestamp", "storeId", "lastLeaderEpoch", "deepStoreUri",
	} {
		if _, ok := fields[name]; !ok {
			t.Errorf("commitEnd has no field %s: %s", name, body)
		}
	}
}

// change is a well-formed body with one field set, or removed.
func change(t *testing.T, kind commit.Kind, field string, value any) string {
	body, err := json.Marshal(message(kind))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	fields[field] = value
	if value == nil {
		delete(fields, field)
	}
	body, err = json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestMalformedMessagesNeverReachTheMachine(t *testing.T) {
	consumed, end := commit.SegmentConsumed, commit.SegmentCommitEnd
	for _, c := range []struct {
		name, kind, body string
		status           int
		code             string
		says             string
	}{
		{"no body", "segmentConsumed", "", 400, httpx.CodeInvalidRequest, "empty"},
		{"not JSON", "segmentConsumed", "{", 400, httpx.CodeInvalidRequest, "JSON"},
		{"wrong type", "segmentConsumed", change(t, consumed, "offset", "forty"), 400, httpx.CodeInvalidRequest, "offset"},
		{"unknown kind", "segmentEaten", change(t, consumed, "x", 1), 400, httpx.CodeInvalidRequest, "segmentEaten"},
		{"no table", "segmentConsumed", change(t, consumed, "tableId", nil), 400, httpx.CodeInvalidRequest, "tableId"},
		{"negative partition", "segmentConsumed", change(t, consumed, "partition", -1), 400, httpx.CodeInvalidRequest, "partition"},
		{"negative offset", "segmentConsumed", change(t, consumed, "offset", -1), 400, httpx.CodeInvalidRequest, "offset"},
		{"no instance", "segmentConsumed", change(t, consumed, "instance", nil), 400, httpx.CodeInvalidRequest, "instance"},
		{"no incarnation", "segmentConsumed", change(t, consumed, "incarnation", 0), 400, httpx.CodeInvalidRequest, "incarnation"},
		{"unknown reason", "segmentConsumed", change(t, consumed, "reason", "boredom"), 400, httpx.CodeInvalidRequest, "boredom"},
		{"long name", "segmentConsumed", change(t, consumed, "segment", strings.Repeat("a", 600)), 400, httpx.CodeInvalidRequest, "segment"},
		{"no digest", "segmentCommitEnd", change(t, end, "digest", nil), 400, httpx.CodeInvalidRequest, "digest"},
		{"digest not hex", "segmentCommitEnd", change(t, end, "digest", "xyz"), 400, httpx.CodeInvalidRequest, "digest"},
		{"no rows", "segmentCommitEnd", change(t, end, "rows", 0), 400, httpx.CodeInvalidRequest, "rows"},
		{"no store", "segmentCommitEnd", change(t, end, "storeId", nil), 400, httpx.CodeInvalidRequest, "storeId"},
		{"no time", "extendBuildTime", change(t, commit.ExtendBuildTime, "extraTimeSec", nil), 400, httpx.CodeInvalidRequest, "extraTimeSec"},
		{"endless time", "extendBuildTime", change(t, commit.ExtendBuildTime, "extraTimeSec", 1e12), 400, httpx.CodeInvalidRequest, "extraTimeSec"},
		{"too large", "segmentConsumed", change(t, consumed, "error", strings.Repeat("a", maxBody)), 413, httpx.CodeBodyTooLarge, "larger"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := newController(t, answering(commit.Reply{Status: commit.Hold}))
			res, err := http.Post(server.URL+"/protocol/"+c.kind, "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var problem struct{ Code, Detail string }
			if err := json.NewDecoder(res.Body).Decode(&problem); err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.status || problem.Code != c.code || !strings.Contains(problem.Detail, c.says) {
				t.Errorf("answered %d %+v, want %d %s with %q", res.StatusCode, problem, c.status, c.code, c.says)
			}
			if n := server.asked.Load(); n != 0 {
				t.Errorf("the machine was asked %d times", n)
			}
		})
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	server := newController(t, answering(commit.Reply{Status: commit.Hold}))
	body := change(t, commit.SegmentConsumed, "colour", "blue")
	res, err := http.Post(server.URL+"/protocol/segmentConsumed", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || server.asked.Load() != 1 {
		t.Errorf("answered %d, asked %d times", res.StatusCode, server.asked.Load())
	}
}

func TestOnlyAPostIsAMessage(t *testing.T) {
	server := newController(t, answering(commit.Reply{Status: commit.Hold}))
	res, err := http.Get(server.URL + "/protocol/segmentConsumed")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != http.MethodPost {
		t.Errorf("answered %d, Allow %q", res.StatusCode, res.Header.Get("Allow"))
	}
}

func TestClientFollowsAndRemembersTheLeader(t *testing.T) {
	leader := newController(t, answering(commit.Reply{Status: commit.Hold}))
	standby := newController(t, answering(commit.Reply{Status: commit.NotLeader, Leader: leader.URL}))
	client := newClient(t, standby.URL)
	for range 3 {
		got, err := client.Send(t.Context(), message(commit.SegmentConsumed))
		if err != nil || got.Status != commit.Hold {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if standby.asked.Load() != 1 || leader.asked.Load() != 3 || client.Leader() != leader.URL {
		t.Errorf("the standby was asked %d times, the leader %d, remembered %q", standby.asked.Load(), leader.asked.Load(), client.Leader())
	}
}

func TestClientGoesOnWhenTheLeaderDies(t *testing.T) {
	old := newController(t, answering(commit.Reply{Status: commit.Hold}))
	next := newController(t, answering(commit.Reply{Status: commit.CatchUp, Offset: 50}))
	client := newClient(t, old.URL, next.URL)
	if _, err := client.Send(t.Context(), message(commit.SegmentConsumed)); err != nil {
		t.Fatal(err)
	}
	old.die()
	got, err := client.Send(t.Context(), message(commit.SegmentConsumed))
	if err != nil || got.Offset != 50 || client.Leader() != next.URL {
		t.Errorf("got %+v, %v, remembered %q", got, err, client.Leader())
	}
}

// frozen takes messages and says nothing.
func frozen(ctx context.Context, _ commit.Message) commit.Reply {
	<-ctx.Done()
	return commit.Reply{}
}

// Word of the new leader comes by the heartbeats, while a message still waits for the
// old one.
func TestClientLeavesAFrozenLeaderForTheNext(t *testing.T) {
	old := newController(t, frozen)
	next := newController(t, answering(commit.Reply{Status: commit.CatchUp, Offset: 50}))
	client := newClient(t, old.URL, next.URL)
	client.patience = 0
	client.SetLeader(old.URL)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for old.asked.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		client.SetLeader(old.URL) // the same: it is waited for
		client.SetLeader(next.URL)
	}()
	got, err := client.Send(t.Context(), message(commit.SegmentConsumed))
	<-heard
	if err != nil || got.Offset != 50 || old.asked.Load() != 1 || next.asked.Load() != 1 {
		t.Errorf("got %+v, %v; asked %d and %d times", got, err, old.asked.Load(), next.asked.Load())
	}
}

func TestClientLooksBehindAFrozenController(t *testing.T) {
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	first := newController(t, func(ctx context.Context, m commit.Message) commit.Reply {
		giveUp() // as if all the time of the Send were over
		return frozen(ctx, m)
	})
	leader := newController(t, answering(commit.Reply{Status: commit.Hold}))
	client := newClient(t, first.URL, leader.URL)
	if got, err := client.Send(ctx, message(commit.SegmentConsumed)); err == nil {
		t.Fatalf("a controller that is frozen answers %+v", got)
	}
	got, err := client.Send(t.Context(), message(commit.SegmentConsumed))
	if err != nil || got.Status != commit.Hold || first.asked.Load() != 1 {
		t.Errorf("got %+v, %v; the frozen one was asked %d times", got, err, first.asked.Load())
	}
}

func TestClientSaysNotLeaderWhenNobodyLeads(t *testing.T) {
	var a, b *controller
	a = newController(t, func(context.Context, commit.Message) commit.Reply {
		return commit.Reply{Status: commit.NotLeader, Leader: b.URL} // each thinks the other leads
	})
	b = newController(t, func(context.Context, commit.Message) commit.Reply {
		return commit.Reply{Status: commit.NotLeader, Leader: a.URL}
	})
	client := newClient(t, a.URL, b.URL)
	client.SetLeader(b.URL)
	got, err := client.Send(t.Context(), message(commit.SegmentConsumed))
	if err != nil || got.Status != commit.NotLeader || client.Leader() != "" {
		t.Errorf("got %+v, %v, remembered %q", got, err, client.Leader())
	}
	if a.asked.Load() != 1 || b.asked.Load() != 1 {
		t.Errorf("asked %d and %d times, want each once", a.asked.Load(), b.asked.Load())
	}
}

func TestNoAnswerIsAnError(t *testing.T) {
	dead := httpxtest.Refusing(t)
	silent := newController(t, func(ctx context.Context, _ commit.Message) commit.Reply {
		<-ctx.Done()
		return commit.Reply{}
	})
	mute := newController(t, answering(commit.Reply{}))
	for name, url := range map[string]string{"dead": dead, "silent": silent.URL, "without a status": mute.URL, "no URL": "%"} {
		client := newClient(t, url)
		client.timeout = 200 * time.Millisecond
		if got, err := client.Send(t.Context(), message(commit.SegmentConsumed)); err == nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestARefusalIsNotTriedElsewhere(t *testing.T) {
	a := newController(t, answering(commit.Reply{Status: commit.Hold}))
	b := newController(t, answering(commit.Reply{Status: commit.Hold}))
	client := newClient(t, a.URL, b.URL)
	m := message(commit.SegmentConsumed)
	m.Instance = ""
	_, err := client.Send(t.Context(), m)
	if e, ok := errors.AsType[*httpx.Error](err); !ok || e.Status != http.StatusBadRequest {
		t.Errorf("got %v", err)
	}
	if a.asked.Load()+b.asked.Load() != 0 {
		t.Error("a malformed message reached a machine")
	}
}

func TestClientIsSafeForConcurrentUse(t *testing.T) {
	leader := newController(t, answering(commit.Reply{Status: commit.Hold}))
	standby := newController(t, answering(commit.Reply{Status: commit.NotLeader, Leader: leader.URL}))
	client := newClient(t, standby.URL, leader.URL)
	client.patience = time.Hour // else word of the standby ends a Send that takes long
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if i%4 == 0 {
				client.SetLeader(standby.URL)
			}
			if got, err := client.Send(t.Context(), message(commit.SegmentConsumed)); err != nil || got.Status != commit.Hold {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	wg.Wait()
}

// FuzzMessage: whatever arrives, the machine sees only well-formed messages, and
// the answer is a 200 if and only if it saw one.
func FuzzMessage(f *testing.F) {
	for _, kind := range kinds {
		body, err := json.Marshal(message(kind))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(kind), body)
	}
	f.Add("segmentConsumed", []byte(`{"offset":1e400,"digest":"zz","partition":-1}`))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		var seen *commit.Message
		h := Handler(zerolog.Nop(), func(_ context.Context, m commit.Message) commit.Reply {
			seen = &m
			return commit.Reply{Status: commit.Hold}
		})
		r := httptest.NewRequest(http.MethodPost, "/protocol/x", strings.NewReader(string(body)))
		r.URL.Path = "/protocol/" + kind
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if (w.Code == http.StatusOK) != (seen != nil) {
			t.Fatalf("answered %d, the machine saw %+v", w.Code, seen)
		}
		if seen == nil {
			return
		}
		if err := seen.Validate(); err != nil {
			t.Fatalf("the machine saw a malformed message: %v", err)
		}
		again, err := json.Marshal(seen)
		if err != nil {
			t.Fatal(err)
		}
		back := commit.Message{Kind: seen.Kind}
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(back, *seen) {
			t.Fatalf("%+v came back as %+v (%v)", *seen, back, err)
		}
	})
}
