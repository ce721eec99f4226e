// Package peerdl moves immutable bytes between peers over HTTP: sealed segments,
// and snapshots of the metadata. One handler serves them, one downloader fetches
// them.
//
// It owns the chunk path of the HTTP interface (docs/format/chunks.md), the
// choice of who is asked for which piece (plan.go, pure), the verification of
// each piece before it is written, and the .part with its journal. It knows
// nothing of tables, records or routes: callers give it a Resource to serve, or
// a digest and a list of sources. It publishes nothing; segment.Store does.
//
// To serve, start reading here; to fetch, at download.go, then plan.go.
package peerdl

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// The limits of ?maxBytes (METALOG, FetchSnapshot). A plain ranged GET has none.
const (
	MaxChunk     = 4 << 20
	DefaultChunk = 1 << 20
)

// The codes that a server answers with.
const (
	CodePositionOutOfRange = "POSITION_OUT_OF_RANGE" // 416
	CodeTooManySends       = "TOO_MANY_SENDS"        // 503 with Retry-After
)

// ContinueHeader tells the reader of a chunk whether more follows it.
const ContinueHeader = "Shoal-Continue"

// Resource is something immutable that can be served.
type Resource interface {
	Size() int64
	Digest() segment.Digest
	// Open opens the bytes and the piece list and pins both until release is
	// called. The file is closed by Serve. On the operating system it must be
	// the bare *os.File, so that the kernel can send it.
	Open() (file vfs.File, pieces *segment.Pieces, release func(), err error)
}

// Options are what a server knows beside the resource itself.
type Options struct {
	// SHA256 becomes Repr-Digest; zero: not known.
	SHA256 segment.SHA256
	// ModTime becomes Last-Modified; zero: left out.
	ModTime time.Time
	// ContentType of the whole; empty: application/octet-stream.
	ContentType string
	// Limiter caps the sends at a time; nil: no cap.
	Limiter *Limiter
	// Rate is the budget of what is sent; nil: no limit.
	Rate    *Rate
	Metrics *Metrics // nil: none
}

// Serve answers GET and HEAD for the bytes of a resource: plain, by Range, or by
// ?position=&maxBytes=. Register it on a bare route of a plaintext HTTP/1.1
// server: a middleware that wraps the ResponseWriter costs the sendfile.
//
// An error that it returns before the header is for httpx.Handler to answer.
// One after the header means that what was sent is short, and the connection
// must be cut; a reader that went away is no error.
func Serve(w http.ResponseWriter, r *http.Request, res Resource, opts Options) error {
	chunk, isChunk, err := parseChunk(r.URL.Query(), res.Size())
	if err != nil {
		return err
	}
	if r.Method == http.MethodGet {
		free, ok := opts.Limiter.acquire()
		if !ok {
			opts.Metrics.countRefused()
			return tooBusy()
		}
		defer free()
		defer opts.Metrics.countSending()()
	}
	f, _, release, err := res.Open()
	if err != nil {
		return err
	}
	defer release()
	defer f.Close()
	if err := checkSize(f, res.Size()); err != nil {
		return err
	}

	setHeader(w.Header(), res, opts)
	out := newSender(w, r, opts)
	if isChunk {
		serveChunk(out, r, f, chunk, res.Size())
	} else {
		refuseLastZero(r.Header, res.Size())
		http.ServeContent(out, r, "", opts.ModTime, f)
	}
	return out.failure(r)
}

// refuseLastZero replaces the last 0 bytes (bytes=-0) in a Range, which cannot be
// satisfied (RFC 9110, 14.1.2), by what http.ServeContent knows to be so: by
// itself it would answer 206 with an empty body. It stays in charge of the rest,
// If-Range among it.
func refuseLastZero(h http.Header, size int64) {
	ranges, ok := strings.CutPrefix(h.Get("Range"), "bytes=")
	if !ok {
		return
	}
	specs := strings.Split(ranges, ",")
	for i, spec := range specs {
		first, last, _ := strings.Cut(spec, "-") // read as http.ServeContent does
		if n, err := strconv.ParseInt(textproto.TrimString(last), 10, 64); err == nil && n == 0 && textproto.TrimString(first) == "" {
			specs[i] = strconv.FormatInt(size, 10) + "-"
		}
	}
	h.Set("Range", "bytes="+strings.Join(specs, ","))
}

