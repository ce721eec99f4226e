package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// wanted is what is to be downloaded, and from where.
type wanted struct {
	digest  segment.Digest
	size    int64
	sources []peerdl.Source
	roots   []io.Closer // of local deep stores that are read
}

func (w *wanted) close() error {
	var errs []error
	for _, r := range w.roots {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// find learns what the bytes must be and who has them: from the record, or from
// the nodes that were named.
func (c segmentsGet) find(ctx context.Context, a *app) (*wanted, error) {
	if len(c.Node) > 0 {
		return c.findAt(ctx, a)
	}
	var s life
	if err := a.control.Get(ctx, segmentPath(c.Table, c.Segment, "metadata")+"?links=true", &s); err != nil {
		var answer *httpx.Error
		if leaderAnswered := errors.As(err, &answer) && answer.Status != http.StatusMisdirectedRequest; !leaderAnswered && ctx.Err() == nil {
			err = fmt.Errorf("%w\nwithout a controller, name nodes that have the segment: --node http://HOST:PORT", err)
		}
		return nil, err
	}
	if s.Status != meta.SegmentDone {
		return nil, no("segment %s is %s: there are no bytes to get", c.Segment, s.Status)
	}
	w := &wanted{digest: s.Digest, size: s.SizeBytes}
	for _, src := range s.Sources {
		if err := w.add(a, src, c.DeepstoreRoot); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if len(w.sources) == 0 {
		return nil, fmt.Errorf("no copy of segment %s can be reached from here (file:// deep stores need --deepstore-root); its copies: %s", c.Segment, sourceList(s.Sources))
	}
	return w, nil
}

// add takes a copy as a source, if it is one that can be reached: a node, a link
// that the controller gave, or a file below one of the roots.
func (w *wanted) add(a *app, src api.SourceView, roots []string) error {
	switch {
	case src.Node != "":
		w.sources = append(w.sources, peerdl.Source{Name: src.Node, URL: src.URL, Zone: src.Zone})
	case src.Link != "":
		w.sources = append(w.sources, peerdl.Source{
			Name: src.URL, DeepStore: true, Fetcher: peerdl.NewLinkFetcher(a.bulk.HTTP, src.Link, src.PiecesLink, w.size),
		})
	default:
		file, root, err := openLocal(src.URL, roots)
		if err != nil || file == nil {
			return err
		}
		w.roots = append(w.roots, root)
		w.sources = append(w.sources, peerdl.Source{Name: src.URL, DeepStore: true, Fetcher: file})
	}
	return nil
}

// localCopy is a copy in the directory of a file:// deep store. It is only read,
// so the store itself need not be opened.
type localCopy struct {
	root vfs.FS
	name string
}

// openLocal returns the copy that a file:// URI names, if it is below one of the
// roots; else none.
func openLocal(uri string, roots []string) (peerdl.Fetcher, io.Closer, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" {
		return nil, nil, nil
	}
	for _, dir := range roots {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return nil, nil, err
		}
		name, err := filepath.Rel(dir, filepath.FromSlash(u.Path))
		if err != nil || !filepath.IsLocal(name) {
			continue
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, nil, usageError{fmt.Errorf("--deepstore-root: there is no directory %s", dir)}
		}
		root, err := vfs.OS(dir)
		if err != nil {
			return nil, nil, err
		}
		return localCopy{root: root, name: filepath.ToSlash(name)}, root.(io.Closer), nil
	}
	return nil, nil, nil
}

func (l localCopy) Fetch(_ context.Context, off, n int64) (io.ReadCloser, error) {
	f, err := l.root.Open(l.name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, off, n), f}, nil
}

func (l localCopy) Pieces(context.Context) (io.ReadCloser, error) {
	return l.root.Open(strings.TrimSuffix(l.name, ".parquet") + ".pieces")
}

func sourceList(sources []api.SourceView) string {
	var urls []string
	for _, s := range sources {
		urls = append(urls, s.URL)
	}
	if len(urls) == 0 {
		return "none"
	}
	return strings.Join(urls, " ")
}

// findAt asks the nodes that were named. One that does not answer is left out if
// another does; those that do must mean the same bytes.
func (c segmentsGet) findAt(ctx context.Context, a *app) (*wanted, error) {
	var w *wanted
	var errs []error
	for _, node := range c.Node {
		if u, err := url.Parse(node); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usageError{fmt.Errorf("--node %s: it wants the URL of a node, http://HOST:PORT", config.WithoutSecrets(node))}
		}
		u := strings.TrimRight(node, "/") + segmentPath(c.Table, c.Segment)
		node = config.WithoutSecrets(node)
		digest, size, err := a.head(ctx, u)
		var answer *httpx.Error
		switch {
		case errors.As(err, &answer):
			// An answer to HEAD has no body that could say more.
			what := fmt.Sprintf("answers %d to the question for segment %s of table %s", answer.Status, c.Segment, c.Table)
			if answer.Status == http.StatusNotFound {
				what = fmt.Sprintf("has no segment %s of table %s", c.Segment, c.Table)
			}
			errs = append(errs, fmt.Errorf("%s %s", node, what))
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", node, err))
			continue
		case w == nil:
			w = &wanted{digest: digest, size: size}
		case digest != w.digest || size != w.size:
			return nil, no("the nodes have different bytes: %s has blake3 %s, %s has %s; name only those that have the ones you want", w.sources[0].Name, w.digest, node, digest)
		}
		w.sources = append(w.sources, peerdl.Source{Name: node, URL: u})
	}
	if w == nil {
		return nil, errors.Join(errs...)
	}
	for _, err := range errs {
		fmt.Fprintf(a.Err, "shoal: left out: %s\n", message(err))
	}
	return w, nil
}

// head is what a node says of its copy.
func (a *app) head(ctx context.Context, u string) (digest segment.Digest, size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, u, nil)
	if err != nil {
		return digest, 0, usageError{err}
	}
	res, err := a.http.Do(req)
	if err != nil {
		return digest, 0, err
	}
	defer res.Body.Close()
	if digest, err = segment.ParseETag(res.Header.Get("ETag")); err != nil {
		return digest, 0, err
	}
	if size, err = strconv.ParseInt(res.Header.Get("Content-Length"), 10, 64); err != nil {
		return digest, 0, errors.New("it does not say how large the segment is")
	}
	return digest, size, nil
}
