package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/shoalstore/shoal/internal/httpx"
)

// HeaderLeader carries the leader's URL in an answer of a controller that does
// not lead.
const HeaderLeader = "Shoal-Leader"

// Client talks to the leading controller, whichever it is: it knows a list of
// controllers, remembers who led last, and follows their hints. One Client
// serves a whole process, so that what one call learns all calls know. Safe for
// concurrent use.
type Client struct {
	http *httpx.Client
	urls []string

	mu     sync.Mutex
	leader string // "" when nobody is known to lead
	first  int    // of urls, where the next search begins
}

// NewClient returns a client of the controllers at urls, base URLs without a
// path. It does no I/O.
func NewClient(h *httpx.Client, urls ...string) *Client {
	c := &Client{http: h}
	for _, u := range urls {
		c.urls = append(c.urls, strings.TrimRight(u, "/"))
	}
	return c
}

// Leader returns the URL of the controller that led when last heard of, or the
// first of the list when nothing is known.
func (c *Client) Leader() string { return c.order()[0] }

// Known reports whether a leader is known, by an answer or by Learn.
func (c *Client) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader != ""
}

// Learn takes a hint on who leads; "" says that who was thought to does not.
func (c *Client) Learn(leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = strings.TrimRight(leader, "/")
}

// Get reads path, with its query, from the leader into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.Call(ctx, http.MethodGet, path, nil, out)
}

// Post sends in to path on the leader and reads the answer into out.
func (c *Client) Post(ctx context.Context, path string, in, out any) error {
	return c.Call(ctx, http.MethodPost, path, in, out)
}

// Call asks the leader. It tries each controller at most once, and the leader
// that one of them names; what it returns when none answers names them all. An
// answer of the leader that is not a success is an *httpx.Error.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var failed []error
	tried := map[string]bool{}
	for queue := c.order(); len(queue) > 0 && ctx.Err() == nil; {
		url := queue[0]
		queue = queue[1:]
		if tried[url] {
			continue
		}
		tried[url] = true
		err := c.http.Call(ctx, method, url+path, in, out)
		var answer *httpx.Error
		switch {
		case err == nil:
			c.Learn(url)
			return nil
		case !errors.As(err, &answer): // nobody there
			c.lost(url)
			c.silent(url)
			failed = append(failed, err)
		case answer.Status == http.StatusMisdirectedRequest:
			c.lost(url)
			failed = append(failed, err)
			if hint := strings.TrimRight(answer.Header.Get(HeaderLeader), "/"); hint != "" {
				queue = append([]string{hint}, queue...)
			}
		default:
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		failed = append(failed, err)
	}
	return fmt.Errorf("api: no controller answered: %w", errors.Join(failed...))
}

// lost forgets the leader if it was this one.
func (c *Client) lost(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == url {
		c.leader = ""
	}
}

// silent has the next search begin behind a controller that did not answer: one that
// is frozen takes all the time that its caller has, and the others would never be
// asked.
func (c *Client) silent(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first < len(c.urls) && c.urls[c.first] == url {
		c.first = (c.first + 1) % len(c.urls)
	}
}

// order lists the controllers, the last known leader first.
func (c *Client) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	urls := slices.Concat(c.urls[c.first:], c.urls[:c.first])
	if c.leader == "" {
		return urls
	}
	return append([]string{c.leader}, urls...)
}
