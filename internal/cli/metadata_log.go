package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/snapshots"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

type metadataLog struct {
	FromDir string `help:"Read the log in this data directory, of a controller or a node, instead of asking the controllers. Nothing in it is changed, and a process may run on it." placeholder:"DIR"`
	Offset  *int64 `help:"From this batch on. Without it: the newest ones." placeholder:"N"`
	Limit   *int64 `help:"So many batches at most; with -f and without --offset, so many before what comes. 20 unless --offset is given." placeholder:"N"`
	Follow  bool   `short:"f" help:"Wait for what comes, and print that too, until interrupted."`
}

// newestShown is how many batches are shown unless told otherwise.
const newestShown = 20

func (c metadataLog) Run(ctx context.Context, a *app) error {
	if c.Offset != nil && *c.Offset < 0 {
		return usageError{fmt.Errorf("--offset %d is negative", *c.Offset)}
	}
	if c.Limit != nil && *c.Limit <= 0 {
		return usageError{fmt.Errorf("--limit %d is not positive", *c.Limit)}
	}
	p := &batchPrinter{a: a, left: c.most()}
	err := c.print(ctx, a, p)
	if ctx.Err() != nil && c.Follow {
		return nil // that is how it ends
	}
	return err
}

func (c metadataLog) print(ctx context.Context, a *app, p *batchPrinter) error {
	if c.FromDir == "" {
		return (&onlineLog{metadataLog: c, a: a, p: p}).run(ctx)
	}
	d, err := openDataDir(c.FromDir)
	if err != nil {
		return err
	}
	a.noteRunning(d)
	return (&offlineLog{metadataLog: c, a: a, d: d, p: p}).run(ctx)
}

// start is where to begin in a log [from, to).
func (c metadataLog) start(from, to int64) int64 {
	if c.Offset != nil {
		return *c.Offset
	}
	newest := int64(newestShown)
	if c.Limit != nil {
		newest = *c.Limit
	}
	return max(from, to-newest)
}

// most is how many batches are printed at most; negative: all.
func (c metadataLog) most() int64 {
	if c.Limit == nil || c.Follow && c.Offset == nil {
		return -1
	}
	return *c.Limit
}

// offlineLog reads a directory.
type offlineLog struct {
	metadataLog
	a *app
	d *dataDir
	p *batchPrinter
}

// followEvery is how often a directory is looked at for more.
const followEvery = 500 * time.Millisecond

func (l *offlineLog) run(ctx context.Context) error {
	var from, to int64
	var err error
	if l.Offset == nil {
		if from, to, err = metalog.LogBounds(l.d.fs, l.d.logDir); err != nil {
			return l.damaged(err)
		}
	}
	r, err := metalog.OpenLogReader(l.d.fs, l.d.logDir, l.start(from, to))
	if err != nil {
		return l.damaged(err)
	}
	again := 0 // how often it was read once more, because somebody may just have changed it
	for !l.p.done() {
		b, err := r.Next()
		switch {
		case err == nil:
			again = 0
			err = l.p.print(b)
		case errors.Is(err, io.EOF) && l.Follow:
			if err := pause(ctx, followEvery); err != nil {
				return err
			}
			err = nil
		case errors.Is(err, io.EOF):
			l.a.noteTorn(l.d, r)
			return nil
		case l.d.running && again == 0 || errors.Is(err, metalog.ErrLogChanged) && again < 5:
			again++
			r, err = metalog.OpenLogReader(l.d.fs, l.d.logDir, r.Position().Offset)
		}
		if err != nil {
			return l.damaged(err)
		}
	}
	return nil
}

// damaged makes damage an answer that is no.
func (l *offlineLog) damaged(err error) error {
	var out *metalog.OutOfRangeError
	switch {
	case errors.As(err, new(*metalog.CorruptionError)):
		return no("%s: %s; `shoal metadata verify --from-dir %s` says more", l.d.path, err, l.d.path)
	case errors.As(err, &out):
		return fmt.Errorf("the log in %s has the batches from %d to %d, not %d", l.d.path, out.Start, out.End-1, out.Offset)
	}
	return err
}

// pause waits, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// onlineLog asks the controller that leads, whichever that is.
type onlineLog struct {
	metadataLog
	a  *app
	p  *batchPrinter
	at metalog.Position

	leader api.LeaderView
}

// How the log is asked for.
const (
	logBytes    = 1 << 20
	logPoll     = 5 * time.Second // as long as a leader holds a request at most
	leaderEvery = time.Second     // after a failure, with -f
)

