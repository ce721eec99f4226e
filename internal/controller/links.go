package controller

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/meta"
)

const (
	// linkLife is for how long a link to a deep-store copy can be opened. A request
	// that has begun goes on; who resumes later asks for another.
	linkLife = 15 * time.Minute
	// linkTimeout bounds the making of one: the credentials may have to be fetched.
	linkTimeout = 10 * time.Second
)

// link returns addresses by which somebody without credentials reads a deep-store
// copy and its piece list; none, if the store cannot give any. They are as good as
// the bytes, which the nodes give to whoever asks, and end by themselves; still
// they are not logged.
func (c *Controller) link(ctx context.Context, im *meta.Image, s *meta.Segment, uri string) (data, pieces string, err error) {
	cfg := im.CurrentConfig(s.Table)
	if cfg == nil || cfg.DeepStore == nil {
		return "", "", nil
	}
	key, err := deepstore.KeyOf(cfg.DeepStore.URI, uri)
	if err != nil {
		return "", "", nil // in a store that the table had before
	}
	store, err := c.deep.Store(cfg.DeepStore.URI)
	if err != nil {
		return "", "", err
	}
	presigner, ok := store.(deepstore.Presigner)
	if !ok {
		return "", "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	if data, err = presigner.PresignGet(ctx, key, linkLife); err != nil {
		return "", "", err
	}
	pieces, err = presigner.PresignGet(ctx, deepstore.PiecesKey(key), linkLife)
	return data, pieces, err
}

// linkSources adds the links of the deep-store copies to a view. Without them a
// reader still has the nodes, so what is in the way is only logged.
func (c *Controller) linkSources(ctx context.Context, im *meta.Image, s *meta.Segment, sources []api.SourceView) {
	for i := range sources {
		if src := &sources[i]; src.Node == "" {
			var err error
			if src.Link, src.PiecesLink, err = c.link(ctx, im, s, src.URL); err != nil {
				c.log.Warn().Err(err).Str("segment", s.Name).Msg("no link to the deep-store copy can be given")
			}
		}
	}
}

// redirectToDeepStore sends a reader to a deep-store copy, and reports whether
// there is one that a link leads to. A link is signed for GET, so a HEAD is answered
// here, from the record.
func (c *Controller) redirectToDeepStore(w http.ResponseWriter, r *http.Request, im *meta.Image, s *meta.Segment) (ok bool, err error) {
	for _, src := range meta.Sources(im, s, meta.PeersFirst, "") {
		if src.URI == "" {
			continue
		}
		link, _, linkErr := c.link(r.Context(), im, s, src.URI)
		switch {
		case linkErr != nil:
			err = linkErr
		case link != "" && r.Method == http.MethodHead:
			h := w.Header()
			h.Set("ETag", s.Digest.ETag())
			h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(s.SHA256[:])+":")
			h.Set("Content-Length", strconv.FormatInt(s.SizeBytes, 10))
			w.WriteHeader(http.StatusOK)
			return true, nil
		case link != "":
			http.Redirect(w, r, link, http.StatusTemporaryRedirect)
			return true, nil
		}
	}
	return false, err
}
