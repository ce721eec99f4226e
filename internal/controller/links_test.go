package controller

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/deepstore/s3test"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// copied is a segment with a verified copy in a deep store, and its bytes.
func copied(t *testing.T, c *Controller, storeURI string) (*meta.Image, *meta.Segment, []byte) {
	t.Helper()
	store, err := c.deep.Store(storeURI)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("the bytes of a segment")
	pieces, digest, err := segment.HashFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	id := r.table("t", 1, forADay, func(cfg *meta.Config) { cfg.DeepStore = &meta.DeepStoreConfig{URI: storeURI} })
	done := r.log.Commit(t, meta.PartitionKey{Table: id}, 10)
	done.Info.Digest, done.Info.SizeBytes = digest, int64(len(data))
	r.do(meta.CommitSegment(done))
	s := r.log.Image.Segment(done.Key)
	key, err := deepstore.Upload(t.Context(), store, s.Name, bytes.NewReader(data), pieces)
	if err != nil {
		t.Fatal(err)
	}
	r.do(meta.SetDeepStoreLocation(done.Key, digest, deepstore.URI(storeURI, key), true))
	return r.log.Image, r.log.Image.Segment(done.Key), data
}

func read(t *testing.T, url string) []byte {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v: %s", res.Status, err, data)
	}
	return data
}

// Whoever may read a segment of the nodes can read it without them, and without
// credentials of the deep store.
func TestLinksLeadToTheDeepStore(t *testing.T) {
	gateway := s3test.Start(t)
	root := "s3://" + s3test.Bucket
	c := &Controller{log: zerolog.Nop(), deep: deepstore.NewOpener([]string{root},
		deepstore.S3Config{Endpoint: gateway.Endpoint(), Credentials: gateway.Credentials()})}
	im, s, data := copied(t, c, root+"/backup")

	w := httptest.NewRecorder()
	ok, err := c.redirectToDeepStore(w, httptest.NewRequest(http.MethodGet, "/", nil), im, s)
	if !ok || err != nil || w.Code != http.StatusTemporaryRedirect {
		t.Fatalf("GET: %v, %v, status %d", ok, err, w.Code)
	}
	if got := read(t, w.Header().Get("Location")); !bytes.Equal(got, data) {
		t.Errorf("the link leads to %q", got)
	}

	w = httptest.NewRecorder()
	ok, err = c.redirectToDeepStore(w, httptest.NewRequest(http.MethodHead, "/", nil), im, s)
	if h := w.Header(); !ok || err != nil || w.Code != http.StatusOK || h.Get("ETag") != s.Digest.ETag() ||
		h.Get("Content-Length") != strconv.Itoa(len(data)) || h.Get("Repr-Digest") == "" {
		t.Errorf("HEAD: %v, %v, status %d, %v", ok, err, w.Code, h)
	}

	view := segmentView(im, im.TableByName("t"), s)
	links := 0
	for _, src := range view.Sources {
		if src.Link != "" || src.PiecesLink != "" {
			t.Errorf("a view that nobody asked for links has %+v", src)
		}
	}
	c.linkSources(t.Context(), im, s, view.Sources)
	for _, src := range view.Sources {
		if src.Node != "" {
			if src.Link != "" {
				t.Errorf("a node has the link %s", src.Link)
			}
			continue
		}
		links++
		if got := read(t, src.Link); !bytes.Equal(got, data) {
			t.Errorf("the link leads to %q", got)
		}
		if pieces, err := segment.ParsePieces(read(t, src.PiecesLink), s.Digest); err != nil || pieces.Size != s.SizeBytes {
			t.Errorf("the link of the pieces: %+v, %v", pieces, err)
		}
	}
	if links != 1 {
		t.Errorf("%d links in %+v", links, view.Sources)
	}
}

// No link leads into a directory, or into a store that the table had before.
func TestNoLinkLeadsElsewhere(t *testing.T) {
	dir := t.TempDir()
	uri, err := deepstore.FileURI(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &Controller{log: zerolog.Nop(), deep: deepstore.NewOpener([]string{dir}, deepstore.S3Config{})}
	im, s, _ := copied(t, c, uri)
	for _, r := range []*http.Request{httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRequest(http.MethodHead, "/", nil)} {
		if ok, err := c.redirectToDeepStore(httptest.NewRecorder(), r, im, s); ok || err != nil {
			t.Errorf("%s: %v, %v", r.Method, ok, err)
		}
	}
	for _, uri := range []string{"s3://elsewhere/x", uri + "/../x"} {
		if data, pieces, err := c.link(t.Context(), im, s, uri); data != "" || pieces != "" || err != nil {
			t.Errorf("%s: %q, %q, %v", uri, data, pieces, err)
		}
	}
	sources := []api.SourceView{{URL: uri}}
	if c.linkSources(t.Context(), im, s, sources); sources[0].Link != "" {
		t.Errorf("%+v", sources)
	}
	// A store that this process may not open says why.
	c.deep = deepstore.NewOpener(nil, deepstore.S3Config{})
	if ok, err := c.redirectToDeepStore(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), im, s); ok || !errors.Is(err, deepstore.ErrNotAllowed) {
		t.Errorf("not allowed: %v, %v", ok, err)
	}
}
