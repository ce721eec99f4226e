package httpx_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/httpx"
)

// calling starts a server with one handler and a client for it.
func calling(t *testing.T, h http.HandlerFunc) (*httpx.Client, string) {
	t.Helper()
	server := httptest.NewServer(h)
	client := &httpx.Client{}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server.URL
}

type message struct {
	Text string `json:"text"`
}

func TestCalls(t *testing.T) {
	client, url := calling(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		httpx.WriteJSON(w, 200, message{r.Method + " " + r.Header.Get("Authorization") + " " + r.Header.Get("Content-Type") + " " + string(body)})
	})
	var got message
	must(t, client.GetJSON(t.Context(), url, &got))
	if got.Text != "GET   " {
		t.Errorf("got %q", got.Text)
	}
	client.Token = "sesame"
	must(t, client.PostJSON(t.Context(), url, message{"hi"}, &got))
	if got.Text != `POST Bearer sesame application/json {"text":"hi"}` {
		t.Errorf("got %q", got.Text)
	}
	must(t, client.PostJSON(t.Context(), url, nil, nil))
	must(t, client.Call(t.Context(), http.MethodDelete, url, nil, &got))
	if !strings.HasPrefix(got.Text, "DELETE") {
		t.Errorf("got %q", got.Text)
	}
}

func TestAnswersThatAreNoSuccess(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   httpx.Error
	}{
		{"a problem", func(w http.ResponseWriter, r *http.Request) {
			httpx.WriteError(w, httpx.Errorf(421, "NOT_LEADER", "ask the leader").WithHeader("Shoal-Leader", "http://b"))
		}, httpx.Error{Status: 421, Code: "NOT_LEADER", Message: "ask the leader"}},
		{"a problem of somebody else", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
			w.WriteHeader(409)
			io.WriteString(w, `{"title": "Conflict here", "extra": [1]}`)
		}, httpx.Error{Status: 409, Code: "HTTP_409", Message: "Conflict here"}},
		{"a proxy's page", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(502)
			io.WriteString(w, "<html>\n\tBad\x00 gateway</html>\n")
		}, httpx.Error{Status: 502, Code: "HTTP_502", Message: "<html> Bad gateway</html>"}},
		{"nothing", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) },
			httpx.Error{Status: 503, Code: "HTTP_503", Message: "Service Unavailable"}},
		{"a broken problem", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(400)
			io.WriteString(w, `{"code": `)
		}, httpx.Error{Status: 400, Code: "HTTP_400", Message: "Bad Request"}},
		{"a flood", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500); io.WriteString(w, long) },
			httpx.Error{Status: 500, Code: "HTTP_500", Message: long[:200] + "…"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, url := calling(t, c.answer)
			err := client.GetJSON(t.Context(), url, new(message))
			e, ok := errors.AsType[*httpx.Error](err)
			if !ok || e.Status != c.want.Status || e.Code != c.want.Code || e.Message != c.want.Message || e.Cause != nil {
				t.Fatalf("got %v, want %v", err, &c.want)
			}
			if c.want.Status == 421 && e.Header.Get("Shoal-Leader") != "http://b" {
				t.Errorf("headers %v", e.Header)
			}
		})
	}
}

func TestRedirectedPostCarriesItsBody(t *testing.T) {
	client, url := calling(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
			return
		}
		body, _ := io.ReadAll(r.Body)
		httpx.WriteJSON(w, 200, message{string(body)})
	})
	var got message
	must(t, client.PostJSON(t.Context(), url, message{"hi"}, &got))
	if got.Text != `{"text":"hi"}` {
		t.Fatalf("got %q", got.Text)
	}
}

func TestAnswersThatAreNotTheJSONExpected(t *testing.T) {
	client, url := calling(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat("x", 100)) })
	if err := client.GetJSON(t.Context(), url, new(message)); err == nil || !strings.Contains(err.Error(), url) {
		t.Errorf("got %v", err)
	}
	client.MaxAnswer = 99
	if err := client.GetJSON(t.Context(), url, new(message)); err == nil || !strings.Contains(err.Error(), "larger than 99 bytes") {
		t.Errorf("got %v", err)
	}
	if err := client.PostJSON(t.Context(), url, make(chan int), nil); err == nil {
		t.Error("posted a channel")
	}
	if err := client.GetJSON(t.Context(), ":", nil); err == nil {
		t.Error("called no URL")
	}
}

func TestCallsEnd(t *testing.T) {
	client, url := calling(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	client.Timeout = time.Millisecond
	if err := client.GetJSON(t.Context(), url, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a timeout: %v", err)
	}
	client.Timeout = -1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.GetJSON(ctx, url, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("without one: %v", err)
	}
}

func TestClientOfTheCaller(t *testing.T) {
	client, url := calling(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) })
	used := 0
	client.HTTP = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		used++
		return &http.Response{StatusCode: 204, Body: http.NoBody, Request: r}, nil
	})}
	var out message
	must(t, client.GetJSON(t.Context(), url, &out))
	if used != 1 {
		t.Fatalf("used %d times", used)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
