package httpx

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Client makes the small control calls: protocol messages, heartbeats, lists.
// Bulk data has its own clients and its own transports, so that a full pipe
// never delays a heartbeat. The zero value is ready; set the fields before the
// first call. Safe for concurrent use; not to be copied.
type Client struct {
	// HTTP carries the calls; nil: a client of its own over ControlTransport,
	// which shares no connection with anybody. It should have no Timeout.
	HTTP *http.Client
	// Token, if not empty, is sent as the Bearer token of each call.
	Token string
	// Timeout bounds one call, the answer's body included; 0: 10 s. Negative:
	// none but the caller's ctx (long polls).
	Timeout time.Duration
	// MaxAnswer bounds an answer's body in bytes; 0: 16 MiB.
	MaxAnswer int64

	once sync.Once
	own  *http.Client
}

const (
	defaultTimeout   = 10 * time.Second
	defaultMaxAnswer = 16 << 20
)

// ControlTransport returns a transport for small calls: HTTP/1.1, quick to
// notice a peer that is not there, and few idle connections.
func ControlTransport() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   3 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       time.Minute,
		DisableCompression:    true,
	}
}

func (c *Client) client() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	c.once.Do(func() { c.own = &http.Client{Transport: ControlTransport()} })
	return c.own
}

// Close closes idle connections. The client stays usable.
func (c *Client) Close() { c.client().CloseIdleConnections() }

// GetJSON gets url into out. An answer outside 2xx is an *Error with the
// answer's status, code and message.
func (c *Client) GetJSON(ctx context.Context, url string, out any) error {
	return c.Call(ctx, http.MethodGet, url, nil, out)
}

// PostJSON posts in as JSON (nil: no body) and reads the answer into out (nil:
// ignored). An answer outside 2xx is an *Error.
func (c *Client) PostJSON(ctx context.Context, url string, in, out any) error {
	return c.Call(ctx, http.MethodPost, url, in, out)
}

// Call is the general form of GetJSON and PostJSON.
func (c *Client) Call(ctx context.Context, method, url string, in, out any) error {
	if c.Timeout >= 0 {
		timeout := c.Timeout
		if timeout == 0 {
			timeout = defaultTimeout
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	req, err := newRequest(ctx, method, url, in)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := c.readAnswer(res)
	if err != nil {
		return fmt.Errorf("httpx: %s %s: %w", method, url, err)
	}
	if out == nil || len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("httpx: %s %s: answer is not the JSON expected: %w", method, url, err)
	}
	return nil
}

func newRequest(ctx context.Context, method, url string, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("httpx: encode request: %w", err)
		}
		body = bytes.NewReader(data) // can be sent again after a redirect
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, fmt.Errorf("httpx: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

func (c *Client) readAnswer(res *http.Response) ([]byte, error) {
	most := c.MaxAnswer
	if most == 0 {
		most = defaultMaxAnswer
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("answer is larger than %d bytes", most)
	}
	return body, err
}

// Do sends a request with the token and returns a 2xx answer, whose body the
// caller closes; any other answer is an *Error. No timeout but that of the
// request's context: Do is for answers that are not JSON or not small.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	res, err := c.client().Do(req)
	if err != nil {
		return nil, fmt.Errorf("httpx: %w", err) // *url.Error names method and URL
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, readError(res)
}
