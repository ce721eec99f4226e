package s3test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
)

// Request is what the proxy knows of a request, and how it was answered.
type Request struct {
	// Op is the S3 operation, as "PutObject" or "UploadPart".
	Op  string
	Key string // below the bucket
	// Number counts the requests of this proxy, from 1 up.
	Number int
	// Header is the client's; not to be changed.
	Header http.Header
}

// Fault is what happens to one request. The zero value passes it on.
type Fault struct {
	// Hold keeps the request until it is closed, or the client has gone.
	Hold <-chan struct{}
	// HoldAnswer keeps the answer, once the server has acted, in the same way.
	HoldAnswer <-chan struct{}
	// Latency is waited for before the request goes on.
	Latency time.Duration
	// Status is answered instead of the server's answer. Without After the server
	// never hears of the request.
	Status int
	// Code is the error code in that answer; made from Status unless given.
	Code string
	// Cut closes the connection instead of an answer.
	Cut bool
	// After has the server act, and its answer lost, before Status or Cut.
	After bool
	// Again delivers the request to the server once more, after the answer, when
	// Repeat is called.
	Again bool

	// FlipRequest changes one bit of the request's body on its way.
	FlipRequest bool
	// FlipAnswer changes one bit of the answer's body.
	FlipAnswer bool
	// CutAnswer breaks the connection after half of the answer's body.
	CutAnswer bool
	// ShortAnswer sends half of the answer's body as if that were all of it.
	ShortAnswer bool
	// Unranged has a part that was asked for look like the whole: 200 and no
	// Content-Range.
	Unranged bool
	// Header is set on the answer.
	Header http.Header
}

// rule gives a fault to requests.
type rule struct {
	ops   []string // empty: every one
	times int      // left; below 0: always
	fault Fault
}

// Proxy stands before a gateway. Its methods may be called from any goroutine.
type Proxy struct {
	t      testing.TB
	target string
	client *http.Transport
	addr   string
	port   int

	mu       sync.Mutex
	server   *http.Server // nil: an outage
	rules    []*rule
	choose   func(Request) *Fault
	requests []Request
	repeats  []func() int
	serving  sync.WaitGroup
}

// NewProxy returns a proxy to target (host:port) that passes everything on, until
// the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 32}}
	for try := 1; ; try++ {
		port, err := httpxtest.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { httpxtest.GiveBack(port) })
		p.port, p.addr = port, httpxtest.Loopback(port)
		if err = p.listen(); err == nil {
			break
		}
		if try == startTries {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		p.Outage()
		p.client.CloseIdleConnections()
	})
	return p
}

// Endpoint is the URL that clients reach it by.
func (p *Proxy) Endpoint() string { return "http://" + p.addr }

// Fail gives a fault to the next times requests (below 0: to all) of the given
// operations, or of any. Rules are looked at in the order in which they came, and
// the first that fits counts.
func (p *Proxy) Fail(times int, f Fault, ops ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &rule{ops: ops, times: times, fault: f})
}

// Choose has a function choose the fault of each request that no rule has one
// for; nil is none. It must not block.
func (p *Proxy) Choose(choose func(Request) *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.choose = choose
}

// Heal forgets all rules and ends an outage.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	p.rules, p.choose = nil, nil
	down := p.server == nil
	p.mu.Unlock()
	if down {
		if err := p.listen(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// Outage cuts all connections and takes no more, until Heal.
func (p *Proxy) Outage() {
	p.mu.Lock()
	server := p.server
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		server.Close()
		p.serving.Wait()
	}
}

// Requests are those that came so far, in order.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Count says how many requests of an operation came so far.
func (p *Proxy) Count(op string) int {
	n := 0
	for _, r := range p.Requests() {
		if r.Op == op {
			n++
		}
	}
	return n
}

// Repeat delivers the requests that Again kept once more, and returns how the
// server answers them; 0 where it breaks the connection instead.
func (p *Proxy) Repeat() (statuses []int) {
	p.mu.Lock()
	repeats := p.repeats
	p.repeats = nil
	p.mu.Unlock()
	for _, again := range repeats {
		statuses = append(statuses, again())
	}
	return statuses
}

func (p *Proxy) listen() error {
	ln, err := net.Listen("tcp4", p.addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: time.Minute}
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	p.serving.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			p.t.Errorf("the proxy of S3 ended: %v", err)
		}
	})
	return nil
}

// take notes a request and finds its fault.
func (p *Proxy) take(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	op, key := operation(r)
	req := Request{Op: op, Key: key, Number: len(p.requests) + 1, Header: r.Header}
	p.requests = append(p.requests, req)
	for _, rule := range p.rules {
		if rule.times == 0 || len(rule.ops) > 0 && !slices.Contains(rule.ops, op) {
			continue
		}
		rule.times--
		return rule.fault
	}
	if p.choose != nil {
		if f := p.choose(req); f != nil {
			return *f
		}
	}
	return Fault{}
}

// held returns false if the client goes away before the hold ends.
func held(ctx context.Context, hold <-chan struct{}) bool {
	if hold == nil {
		return true
	}
	select {
	case <-hold:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait returns false if the client goes away first.
func (f Fault) wait(ctx context.Context) bool {
	if !held(ctx, f.Hold) {
		return false
	}
	if f.Latency == 0 {
		return true
	}
	timer := time.NewTimer(f.Latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
