package produce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/stream"
)

// Options of a Run.
type Options struct {
	// Append allows an input to follow another one.
	Append bool
	// Progress, if set, is called about ten times a second, whenever a live
	// input pauses, and at the end.
	Progress func(Progress)
}

// Progress is how far a Run is.
type Progress struct {
	// Rows and Bytes (newlines not counted) of the input so far, of which
	// Skipped rows were in the stream before.
	Rows, Bytes, Skipped int64
	// InputBytes is how much of the input's files was read, out of InputSize;
	// 0 where that is not known.
	InputBytes, InputSize int64
}

// progressEvery is the least time between two calls of Options.Progress.
const progressEvery = 100 * time.Millisecond

// Run appends the rows of an input, all of them exactly once however often it is
// begun, and returns when they are synced. It stops between two rows when ctx
// ends, and returns ctx's error; the next Run of the same input goes on.
//
// An input that is another than the last one needs Options.Append
// (*OtherInputError), and one that is continued the spread it was begun with
// (*SpreadChangedError). A live input always follows what is there.
// A *vfs.SyncError means that the process must stop.
func (p *Producer) Run(ctx context.Context, in *Input, opts Options) (Progress, error) {
	r := &run{p: p, in: in, opts: opts, progress: Progress{InputSize: in.SizeBytes()}}
	err := r.run(ctx)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("produce: %w", err)
	}
	if opts.Progress != nil {
		opts.Progress(r.progress)
	}
	return r.progress, err
}

// run is one Run in progress.
type run struct {
	p    *Producer
	in   *Input
	opts Options

	spread   *spread
	row      int64  // number of the next row
	held     []byte // a row in parts whose partition is not known yet
	progress Progress
	told     time.Time
}

func (r *run) run(ctx context.Context) error {
	rec := record{Source: r.in.String(), Live: r.in.Live(), Files: r.in.ids(),
		Partitions: r.p.cfg.Partitions, Key: r.p.cfg.Key, Base: r.p.marks()}
	plan, rows, err := r.p.state.decide(rec, r.p.Lines(), r.opts.Append)
	if err != nil {
		return err
	}
	switch plan {
	case planDone:
		r.progress.Rows, r.progress.Skipped, r.progress.InputBytes = rows, rows, r.progress.InputSize
		return nil
	case planBegin:
		err = r.p.remember(rec)
	case planResume:
		rec.Base = r.p.state.Inputs[len(r.p.state.Inputs)-1].Base
		err = r.p.resume(rec)
	}
	if err != nil {
		return err
	}
	r.spread = newSpread(rec.Partitions, rec.Key)
	r.row = rec.rowsBefore()
	if err := r.all(ctx); err != nil {
		if vfs.IsSyncError(err) {
			return err
		}
		return errors.Join(err, r.p.stop())
	}
	return r.p.finish(r.progress.Rows)
}

// all takes the rows of the whole input.
func (r *run) all(ctx context.Context) error {
	if live := r.in.live; live != nil {
		live.ctx, live.idle = ctx, func() error { r.tell(true); return r.p.settle() }
		src, err := newSource(live, false)
		if err == nil {
			err = r.rows(ctx, src)
		}
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%s: row %d: %w", r.in, r.progress.Rows, err)
		}
		return err
	}
	for _, f := range r.in.files {
		before := r.progress.InputBytes
		src, err := f.open()
		if err != nil {
			return err
		}
		first := r.progress.Rows
		err = errors.Join(r.rows(ctx, src), src.Close())
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: row %d of it (from 0): %w", f.path, r.progress.Rows-first, err)
		}
		if err != nil {
			return err
		}
		r.progress.InputBytes = before + src.read.n
	}
	for _, part := range r.p.partitions {
		if part.skip > 0 {
			return fmt.Errorf("%s has %d rows more than the input: it is not the input that was written", part.name, part.skip)
		}
	}
	return nil
}

// rows takes the rows of one source.
func (r *run) rows(ctx context.Context, src *source) error {
	before := r.progress.InputBytes
	for n := 0; ; n++ {
		if n%256 == 0 {
			// A live input looks at ctx itself, before it waits: rows that
			// were taken from it and not written would be lost.
			if err := ctx.Err(); err != nil && !r.in.Live() {
				return err
			}
			r.progress.InputBytes = before + src.read.n
			r.tell(false)
		}
		part, last, err := src.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if last {
			err = r.put(r.spread.of(r.row, part), part, true)
		} else {
			err = r.long(src, part)
		}
		if err != nil {
			return err
		}
		r.row++
	}
}