func (l *onlineLog) run(ctx context.Context) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	for !l.p.done() && (l.Follow || l.at.Offset < l.leader.HighWatermark) {
		err := l.step(ctx)
		if err != nil && (!l.Follow || ctx.Err() != nil || !passes(err)) {
			return err
		}
		if err != nil {
			fmt.Fprintf(l.a.Err, "note: %s; asking again\n", message(err))
			if err := pause(ctx, leaderEvery); err != nil {
				return err
			}
			if err := l.a.control.Get(ctx, "/leader", &l.leader); err != nil && !passes(err) {
				return err
			}
		}
	}
	return nil
}

// begin finds the leader, and where to begin.
func (l *onlineLog) begin(ctx context.Context) error {
	if err := l.a.control.Get(ctx, "/leader", &l.leader); err != nil {
		return err
	}
	end := l.leader.HighWatermark
	l.at.Offset = l.start(0, end)
	if l.at.Offset > end {
		return fmt.Errorf("the log ends at offset %d: there is no batch %d yet", end, l.at.Offset)
	}
	if l.at.Offset > 0 {
		// Whoever asks with the newest epoch, and no term, is told what is there.
		l.at.LastEpoch = l.leader.Epoch
		if got, err := l.handsOut(ctx, l.at); got || err != nil {
			return err
		}
	}
	return l.beginLater(ctx)
}

// beginLater begins with the first batch that the leader hands out.
func (l *onlineLog) beginLater(ctx context.Context) error {
	items, err := api.ListAt[snapshots.Item](ctx, l.a.http, l.a.control.Leader()+snapshots.Path)
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return nil // so that it has the log from the first batch on
	}
	oldest := slices.MinFunc(items, func(x, y snapshots.Item) int { return x.SnapshotID.Compare(y.SnapshotID) })
	first, err := l.first(ctx, oldest.SnapshotID)
	if err != nil {
		return err
	}
	if l.Offset != nil && *l.Offset < first.Offset {
		return fmt.Errorf("the leader hands out the log from offset %d on, and a snapshot for what is before; read a data directory with --from-dir for batch %d", first.Offset, *l.Offset)
	}
	if l.at.Offset <= first.Offset {
		l.at = first
	}
	return nil
}

// first is where the log of a leader with snapshots begins, to whoever asks: behind the
// oldest of them, as what is before that is not handed out, whether it is there or not; or
// later, if the log itself begins later.
func (l *onlineLog) first(ctx context.Context, oldest metalog.SnapshotID) (metalog.Position, error) {
	at := metalog.Position{Offset: oldest.EndOffset, LastEpoch: oldest.Epoch}
	got, err := l.handsOut(ctx, at)
	if got || err != nil {
		return at, err
	}
	// Where the log begins nobody says. That it is there from an offset on tells each side.
	before, first := at.Offset, metalog.Position{Offset: max(at.Offset, l.leader.HighWatermark), LastEpoch: l.leader.Epoch}
	for before+1 < first.Offset {
		at = metalog.Position{Offset: before + (first.Offset-before)/2, LastEpoch: l.leader.Epoch}
		if got, err = l.handsOut(ctx, at); err == nil && !got {
			// Its very first batch comes only to whoever names the epoch of the oldest snapshot.
			at.LastEpoch = oldest.Epoch
			got, err = l.handsOut(ctx, at)
		}
		switch {
		case err != nil:
			return first, err
		case got:
			first = at
		default:
			before = at.Offset
		}
	}
	return first, nil
}

// handsOut reports whether the leader answers with the log from a position on.
func (l *onlineLog) handsOut(ctx context.Context, at metalog.Position) (bool, error) {
	answer, err := l.fetch(ctx, at, 1, 0)
	return answer.Snapshot == nil && answer.Diverging == nil, err
}

func (l *onlineLog) fetch(ctx context.Context, at metalog.Position, most int, wait time.Duration) (metalog.FetchAnswer, error) {
	cluster := l.leader.ClusterID.String()
	return metalog.Fetch(ctx, l.a.http, metalog.FetchLog{URL: l.a.control.Leader(), Query: metalog.FetchQuery{
		Position: at, ClusterID: &cluster, MaxBytes: most, MaxWait: wait,
	}})
}

// step prints what comes next.
func (l *onlineLog) step(ctx context.Context) error {
	wait := time.Duration(0)
	if l.Follow {
		wait = logPoll
	}
	answer, err := l.fetch(ctx, l.at, logBytes, wait)
	switch {
	case err != nil:
		return err
	case answer.Snapshot != nil:
		return &finalError{fmt.Errorf("%s has let go of the log from offset %d on meanwhile: snapshot %s stands for it", l.a.control.Leader(), l.at.Offset, answer.Snapshot.SnapshotID)}
	case answer.Diverging != nil:
		return &finalError{fmt.Errorf("%s has other batches before offset %d: what was read before is not its log", l.a.control.Leader(), l.at.Offset)}
	}
	entries, err := metalog.DecodeEntries(answer.Frames)
	if err != nil {
		return &finalError{err}
	}
	for _, e := range entries {
		if l.p.done() {
			return nil
		}
		if err := l.p.print(metalog.LoggedBatch{Entry: e}); err != nil {
			return &finalError{err}
		}
		l.at = metalog.After(e.Batch)
	}
	return nil
}

