package peerdl

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
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

// httpFetcher asks a peer that serves the resource with Serve.
type httpFetcher struct {
	client *http.Client
	url    string
	etag   string
	size   int64
}

// NewHTTPFetcher returns a Fetcher of the resource of that digest and size at
// url. The client must not have a total time-out.
func NewHTTPFetcher(client *http.Client, url string, digest segment.Digest, size int64) Fetcher {
	return &httpFetcher{client: client, url: strings.TrimSuffix(url, "/"), etag: digest.ETag(), size: size}
}

func (h *httpFetcher) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	header := http.Header{
		"Range":    {fmt.Sprintf("bytes=%d-%d", off, off+n-1)},
		"If-Match": {h.etag},
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
	if got := resp.Header.Get("ETag"); got != h.etag {
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
	resp, err := h.get(ctx, h.url+"/pieces", nil)
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
		return nil, fmt.Errorf("peerdl: source address: %w", err)
	}
	if header != nil {
		req.Header = header
	}
	return h.client.Do(req)
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
