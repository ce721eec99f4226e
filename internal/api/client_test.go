package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
)

// controller answers as the leader, or names it.
func controller(t *testing.T, leader func() string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l := leader(); l != "http://"+r.Host {
			w.Header().Set(HeaderLeader, l)
			httpx.WriteError(w, httpx.Errorf(http.StatusMisdirectedRequest, CodeNotLeader, "the leader is %s", l))
			return
		}
		_ = httpx.WriteJSON(w, http.StatusOK, LeaderView{Leader: "http://" + r.Host})
	}))
	t.Cleanup(s.Close)
	return s
}

func TestClientFollowsTheLeader(t *testing.T) {
	var leader string
	a, b := controller(t, func() string { return leader }), controller(t, func() string { return leader })
	leader = b.URL
	c := NewClient(&httpx.Client{}, a.URL+"/")

	for range 2 {
		var v LeaderView
		if err := c.Get(context.Background(), "/leader", &v); err != nil || v.Leader != b.URL || c.Leader() != b.URL {
			t.Fatalf("got %+v, %v, leader %s; want the answer of %s", v, err, c.Leader(), b.URL)
		}
	}
	leader = a.URL
	var v LeaderView
	if err := c.Get(context.Background(), "/leader", &v); err != nil || v.Leader != a.URL {
		t.Fatalf("after a change of leader: got %+v, %v; want the answer of %s", v, err, a.URL)
	}
	c.Learn(httpxtest.Refusing(t)) // not b's, which is free for somebody else once b is closed
	if err := c.Get(context.Background(), "/leader", &v); err != nil || v.Leader != a.URL {
		t.Fatalf("after the death of the last leader: got %+v, %v", v, err)
	}
}

func TestClientGivesUp(t *testing.T) {
	dead := httpxtest.Refusing(t)
	lost := controller(t, func() string { return dead })
	c := NewClient(&httpx.Client{}, lost.URL, dead)
	err := c.Get(context.Background(), "/leader", nil)
	if err == nil || !strings.Contains(err.Error(), dead) || !strings.Contains(err.Error(), CodeNotLeader) || c.Known() {
		t.Fatalf("got %v; want what each controller said, and no known leader", err)
	}
}

func TestClientReturnsTheLeadersRefusal(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpx.WriteError(w, httpx.Errorf(http.StatusNotFound, CodeTableNotFound, "no table %q", "x"))
	}))
	defer s.Close()
	err := NewClient(&httpx.Client{}, s.URL).Get(context.Background(), "/tables/x", nil)
	var answer *httpx.Error
	if !errors.As(err, &answer) || answer.Code != CodeTableNotFound {
		t.Fatalf("got %v; want %s", err, CodeTableNotFound)
	}
}