// finalError is one that asking again does not change.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// passes tells a leader that is away for a while, or is another by now, from an answer
// that asking again does not change.
func passes(err error) bool {
	var answer *httpx.Error
	switch {
	case errors.As(err, new(*finalError)):
		return false
	case errors.As(err, &answer):
		return answer.Code == metalog.CodeNotLeader || answer.Status >= http.StatusInternalServerError
	}
	return true // nobody answered
}

// batchPrinter prints batches, as they come.
type batchPrinter struct {
	a      *app
	left   int64 // negative: no end
	header bool
}

func (p *batchPrinter) done() bool { return p.left == 0 }

// changedRecord names a record that a batch puts in or takes out.
type changedRecord struct {
	Kind string `json:"kind"`
	Key  string `json:"key,omitempty"`
}

// batchLine is what `shoal metadata log -o json` prints for each batch.
type batchLine struct {
	Offset       int64           `json:"offset"`
	Epoch        int64           `json:"epoch"`
	Term         string          `json:"term"`
	Time         time.Time       `json:"time"`
	Bytes        int             `json:"bytes"` // of its frame
	Upserts      []changedRecord `json:"upserts,omitempty"`
	Removals     []changedRecord `json:"removals,omitempty"`
	SnapshotHere bool            `json:"snapshotHere,omitempty"`
	File         string          `json:"file,omitempty"` // from a directory: where it lies
	Position     int64           `json:"position,omitempty"`
}

func (p *batchPrinter) print(l metalog.LoggedBatch) error {
	if p.left > 0 {
		p.left--
	}
	b := l.Batch
	line := batchLine{
		Offset: b.Offset, Epoch: b.Epoch, Term: b.Term.String(), Time: time.UnixMilli(b.Time).UTC(), Bytes: len(l.Frame),
		SnapshotHere: b.SnapshotHere, File: l.File, Position: l.At,
	}
	for _, r := range b.Upserts {
		line.Upserts = append(line.Upserts, named(r.Key()))
	}
	for _, k := range b.Removals {
		line.Removals = append(line.Removals, named(k))
	}
	if p.a.json {
		return p.a.writeLine(line)
	}
	// Columns of a fixed width, because nobody knows what is to come.
	const format = "%-10v %-6v %-8v  %-24v %8v  %v\n"
	if !p.header {
		p.header = true
		fmt.Fprintf(p.a.Out, format, "OFFSET", "EPOCH", "TERM", "TIME", "BYTES", "CHANGES")
	}
	_, err := fmt.Fprintf(p.a.Out, format, b.Offset, b.Epoch, line.Term[:8], line.Time.Format("2006-01-02 15:04:05.000Z"), len(l.Frame), line.changes())
	return err
}

func named(k meta.Key) changedRecord {
	kind := k.Kind.String()
	return changedRecord{Kind: kind, Key: strings.TrimPrefix(strings.TrimPrefix(k.String(), kind), " ")}
}

// keysShown is how many keys of a kind are shown to people.
const keysShown = 3

// changes are the records by kind: what is put in first, what is taken out with a minus.
func (l *batchLine) changes() string {
	parts := append(byKind("", l.Upserts), byKind("-", l.Removals)...)
	if l.SnapshotHere {
		parts = append(parts, "snapshot here")
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}

// byKind groups records, which are not sorted.
func byKind(sign string, records []changedRecord) (parts []string) {
	keys := map[string][]string{}
	var kinds []string
	for _, r := range records {
		if keys[r.Kind] == nil {
			kinds = append(kinds, r.Kind)
		}
		keys[r.Kind] = append(keys[r.Kind], shortKey(r.Key))
	}
	for _, kind := range kinds {
		part, all := sign+kind, keys[kind]
		if n := len(all); n > keysShown {
			part += fmt.Sprintf(" %s and %d more", strings.Join(all[:keysShown], ", "), n-keysShown)
		} else if all[0] != "" {
			part += " " + strings.Join(all, ", ")
		}
		parts = append(parts, part)
	}
	return parts
}

// shortKey cuts the ids in a key to what tells them apart.
func shortKey(key string) string {
	first, rest, more := strings.Cut(key, "/")
	if id, err := uuid.Parse(first); err == nil {
		first = id.String()[:8]
	}
	if more {
		return first + "/" + rest
	}
	return first
}

// writeLine prints a value for machines, on a line of its own.
func (a *app) writeLine(v any) error {
	e := json.NewEncoder(a.Out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