func setHeader(h http.Header, res Resource, opts Options) {
	h.Set("ETag", res.Digest().ETag())
	h.Set("Content-Type", opts.ContentType)
	if opts.ContentType == "" {
		// Set in any case: otherwise net/http reads the head of the file to guess.
		h.Set("Content-Type", "application/octet-stream")
	}
	if opts.SHA256 != (segment.SHA256{}) {
		h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(opts.SHA256[:])+":")
	}
	// The bytes at an address may differ between builds of one segment; the
	// ETag tells.
	h.Set("Cache-Control", "no-cache")
}

// chunkRange is [off, off+n).
type chunkRange struct{ off, n int64 }

// parseChunk reads ?position= and ?maxBytes=; ok is false if neither is there.
func parseChunk(q url.Values, size int64) (c chunkRange, ok bool, err error) {
	if !q.Has("position") && !q.Has("maxBytes") {
		return c, false, nil
	}
	if c.off, err = intParam(q, "position", 0); err != nil {
		return c, false, err
	}
	most, err := intParam(q, "maxBytes", DefaultChunk)
	if err != nil {
		return c, false, err
	}
	if most <= 0 {
		return c, false, httpx.Errorf(http.StatusBadRequest, httpx.CodeInvalidRequest, "maxBytes is %d, must be above 0", most)
	}
	if c.off < 0 || c.off >= size {
		return c, false, httpx.Errorf(http.StatusRequestedRangeNotSatisfiable, CodePositionOutOfRange,
			"position is %d, the size is %d", c.off, size).WithHeader("Content-Range", fmt.Sprintf("bytes */%d", size))
	}
	c.n = min(most, MaxChunk, size-c.off)
	return c, true, nil
}

func intParam(q url.Values, name string, def int64) (int64, error) {
	if !q.Has(name) {
		return def, nil
	}
	v, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return 0, httpx.Errorf(http.StatusBadRequest, httpx.CodeInvalidRequest, "%s=%q is not a whole number", name, clip(q.Get(name)))
	}
	return v, nil
}

func serveChunk(w *sender, r *http.Request, f vfs.File, c chunkRange, size int64) {
	h := w.Header()
	h.Set("Content-Length", strconv.FormatInt(c.n, 10))
	h.Set("Content-Range", contentRange(c.off, c.n, size))
	h.Set(ContinueHeader, strconv.FormatBool(c.off+c.n < size))
	if _, err := f.Seek(c.off, io.SeekStart); err != nil {
		w.err = err
		return
	}
	w.WriteHeader(http.StatusPartialContent)
	if r.Method != http.MethodHead {
		io.CopyN(w, f, c.n) // the sender keeps the error
	}
}

// ServePieces answers GET and HEAD for the sidecar of a resource.
func ServePieces(w http.ResponseWriter, r *http.Request, res Resource, opts Options) error {
	f, pieces, release, err := res.Open()
	if err != nil {
		return err
	}
	defer release()
	defer f.Close()
	data, err := pieces.MarshalBinary()
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("ETag", `"pieces-`+res.Digest().String()+`"`)
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-cache")
	out := newSender(w, r, opts)
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(data))
	return out.failure(r)
}

// checkSize keeps a truncated file from being served as a whole and shorter one.
func checkSize(f vfs.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("peerdl: %w", err)
	}
	if info.Size() != size {
		return fmt.Errorf("peerdl: %s has %d bytes, its record says %d", f.Name(), info.Size(), size)
	}
	return nil
}
