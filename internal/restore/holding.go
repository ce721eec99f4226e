// Package restore brings metadata that others have into a directory: snapshots and the log
// after them, from nodes and controllers, over HTTP.
//
// It owns the question what a server has (holding.go, tail.go), the copying of it
// (copy.go), and how an embedded controller that lost its disk gets a data directory again
// (restore.go), from the node that has the most (furthest.go). Snapshots come by
// internal/snapshots, files and their checks are package metalog's. It does not know why
// somebody wants the copy.
//
// Start at Restore, or at Look and Holding.Copy for a copy to read.
package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/metalog"
)

// Holding is what one server has of the metadata.
type Holding struct {
	URL       string
	Node      bool                  // a node, with its copy of the log; otherwise the leading controller
	Snapshots []metalog.SnapshotRef // the oldest first
	// Newest is how the newest snapshot begins, of those that begin as they should.
	Newest metalog.SnapshotHeader
	// Damaged are those that do not begin as they should, or that the server cannot read.
	Damaged map[metalog.SnapshotID]error
	Cluster uuid.UUID // zero: it has nothing
	// End is where it ends: its log or, if that ends earlier or is not there, Newest.
	End metalog.Position
	// Time is that of the last batch, in milliseconds since the Unix epoch.
	Time int64
	// Leader is who leads, as far as the server knows, and Epoch the highest it has heard of.
	Leader string
	Epoch  int64

	client *httpx.Client
	tail   tail
}

// Look asks a server what it has. A controller that does not lead says who does: its
// answer is an *httpx.Error.
func Look(ctx context.Context, client *httpx.Client, url string) (*Holding, error) {
	h := newHolding(client, url)
	if err := h.look(ctx, h.lookAtSnapshots, h.lookAtHeader, h.lookAtLog); err != nil {
		return nil, err
	}
	return h, nil
}

func newHolding(client *httpx.Client, url string) *Holding {
	return &Holding{URL: strings.TrimRight(url, "/"), client: client, Damaged: map[metalog.SnapshotID]error{}}
}

func (h *Holding) look(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return fmt.Errorf("restore: %s: %w", h.URL, err)
		}
	}
	return nil
}

// errHeadless says that a server has a log, and no good snapshot of what comes before it.
var errHeadless = errors.New("its log does not go back to the first batch")

// lookAgain looks at a server whose snapshots are damaged, with how one of them begins that
// others have too: its log may be the one that goes furthest. It reports whether there is
// such a one.
func (h *Holding) lookAgain(ctx context.Context, others []*Holding) (bool, error) {
	for _, ref := range slices.Backward(h.Snapshots) {
		for _, o := range others {
			if !slices.Contains(o.Snapshots, ref) || o.Damaged[ref.SnapshotID] != nil {
				continue
			}
			if header, err := o.header(ctx, ref); err == nil {
				h.begin(header)
				return true, h.look(ctx, h.lookAtLog)
			}
		}
	}
	return false, nil
}

func (h *Holding) lookAtSnapshots(ctx context.Context) error {
	items, err := api.ListAt[snapshots.Item](ctx, h.client, h.URL+snapshots.Path)
	if err != nil {
		return err
	}
	for _, i := range items {
		h.Snapshots = append(h.Snapshots, i.SnapshotRef)
	}
	slices.SortFunc(h.Snapshots, func(a, b metalog.SnapshotRef) int { return a.SnapshotID.Compare(b.SnapshotID) })
	return nil
}

// lookAtHeader reads how the newest snapshot begins, and whom the server follows. One that
// is damaged there is passed over, and remembered.
func (h *Holding) lookAtHeader(ctx context.Context) error {
	if len(h.Snapshots) == 0 {
		res, err := h.head(ctx, snapshots.Path+"?limit=1", 0)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	for _, ref := range slices.Backward(h.Snapshots) {
		header, err := h.header(ctx, ref)
		if isDamage(err) {
			h.Damaged[ref.SnapshotID] = err
			continue
		}
		if err != nil {
			return err
		}
		h.begin(header)
		return nil
	}
	return nil
}

// begin takes what the header of the newest good snapshot says.
func (h *Holding) begin(header metalog.SnapshotHeader) {
	h.Newest, h.Cluster, h.End, h.Time = header, header.Cluster, header.Position, header.Time
	h.Epoch = max(h.Epoch, h.End.LastEpoch)
}

// isDamage tells a snapshot that is not what it should be. A server that finds that out by
// itself, as the file has another length, answers 500.
func isDamage(err error) bool {
	var answer *httpx.Error
	return errors.As(err, new(*metalog.CorruptionError)) || errors.As(err, &answer) && answer.Status == http.StatusInternalServerError
}

// header reads how a snapshot begins.
func (h *Holding) header(ctx context.Context, ref metalog.SnapshotRef) (header metalog.SnapshotHeader, err error) {
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	size := min(metalog.SnapshotHeaderBytes, ref.SizeBytes)
	res, err := h.head(ctx, snapshots.Path+"/"+ref.SnapshotID.String(), size)
	if err != nil {
		return header, err
	}
	defer res.Body.Close()
	name := "snapshot " + ref.SnapshotID.String()
	header, err = metalog.ReadSnapshotHeader(name, io.LimitReader(res.Body, size))
	if err == nil && header.ID() != ref.SnapshotID {
		err = &metalog.CorruptionError{File: name, Reason: "its header says that it is snapshot " + header.ID().String()}
	}
	return header, err
}

// headerTimeout bounds the request for a few bytes.
const headerTimeout = 10 * time.Second

// head asks for the first bytes of what is at a path, and takes from the answer who leads.
func (h *Holding) head(ctx context.Context, path string, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=0-%d", size-1))
	}
	res, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	h.Leader = res.Header.Get(metalog.HeaderLeader)
	if epoch, err := strconv.ParseInt(res.Header.Get(metalog.HeaderLeaderEpoch), 10, 64); err == nil {
		h.Epoch = max(h.Epoch, epoch)
	}
	return res, nil
}

