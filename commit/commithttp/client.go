package commithttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/internal/httpx"
)

// sendTimeout bounds one Send over all the controllers it asks. The metadata
// write of a commitEnd happens within it; one that is slower goes on all the
// same, and the repeat learns its outcome.
const sendTimeout = 20 * time.Second

// maxHops bounds how many controllers one Send asks that are not in its list.
const maxHops = 4

// Client sends messages to the leader, and remembers which controller that is.
// Safe for concurrent use.
type Client struct {
	controllers []string
	http        httpx.Client
	timeout     time.Duration

	mu     sync.Mutex
	leader string // who led when last heard of, "" = not known
}

// NewClient returns a client that looks for the leader among these controllers
// (base URLs, at least one), and wherever they say it is. Token is the cluster
// token, empty for none.
func NewClient(controllers []string, token string) *Client {
	c := &Client{timeout: sendTimeout}
	for _, url := range controllers {
		c.controllers = append(c.controllers, trim(url))
	}
	c.http.Token = token
	c.http.Timeout = -1 // Send has its own
	return c
}

func trim(url string) string { return strings.TrimRight(url, "/") }

// Leader returns the URL of the leader as far as known, else "".
func (c *Client) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

// SetLeader tells the client who leads, as learnt elsewhere (a heartbeat's
// answer); "" = not known.
func (c *Client) SetLeader(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = trim(url)
}

// forget drops the leader if it still is this one: somebody may have found
// another one meanwhile.
func (c *Client) forget(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader == url {
		c.leader = ""
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.Close() }

// Send sends the message to the leader and returns its answer: first to the
// controller that led last, then along what NOT_LEADER says and down the list,
// to each at most once. NOT_LEADER comes back only if nobody led. An error means
// that there was no answer: the message may have taken effect or not.
func (c *Client) Send(ctx context.Context, m commit.Message) (commit.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()

	var errs []error
	var notLeader commit.Reply
	queue := slices.Concat([]string{c.Leader()}, c.controllers)
	asked := map[string]bool{"": true}
	for len(queue) > 0 {
		url := queue[0]
		queue = queue[1:]
		if asked[url] || len(asked) > len(c.controllers)+maxHops {
			continue
		}
		asked[url] = true

		reply, err := c.post(ctx, url, m)
		if err == nil && reply.Status != commit.NotLeader {
			c.SetLeader(url)
			return reply, nil
		}
		c.forget(url)
		if err == nil {
			notLeader = reply
			queue = slices.Insert(queue, 0, trim(reply.Leader))
			continue
		}
		errs = append(errs, err)
		if ctx.Err() != nil || isRefusal(err) {
			break
		}
	}
	if len(errs) == 0 {
		return notLeader, nil
	}
	return commit.Reply{}, fmt.Errorf("commithttp: no answer to %s of %s: %w", m.Kind, m.Segment, errors.Join(errs...))
}

func (c *Client) post(ctx context.Context, url string, m commit.Message) (reply commit.Reply, err error) {
	err = c.http.PostJSON(ctx, url+"/protocol/"+string(m.Kind), m, &reply)
	if err == nil && reply.Status == "" {
		err = fmt.Errorf("%s answered without a status", url)
	}
	return reply, err
}

// isRefusal reports whether every controller would say the same: the message is
// malformed, or the token is wrong.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*httpx.Error](err)
	return ok && e.Status/100 == 4 && e.Status != http.StatusMisdirectedRequest && e.Status != http.StatusTooManyRequests
}
