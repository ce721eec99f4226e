package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/schedule"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// Moving a segment's bytes: into the store from a builder, from peers or from
// the stream, and out of it into the deep store. Each is one straight line; what
// is to be done when is decided elsewhere.

var (
	errNoSource = errors.New("node: no node or deep store has a copy that counts")
	errNotDone  = errors.New("node: the image does not show the segment committed with that digest")
)

// isSourceless tells that nobody gave the bytes from everything else that can go
// wrong with a download.
func isSourceless(err error) bool {
	var none *peerdl.NoSourceError
	return errors.Is(err, errNoSource) || errors.As(err, &none)
}

// committed finds the record of a committed segment.
func (n *Node) committed(k meta.SegmentKey, d segment.Digest) (*meta.Image, *meta.Segment, error) {
	im := n.currentImage()
	s := im.Segment(k)
	if s == nil || s.Status != meta.SegmentDone || s.Digest != d {
		return nil, nil, fmt.Errorf("%w: %s, %s", errNotDone, k, d)
	}
	return im, s, nil
}

// fetchSegment downloads a committed segment and installs it. If it is held
// already there is nothing to do. Two calls for one segment take turns.
func (n *Node) fetchSegment(ctx context.Context, k meta.SegmentKey, d segment.Digest) error {
	unlock, err := n.fetching.lock(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	im, s, err := n.committed(k, d)
	if err != nil {
		return err
	}
	if _, ok := n.store.Get(s.Table, s.Partition, s.Name, d); ok {
		return nil
	}
	sources := n.sources(im, s)
	if len(sources) == 0 {
		return fmt.Errorf("%w: %s", errNoSource, s.Name)
	}
	part, err := n.store.DownloadPath(s.Table, s.Partition, s.Name, d)
	if err != nil {
		return err
	}
	res, err := n.downloader.Download(ctx, peerdl.Request{
		Digest: d, Size: s.SizeBytes, Sources: sources, Zone: n.cfg.Zone,
		FS: n.fs, Part: part, Reserve: n.store.Reserve,
	})
	if err != nil {
		n.noteFatal(err)
		return err
	}
	if _, err := n.store.Publish(res.File, part, s.Table, s.Partition, s.Name, res.Pieces, d); err != nil {
		n.noteFatal(err)
		return err
	}
	if err := peerdl.Forget(n.fs, part); err != nil {
		n.log.Warn().Err(err).Msg("leftovers of a download stay until the next start")
	}
	n.copies.storeChanged(k)
	return nil
}

// sources are where the segment can be fetched, ranked by the table's policy.
func (n *Node) sources(im *meta.Image, s *meta.Segment) []peerdl.Source {
	policy, store := meta.DeepStoreFirst, ""
	if cfg := im.CurrentConfig(s.Table); cfg != nil {
		policy = cfg.Download
		if cfg.DeepStore != nil {
			store = cfg.DeepStore.URI
		}
	}
	t := im.Table(s.Table)
	if t == nil {
		return nil
	}
	var out []peerdl.Source
	for _, src := range meta.Sources(im, s, policy, n.cfg.ID) {
		p := peerdl.Source{Name: src.Node, Zone: src.Zone}
		if src.Node != "" {
			p.URL = src.URL + api.SegmentPath(t.Name, s.Name)
		} else {
			object, err := n.object(store, src.URI)
			if err != nil {
				n.log.Warn().Err(err).Str("segment", s.Name).Msg("deep-store copy cannot be used as a source")
				continue
			}
			p.Name, p.Fetcher, p.Zone, p.DeepStore = src.URI, object, n.cfg.Zone, true
		}
		if policy != meta.BothAtOnce && isSecond(policy, src) {
			p.Rank = 1
		}
		out = append(out, p)
	}
	return out
}

// isSecond reports whether a source is only asked when none of the other kind
// can be.
func isSecond(policy meta.DownloadPolicy, src meta.Source) bool {
	return (src.URI != "") == (policy == meta.PeersFirst)
}

func (n *Node) object(store, uri string) (deepstore.Object, error) {
	s, err := n.deep.Store(store)
	if err != nil {
		return deepstore.Object{}, err
	}
	key, err := deepstore.KeyOf(store, uri)
	return deepstore.Object{Store: s, Key: key}, err
}

// sealAndPublish finishes a builder's file and makes it a copy in the store.
func (n *Node) sealAndPublish(s *meta.Segment, b *segment.Builder, f vfs.File, path string, end int64) (segment.Info, error) {
	sealed, err := b.Seal(end)
	if err != nil {
		err = errors.Join(fmt.Errorf("seal %s: %w", s.Name, err), f.Close(), n.store.Discard(path))
		n.noteFatal(err)
		return segment.Info{}, err
	}
	if _, err := n.store.Publish(f, path, s.Table, s.Partition, s.Name, sealed.Pieces, sealed.Digest); err != nil {
		n.noteFatal(err)
		return segment.Info{}, errors.Join(err, n.store.Discard(path))
	}
	n.copies.storeChanged(s.SegmentKey())
	n.background.Go(func() { n.forgetDownload(s, sealed.Digest) })
	return sealed.Info, nil
}

// forgetDownload removes what a download of a copy left that came about in
// another way meanwhile. It waits for one that is still under way: no later one
// begins, as the copy is held.
func (n *Node) forgetDownload(s *meta.Segment, d segment.Digest) {
	unlock, err := n.fetching.lock(n.life, s.SegmentKey())
	if err != nil {
		return // the next start sweeps it
	}
	defer unlock()
	part, err := n.store.DownloadPath(s.Table, s.Partition, s.Name, d)
	if err == nil {
		err = peerdl.Forget(n.fs, part)
	}
	if err != nil {
		n.log.Warn().Err(err).Str("segment", s.Name).Msg("leftovers of a download stay until the next start")
	}
}

// uploadTimeout bounds one upload.
func uploadTimeout(sizeBytes int64) time.Duration { return time.Minute + schedule.ForBytes(sizeBytes) }

// uploadHeld puts the held copy of a committed segment into its table's deep
// store and returns its URI.
func (n *Node) uploadHeld(ctx context.Context, k meta.SegmentKey, d segment.Digest) (string, error) {
	im, s, err := n.committed(k, d)
	if err != nil {
		return "", err
	}
	cfg := im.CurrentConfig(s.Table)
	if cfg == nil {
		return "", fmt.Errorf("node: table %s has no configuration", s.Table)
	}
	return n.uploadSegment(ctx, s, cfg, d)
}

func (n *Node) uploadSegment(ctx context.Context, s *meta.Segment, cfg *meta.Config, d segment.Digest) (string, error) {
	if cfg.DeepStore == nil {
		return "", errors.New("node: the table has no deep store")
	}
	store, err := n.deep.Store(cfg.DeepStore.URI)
	if err != nil {
		return "", err
	}
	held, ok := n.store.Get(s.Table, s.Partition, s.Name, d)
	if !ok {
		return "", fmt.Errorf("%w: %s with digest %s", segment.ErrNotHeld, s.Name, d)
	}
	f, pieces, release, err := n.store.Open(held)
	if err != nil {
		return "", err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout(held.SizeBytes))
	defer cancel()
	key, err := deepstore.Upload(ctx, store, s.Name, f, pieces)
	if errors.Is(err, deepstore.ErrBadSource) {
		n.suspect(held)
	}
	if err != nil {
		return "", err
	}
	return deepstore.URI(cfg.DeepStore.URI, key), nil
}

// rebuildSegment builds a committed segment again from the stream, because
// nobody has its bytes to give. The same rows give the same bytes on the same
// class of machine; a file that differs is kept beside (DESIGN §4.5).
func (n *Node) rebuildSegment(ctx context.Context, k meta.SegmentKey) error {
	im := n.currentImage()
	s, t := im.Segment(k), im.Table(k.Table)
	if s == nil || t == nil || s.Status != meta.SegmentDone {
		return fmt.Errorf("%w: %s", errNotDone, k)
	}
	cfg := im.CurrentConfig(s.Table)
	if v := im.TableConfig(s.Table, s.ConfigVersion); v != nil {
		cfg = &v.Config
	}
	source, err := n.streams.Source(cfg.Stream)
	if err != nil {
		return err
	}
	reader, err := source.Open(ctx, s.Partition, s.Start)
	if err != nil {
		return err
	}
	defer reader.Close()
	f, path, err := n.store.Stage(s.Table, s.Partition, s.Name)
	if err != nil {
		return err
	}
	b, err := segment.NewBuilder(f, builderConfig(t.Name, s, cfg))
	if err != nil {
		return errors.Join(err, f.Close(), n.store.Discard(path))
	}
	for next := s.Start; next < s.End; {
		batch, err := reader.Read(ctx)
		if err == nil && batch.Epoch != s.StreamEpoch {
			err = fmt.Errorf("the stream has epoch %q, the segment is of epoch %q", batch.Epoch, s.StreamEpoch)
		}
		for i := range batch.Rows {
			if row := &batch.Rows[i]; err == nil && row.Offset < s.End {
				err = b.Append(row)
			}
		}
		if err != nil {
			return errors.Join(fmt.Errorf("rebuild %s: %w", s.Name, err), b.Abort(), n.store.Discard(path))
		}
		next = batch.Next
	}
	info, err := n.sealAndPublish(s, b, f, path, s.End)
	if err == nil && info.Digest != s.Digest {
		err = fmt.Errorf("rebuilt %s has digest %s (rows digest %s), committed is %s (%s): it is kept, and a copy of the committed file still looked for",
			s.Name, info.Digest, info.RowsDigest, s.Digest, s.RowsDigest)
	}
	return err
}

// suspect has a copy verified because something it gave was wrong, and sets it
// aside if it is damaged.
func (n *Node) suspect(h segment.Held) {
	n.background.Go(func() {
		if err := n.verifyHeld(n.life, h); err != nil && !errors.Is(err, context.Canceled) {
			n.log.Error().Err(err).Str("segment", h.Name).Msg("copy is damaged")
		}
	})
}

// verifyHeld reads a copy in full. A damaged one is quarantined, its location is
// withdrawn and it is fetched again; a sidecar that alone is damaged is made
// anew.
func (n *Node) verifyHeld(ctx context.Context, h segment.Held) error {
	k, _ := heldKey(h)
	err := n.store.Verify(ctx, h)
	var damage *segment.DamageError
	if errors.As(err, &damage) {
		if damage.Sidecar && n.store.RepairSidecar(ctx, h) == nil {
			n.events.add(k, "verify", "the sidecar was damaged and made anew", nil)
			return nil
		}
		if _, qerr := n.store.Quarantine(h, damage.Problem); qerr != nil {
			n.noteFatal(qerr)
			err = errors.Join(err, qerr)
		}
		n.copies.storeChanged(k)
	}
	n.events.add(k, "verify", h.File(), err)
	return err
}