// lookAtLog finds the end of the log, behind the newest snapshot. It tells a node from a
// controller: only nodes serve a copy.
func (h *Holding) lookAtLog(ctx context.Context) error {
	from := h.Newest.Position
	h.Node, h.tail = true, nodeTail{h.client, h.URL}
	entries, end, err := h.tail.read(ctx, from)
	var answer *httpx.Error
	if errors.As(err, &answer) && answer.Status == http.StatusNotFound {
		h.Node, h.tail = false, leaderTail{h.client, h.URL}
		entries, end, err = h.tail.read(ctx, from)
	}
	switch {
	case errors.Is(err, errNoLog) && from.Offset > 0:
		return nil // a snapshot past its log, or one that its log has just gone on behind
	case errors.Is(err, errNoLog):
		return h.unusable(err)
	case err != nil:
		return err
	case len(entries) == 0:
		return nil
	}
	if err := h.founded(from, entries[0]); err != nil {
		return err
	}
	if last := entries[len(entries)-1]; end > last.Batch.Offset+1 {
		if entries, err = h.lastEntry(ctx, end); err != nil {
			return err
		}
	}
	b := entries[len(entries)-1].Batch
	h.End = metalog.After(b)
	h.Time, h.Epoch = b.Time, max(h.Epoch, b.Epoch)
	return nil
}

// unusable says why nothing of what the server has is of use.
func (h *Holding) unusable(log error) error {
	var why []string
	for _, ref := range h.Snapshots {
		why = append(why, fmt.Sprintf("snapshot %s is damaged (%s)", ref.SnapshotID, h.Damaged[ref.SnapshotID]))
	}
	if len(why) == 0 {
		why = append(why, "it has no snapshot")
	}
	return fmt.Errorf("%s, and %w: %w", strings.Join(why, ", "), errHeadless, log)
}

// founded takes the cluster from the first batch, if there is no snapshot that says it.
func (h *Holding) founded(from metalog.Position, first metalog.Entry) error {
	if err := from.Precedes(first.Batch); err != nil {
		return fmt.Errorf("its log does not go on from its snapshot: %w", err)
	}
	if from.Offset > 0 {
		return nil
	}
	if h.Cluster = metalog.ClusterIn(first.Batch); h.Cluster == uuid.Nil {
		return errors.New("the first batch of its log founds no cluster")
	}
	return nil
}

// lastEntry reads the batch before the end.
func (h *Holding) lastEntry(ctx context.Context, end int64) ([]metalog.Entry, error) {
	entries, _, err := h.tail.read(ctx, metalog.Position{Offset: end - 1, LastEpoch: h.Epoch})
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("it says that its log ends at offset %d, and has no batch before that", end)
	}
	return entries, err
}

// at is where the holding stands at an offset, if it still has what tells that.
func (h *Holding) at(ctx context.Context, offset int64) (p metalog.Position, ok bool, err error) {
	for _, known := range []metalog.Position{{}, h.Newest.Position, h.End} {
		if known.Offset == offset {
			return known, true, nil
		}
	}
	entries, _, err := h.tail.read(ctx, metalog.Position{Offset: offset - 1, LastEpoch: h.Epoch})
	if errors.Is(err, errNoLog) || err == nil && len(entries) == 0 {
		return p, false, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("restore: %s: %w", h.URL, err)
	}
	return metalog.After(entries[0].Batch), true, nil
}

// further orders holdings by where they end; of two that end together the one with the later
// snapshot is read faster.
func further(a, b *Holding) int {
	return cmp.Or(cmp.Compare(a.End.LastEpoch, b.End.LastEpoch), cmp.Compare(a.End.Offset, b.End.Offset),
		cmp.Compare(a.Newest.Offset, b.Newest.Offset))
}

// HolderOf is a server of which nothing is known but that it lists a snapshot.
func HolderOf(client *httpx.Client, url string, ref metalog.SnapshotRef) *Holding {
	return &Holding{URL: strings.TrimRight(url, "/"), Snapshots: []metalog.SnapshotRef{ref}, client: client}
}
