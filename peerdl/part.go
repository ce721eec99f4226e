package peerdl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// openPart opens or creates the .part and finds the pieces that it holds, by
// hashing them. Nothing else is believed: not the file's length, nor what this
// process remembers, nor a note written after an fsync, because a power cut, a
// kill at any instruction and a flipped bit look alike here. Hashing a whole
// file again costs half a second a gigabyte; a note would save that only on a
// resume, and would have to be believed.
func openPart(ctx context.Context, fsys vfs.FS, name string, pieces *segment.Pieces) (vfs.File, []bool, error) {
	open := func() (vfs.File, error) { return fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644) }
	f, err := open()
	if errors.Is(err, fs.ErrPermission) {
		// A publish makes the file read-only before it renames it. One that was
		// killed in between must not end all downloads of this segment.
		if err = fsys.Chmod(name, 0o644); err == nil {
			f, err = open()
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("peerdl: open %s on %s: %w", name, fsys, err)
	}
	held, err := hashPart(ctx, f, pieces)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, held, nil
}

func hashPart(ctx context.Context, f vfs.File, pieces *segment.Pieces) ([]bool, error) {
	held := make([]bool, pieces.Count())
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("peerdl: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range held {
		off, n := pieces.Range(i)
		if off+n > info.Size() {
			break
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// A piece that cannot be read is one that is not held.
			v := pieces.Verifier(i)
			_, err := io.CopyBuffer(v, io.NewSectionReader(f, off, n), make([]byte, readSize))
			held[i] = err == nil && v.Verify() == nil
			return nil
		})
	}
	return held, group.Wait()
}

// Forget removes what a download left: its journal, and the .part if it is
// still there. It is called after the .part was published under another name,
// or to give a download up.
func Forget(fsys vfs.FS, part string) error {
	var errs []error
	// The .part first: a journal alone is harmless, and says what it was.
	for _, name := range []string{part, JournalName(part)} {
		if err := fsys.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("peerdl: %w", err))
		}
	}
	return errors.Join(errs...)
}
