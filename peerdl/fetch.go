package peerdl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shoalstore/shoal/segment"
)

// NewTransport returns a transport for bulk transfers: HTTP/1.1 only (h2 costs
// half the throughput, FIELD-NOTES), one connection per range, no compression.
// Its time-outs cover the silence before the first byte; the silence between
// bytes is the downloader's.
//
// The read buffer stays small on purpose: a body is read with buffers larger
// than it, which then bypass it, so only what came with the header is copied
// twice.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		Protocols:             protocols,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		ReadBufferSize:        4 << 10,
	}
}

// httpFetcher reads a resource over HTTP.
type httpFetcher struct {
	client *http.Client
	url    string
	pieces string // address of the sidecar; "": there is none
	etag   string // that answers must have; "": any
	size   int64
}

// NewHTTPFetcher returns a Fetcher of the resource of that digest and size at
// url, from a peer that serves it with Serve. The client must not have a total
// time-out.
func NewHTTPFetcher(client *http.Client, url string, digest segment.Digest, size int64) Fetcher {
	url = strings.TrimSuffix(url, "/")
	return &httpFetcher{client: client, url: url, pieces: url + "/pieces", etag: digest.ETag(), size: size}
}

// NewLinkFetcher returns a Fetcher of a resource of that size at any address that
// answers ranges, such as a presigned link of an object: its ETag, if it has one,
// is not ours and says nothing. Its sidecar, if there is one, is at an address of
// its own; without one (""), another source has to give the piece list. Neither
// address is told in an error: it may be as good as a password.
func NewLinkFetcher(client *http.Client, url, pieces string, size int64) Fetcher {
	return &httpFetcher{client: client, url: url, pieces: pieces, size: size}
}

func (h *httpFetcher) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+n-1)}}
	if h.etag != "" {
		header.Set("If-Match", h.etag)
	}
	resp, err := h.get(ctx, h.url, header)
	if err != nil {
		return nil, err
	}
	if err := h.check(resp, off, n); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp.Body, nil
}

// check insists on the very range of the very resource. A 200 with the whole
// file would be accepted by a lazier client and then copied from the wrong
// offset.
func (h *httpFetcher) check(resp *http.Response, off, n int64) error {
	if resp.StatusCode == http.StatusPreconditionFailed {
		return &DeceptionError{What: "holds another version (412)", Lasting: true}
	}
	if resp.StatusCode != http.StatusPartialContent {
		return statusError(resp)
	}
	if got := resp.Header.Get("ETag"); h.etag != "" && got != h.etag {
		return &DeceptionError{What: fmt.Sprintf("sent ETag %s, want %s", clip(got), h.etag), Lasting: true}
	}
	want := contentRange(off, n, h.size)
	if got := resp.Header.Get("Content-Range"); got != want {
		return &DeceptionError{What: fmt.Sprintf("sent Content-Range %q, want %q", clip(got), want)}
	}
	if resp.ContentLength >= 0 && resp.ContentLength != n {
		return &DeceptionError{What: fmt.Sprintf("sent Content-Length %d for %d bytes", resp.ContentLength, n)}
	}
	return nil
}

func (h *httpFetcher) Pieces(ctx context.Context) (io.ReadCloser, error) {
	if h.pieces == "" {
		return nil, fmt.Errorf("has no piece list of its own: %w", fs.ErrNotExist)
	}
	resp, err := h.get(ctx, h.pieces, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, statusError(resp)
	}
	return resp.Body, nil
}

func (h *httpFetcher) get(ctx context.Context, url string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("peerdl: source address: %w", withoutURL(err))
	}
	if header != nil {
		req.Header = header
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	return resp, nil
}

// withoutURL is what went wrong, without the address that it went wrong at: the
// source's name says which it is, and a presigned link is a secret.
func withoutURL(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// statusError translates an answer that is not the bytes that were asked for.
func statusError(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("answered %s: %w", resp.Status, fs.ErrNotExist)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		if after, ok := retryAfter(resp.Header.Get("Retry-After")); ok {
			return &BusyError{RetryAfter: after}
		}
	case http.StatusOK:
		return &DeceptionError{What: "answered 200 to a ranged request"}
	case http.StatusPartialContent:
		return &DeceptionError{What: "answered 206 to a plain request"}
	}
	// What the server says may help a person, but it comes from outside.
	detail, _ := io.ReadAll(io.LimitReader(resp.Body, 256))
	return fmt.Errorf("answered %s: %s", resp.Status, clip(strings.TrimSpace(string(detail))))
}

// retryAfter reads the form in seconds; the form with a date depends on two
// clocks and is taken as one second.
func retryAfter(v string) (time.Duration, bool) {
	if v == "" {
		return 0, false
	}
	seconds, err := strconv.Atoi(v)
	if err != nil || seconds < 0 {
		return time.Second, true
	}
	return time.Duration(min(seconds, 60)) * time.Second, true
}

func contentRange(off, n, size int64) string {
	return fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, size)
}

func clip(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
