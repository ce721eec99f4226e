package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/shoalstore/shoal/commit"
)

// stopwatch stands between the nodes and the controller and takes the time of
// every commit. The nodes take it for the controller, which advertises its
// address; so production code is measured as it is. The hop that it adds is in
// report → committed twice for each message, and in commitEnd → COMMIT_SUCCESS
// not at all but for the way between node and stopwatch.
type stopwatch struct {
	proxy *httputil.ReverseProxy

	mu       sync.Mutex
	reported map[string]time.Time // by segment: the first segmentConsumed
	laps     laps
}

// laps are in milliseconds, one for each commit.
type laps struct {
	commitEnd []float64 // segmentCommitEnd arrived → COMMIT_SUCCESS sent
	report    []float64 // first segmentConsumed arrived → COMMIT_SUCCESS sent
}

func newStopwatch(controller *url.URL) *stopwatch {
	proxy := httputil.NewSingleHostReverseProxy(controller)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	proxy.Transport = transport
	// A call that the cluster's end cuts off is no news; a node notices any other.
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	return &stopwatch{proxy: proxy, reported: map[string]time.Time{}}
}

func (s *stopwatch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/protocol/") {
		s.proxy.ServeHTTP(w, r)
		return
	}
	began := time.Now()
	var m commit.Message
	var reply commit.Reply
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &m) != nil {
		http.Error(w, "the stopwatch cannot read the message", http.StatusBadRequest)
		return
	}
	m.Kind = commit.Kind(path.Base(r.URL.Path))
	if m.Kind == commit.SegmentConsumed {
		s.start(m.Segment, began)
	}
	// A committer that learns from the log that it is done hangs up before the
	// answer. These are the slow ones: to lose them would flatter the rest.
	r = r.WithContext(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := &tee{ResponseWriter: w}
	s.proxy.ServeHTTP(answer, r)
	if m.Kind == commit.SegmentCommitEnd && json.Unmarshal(answer.body.Bytes(), &reply) == nil && reply.Status == commit.CommitSuccess {
		s.stop(m.Segment, began)
	}
}

// tee keeps what is written through it.
type tee struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (t *tee) Write(b []byte) (int, error) {
	t.body.Write(b)
	return t.ResponseWriter.Write(b)
}

func (s *stopwatch) start(segment string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.reported[segment]; !ok {
		s.reported[segment] = at
	}
}

func (s *stopwatch) stop(segment string, commitEnd time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.laps.commitEnd = append(s.laps.commitEnd, millis(time.Since(commitEnd)))
	if at, ok := s.reported[segment]; ok {
		s.laps.report = append(s.laps.report, millis(time.Since(at)))
	}
}

// take returns the laps since the last call.
func (s *stopwatch) take() laps {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.laps
	s.laps = laps{}
	return l
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
