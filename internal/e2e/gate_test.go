package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/shoalstore/shoal/commit"
)

// gate stands between the nodes and the controller, who know nothing of it, and
// lets a test act at a message of the completion protocol: a fault of the
// network, or of whoever sent it, at exactly that step.
type gate struct {
	*httptest.Server
	proxy *httputil.ReverseProxy

	mu   sync.Mutex
	hook func(m commit.Message, forward func() commit.Reply) (deliver bool)
}

// openGate opens a gate to a controller; answers, if it is not nil, changes what that says.
func openGate(t *testing.T, controller string, answers func(*http.Response) error) *gate {
	t.Helper()
	to, err := url.Parse(controller)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{proxy: &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorLog: log.New(io.Discard, "", 0),
		// A controller that is not there looks like one to the caller, too.
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		FlushInterval: -1, ModifyResponse: answers,
	}}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(g.serve))
	g.Config.ErrorLog = log.New(io.Discard, "", 0)
	g.Start()
	t.Cleanup(func() { g.CloseClientConnections(); g.Close() })
	return g
}

// onMessage sets what is done with each message of the protocol: forward takes
// it to the controller, at most once, and returns what that answered; only if
// the hook returns true does the sender hear of it.
func (g *gate) onMessage(hook func(m commit.Message, forward func() commit.Reply) (deliver bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = hook
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	hook := g.hook
	g.mu.Unlock()
	const prefix = "/protocol/"
	if hook == nil || len(r.URL.Path) <= len(prefix) || r.URL.Path[:len(prefix)] != prefix {
		g.proxy.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	m := commit.Message{Kind: commit.Kind(r.URL.Path[len(prefix):])}
	if err != nil || json.Unmarshal(body, &m) != nil {
		panic(http.ErrAbortHandler)
	}
	answer := httptest.NewRecorder()
	deliver := hook(m, func() (reply commit.Reply) {
		// Whoever sent it may learn from the log that it is done, and wait no longer.
		r := r.Clone(context.WithoutCancel(r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		g.proxy.ServeHTTP(answer, r)
		_ = json.Unmarshal(answer.Body.Bytes(), &reply)
		return reply
	})
	if !deliver {
		panic(http.ErrAbortHandler)
	}
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}
