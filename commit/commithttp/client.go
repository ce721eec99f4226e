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

// patience is how long a controller has to answer before word that another one leads
// is believed instead.
const patience = 2 * time.Second

// maxHops bounds how many controllers one Send asks that are not in its list.
const maxHops = 4

// Client sends messages to the leader, and remembers which controller that is.
// Safe for concurrent use.
type Client struct {
	controllers []string
	http        httpx.Client
	timeout     time.Duration
	patience    time.Duration

	mu     sync.Mutex
	leader string // who led when last heard of, "" = not known
	first  int    // of controllers, where the next search begins
	asking map[*ask]struct{}
}

// ask is a controller that has been asked and has not answered.
type ask struct {
	url    string
	since  time.Time
	giveUp context.CancelFunc
}

// NewClient returns a client that looks for the leader among these controllers
// (base URLs, at least one), and wherever they say it is. Token is the cluster
// token, empty for none.
func NewClient(controllers []string, token string) *Client {
	c := &Client{timeout: sendTimeout, patience: patience, asking: map[*ask]struct{}{}}
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
// answer); "" = not known. Who has waited for another controller for a while asks this
// one instead: that one is frozen, or cut off.
func (c *Client) SetLeader(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = trim(url)
	for a := range c.asking {
		if c.leader != "" && a.url != c.leader && time.Since(a.since) >= c.patience {
			a.giveUp()
		}
	}
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

// silent has the next search begin behind a controller that did not answer: one that
// is frozen takes all the time of a Send, and the others would never be asked.
func (c *Client) silent(url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first < len(c.controllers) && c.controllers[c.first] == url {
		c.first = (c.first + 1) % len(c.controllers)
	}
}

// order lists the controllers, the leader as far as known first.
func (c *Client) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat([]string{c.leader}, c.controllers[c.first:], c.controllers[:c.first])
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
	queue := c.order()
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
		queue = slices.Insert(queue, 0, c.Leader()) // it may have become known meanwhile
		if _, answered := errors.AsType[*httpx.Error](err); !answered {
			c.silent(url)
		}
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &ask{url: url, since: time.Now(), giveUp: cancel}
	c.begin(a)
	defer c.end(a)
	err = c.http.PostJSON(ctx, url+"/protocol/"+string(m.Kind), m, &reply)
	if err == nil && reply.Status == "" {
		err = fmt.Errorf("%s answered without a status", url)
	}
	return reply, err
}

func (c *Client) begin(a *ask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking[a] = struct{}{}
}

func (c *Client) end(a *ask) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asking, a)
}

// isRefusal reports whether every controller would say the same: the message is
// malformed, or the token is wrong.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*httpx.Error](err)
	return ok && e.Status/100 == 4 && e.Status != http.StatusMisdirectedRequest && e.Status != http.StatusTooManyRequests
}