// long takes a row that comes in parts. By round robin they go straight on. By
// key the row is held until it is complete, so that it can be looked into, or
// until it is larger than any row may be.
func (r *run) long(src *source, part []byte) (err error) {
	const undecided = -1
	to, last := undecided, false
	if r.spread.byNumber() {
		to = r.spread.number(r.row)
	}
	r.held = r.held[:0]
	for {
		if to == undecided {
			r.held = append(r.held, part...)
			part = r.held
			switch {
			case last:
				to = r.spread.of(r.row, part)
			case len(part) > stream.MaxRowBytes:
				to = r.spread.number(r.row)
			}
		}
		if to != undecided {
			if err := r.put(to, part, last); err != nil || last {
				r.held = nil // do not keep 32 MiB for one such row
				return err
			}
		}
		if part, last, err = src.next(); err != nil {
			return err
		}
	}
}

// put hands a part of a row to partition to.
func (r *run) put(to int, part []byte, last bool) error {
	dst := r.p.partitions[to]
	skipped := dst.skip > 0
	if err := dst.put(part, last); err != nil {
		return err
	}
	r.progress.Bytes += int64(len(part))
	if last {
		r.progress.Rows++
		if skipped {
			r.progress.Skipped++
		}
	}
	return nil
}

func (r *run) tell(always bool) {
	if r.opts.Progress == nil || !always && time.Since(r.told) < progressEvery {
		return
	}
	r.told = time.Now()
	r.opts.Progress(r.progress)
}

// remember begins an input: it writes down where the partitions end. They are
// synced first, or a power cut could leave less than was written down.
func (p *Producer) remember(rec record) error {
	if err := p.syncAll(); err != nil {
		return err
	}
	next := p.state.clone()
	if n := len(next.Inputs); rec.Live && n > 0 && next.Inputs[n-1].Live {
		next.Inputs = next.Inputs[:n-1] // nothing is ever asked of it again
	}
	next.Inputs = append(next.Inputs, rec)
	return p.save(next)
}

// resume goes on with the last input.
func (p *Producer) resume(rec record) error {
	for i, base := range rec.Base {
		if err := p.partitions[i].resume(base); err != nil {
			return err
		}
	}
	next := p.state.clone()
	next.Inputs[len(next.Inputs)-1] = rec
	return p.save(next)
}

// stop ends an input before its end: a row that was begun is taken back.
func (p *Producer) stop() error {
	var errs []error
	for _, part := range p.partitions {
		errs = append(errs, part.abandon(), part.sync())
		part.skip = 0
	}
	return errors.Join(errs...)
}

// finish syncs all rows and writes down that they are all there.
func (p *Producer) finish(rows int64) error {
	if err := p.syncAll(); err != nil {
		return err
	}
	next := p.state.clone()
	last := &next.Inputs[len(next.Inputs)-1]
	last.Complete, last.Rows = true, rows
	return p.save(next)
}

func (p *Producer) save(next state) error {
	if err := next.write(p.fs, p.name(stateFile)); err != nil {
		return err
	}
	p.state = next
	return nil
}

// Emitter returns a function that appends one row at a time, of a live input
// called source, and hands it on at once. A row is one line without its end.
func (p *Producer) Emitter(source string) (emit func(row []byte) error, err error) {
	rec := record{Source: source, Live: true, Partitions: p.cfg.Partitions, Key: p.cfg.Key, Base: p.marks()}
	if err := p.remember(rec); err != nil {
		return nil, fmt.Errorf("produce: %w", err)
	}
	spread, n := newSpread(rec.Partitions, rec.Key), rec.rowsBefore()
	return func(row []byte) error {
		if bytes.IndexByte(row, '\n') >= 0 {
			return fmt.Errorf("produce: a row of %s has a line end in it: %.80q", source, row)
		}
		err := p.partitions[spread.of(n, row)].put(row, true)
		if err == nil {
			n++
			err = p.settle()
		}
		if err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		return nil
	}, nil
}
