package deepstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/segment"
)

// Uploads are written to a directory of their own, which List does not see, and
// renamed from there. One that was killed stays there under a name that tells
// the object, and is swept when it is a day old; a younger one may be another
// process's that is still being written.
const uploadsDir = ".uploads"

// dirStore keeps objects as files. Several processes may use one directory.
type dirStore struct {
	fs     vfs.FS
	prefix string // below the root of fs; "." for none
	uri    string
	calls  *dirCalls
}

// NewDir returns the store of the directory prefix ("." or slash-separated) in
// fsys. Uri is what it calls itself.
func NewDir(fsys vfs.FS, prefix, uri string) (Store, error) {
	d := &dirStore{fs: fsys, prefix: path.Clean(prefix), uri: strings.TrimSuffix(uri, "/"), calls: newDirCalls()}
	if err := d.fs.MkdirAll(d.uploads(), 0o755); err != nil {
		return nil, fmt.Errorf("deepstore: %s: %w", d.uri, err)
	}
	// What cannot be removed is in nobody's way, and told by the next Sweep.
	_, _ = d.sweep(context.Background(), SweepAge)
	return d, nil
}

func (d *dirStore) uploads() string { return path.Join(d.prefix, uploadsDir) }

// Sweep removes the files of uploads.
func (d *dirStore) Sweep(ctx context.Context, age time.Duration) (swept int, err error) {
	return dirCall(ctx, d, "sweep "+d.uri, func() (int, error) {
		swept, err := d.sweep(ctx, age)
		if err != nil {
			err = fmt.Errorf("deepstore: %s: %w", d.uri, err)
		}
		return swept, err
	}, nil)
}

func (d *dirStore) sweep(ctx context.Context, age time.Duration) (swept int, err error) {
	if err := d.fs.MkdirAll(d.uploads(), 0o755); err != nil {
		return 0, err
	}
	entries, err := d.fs.ReadDir(d.uploads())
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range entries {
		if ctx.Err() != nil {
			return swept, errors.Join(append(errs, context.Cause(ctx))...)
		}
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) <= age {
			continue
		}
		if err == nil {
			err = d.fs.Remove(path.Join(d.uploads(), e.Name()))
		}
		switch {
		case err == nil:
			swept++
		case !errors.Is(err, fs.ErrNotExist): // else its upload has just ended, or another process was first
			errs = append(errs, err)
		}
	}
	return swept, errors.Join(errs...)
}

func (d *dirStore) String() string { return d.uri }

// file is the path of a key.
func (d *dirStore) file(key string) (string, error) {
	if _, err := ParseKey(key); err != nil {
		return "", err
	}
	return path.Join(d.prefix, key), nil
}

// wrap translates what the file system said.
func (d *dirStore) wrap(op, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotFound, URI(d.uri, key))
	}
	return fmt.Errorf("deepstore: %s %s: %w", op, URI(d.uri, key), err)
}

func (d *dirStore) Put(ctx context.Context, key string, r io.ReaderAt, size int64, digest segment.Digest) error {
	if err := checkPut(key, size, digest); err != nil {
		return err
	}
	_, err := dirCall(ctx, d, "put "+URI(d.uri, key), func() (struct{}, error) {
		return struct{}{}, d.putOrAdopt(ctx, key, r, size, digest)
	}, nil)
	return err
}

func (d *dirStore) putOrAdopt(ctx context.Context, key string, r io.ReaderAt, size int64, digest segment.Digest) error {
	// Adopt what is there. It is read, not just looked at: it may be damaged.
	err := d.adopt(ctx, key, size, digest)
	if errors.Is(err, ErrNotFound) {
		if err = d.put(ctx, key, r, size, digest); err != nil {
			err = fmt.Errorf("deepstore: put %s: %w", URI(d.uri, key), err)
		}
	}
	return err
}

// adopt makes an object durable that is there already: whoever put it may have died, or
// failed, before its last fsync.
func (d *dirStore) adopt(ctx context.Context, key string, size int64, digest segment.Digest) error {
	name := path.Join(d.prefix, key)
	f, err := d.fs.Open(name)
	if err != nil {
		return d.wrap("put", key, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		if err := d.compare(ctx, f, info.Size(), key, size, digest); err != nil {
			return err
		}
		err = vfs.Sync(f)
	}
	if err == nil {
		err = d.fs.MkdirAll(path.Dir(name), 0o755) // those above it, too
	}
	if err == nil {
		err = d.fs.SyncDir(path.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("deepstore: put %s: %w", URI(d.uri, key), err)
	}
	return nil
}

func (d *dirStore) put(ctx context.Context, key string, r io.ReaderAt, size int64, digest segment.Digest) error {
	final := path.Join(d.prefix, key)
	tmp := path.Join(d.uploads(), path.Base(key)+"-"+uuid.NewString())
	if err := d.fs.MkdirAll(path.Dir(final), 0o755); err != nil {
		return err
	}
	f, err := d.fs.Create(tmp)
	if errors.Is(err, fs.ErrNotExist) { // somebody tidied up
		if err = d.fs.MkdirAll(d.uploads(), 0o755); err == nil {
			f, err = d.fs.Create(tmp)
		}
	}
	if err != nil {
		return err
	}
	if err := copyVerified(ctx, f, r, size, digest); err != nil {
		return errors.Join(err, f.Close(), d.fs.Remove(tmp))
	}
	// Should another upload have come first meanwhile, it put the same bytes
	// under this name, and replacing them changes nothing.
	err = vfs.Publish(d.fs, f, tmp, final)
	if err == nil {
		return nil
	}
	if removeErr := d.fs.Remove(tmp); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

// copyVerified copies size bytes of r to w and fails if they are not those of
// the digest.
func copyVerified(ctx context.Context, w io.Writer, r io.ReaderAt, size int64, digest segment.Digest) error {
	got, err := hash(ctx, w, io.NewSectionReader(r, 0, size), size)
	if err != nil {
		return err
	}
	if got != digest {
		return fmt.Errorf("%w: digest is %s, not %s", ErrBadSource, got, digest)
	}
	return nil
}

// hash reads exactly size bytes of r, passes them to w (nil: nowhere) and
// returns their digest.
func hash(ctx context.Context, w io.Writer, r io.Reader, size int64) (segment.Digest, error) {
	var h segment.PieceHasher
	buf := make([]byte, 256<<10)
	for left := size; left > 0; {
		if ctx.Err() != nil {
			return segment.Digest{}, context.Cause(ctx)
		}
		n, err := io.ReadFull(r, buf[:min(int64(len(buf)), left)])
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return segment.Digest{}, err
		}
		h.Write(buf[:n]) // never fails
		if w != nil {
			if _, err := w.Write(buf[:n]); err != nil {
				return segment.Digest{}, err
			}
		}
		left -= int64(n)
	}
	_, digest := h.Sum()
	return digest, nil
}

func (d *dirStore) Head(ctx context.Context, key string) (Info, error) {
	name, err := d.file(key)
	if err != nil {
		return Info{}, err
	}
	return dirCall(ctx, d, "head "+URI(d.uri, key), func() (Info, error) {
		info, err := d.fs.Stat(name)
		if err != nil {
			return Info{}, d.wrap("head", key, err)
		}
		return Info{Key: key, SizeBytes: info.Size(), ModTime: info.ModTime()}, nil
	}, nil)
}

// Verify reads the whole file: a directory has nobody else who could vouch for
// its bytes, and the sidecar beside them says only what they should be.
func (d *dirStore) Verify(ctx context.Context, key string, size int64, digest segment.Digest) error {
	name, err := d.file(key)
	if err != nil {
		return err
	}
	s, err := dirCall(ctx, d, "verify "+URI(d.uri, key), func() (*section, error) { return d.open(ctx, name, key, 0, -1) }, (*section).drop)
	if err != nil {
		return err
	}
	defer s.Close()
	return d.compare(ctx, s, s.left, key, size, digest)
}

// compare judges an object of which got bytes are there to be read.
func (d *dirStore) compare(ctx context.Context, r io.Reader, got int64, key string, size int64, digest segment.Digest) error {
	if got != size {
		return &DifferentError{Key: key, WantSize: size, GotSize: got, WantDigest: digest}
	}
	sum, err := hash(ctx, nil, r, size)
	if err != nil {
		return d.wrap("verify", key, err)
	}
	if sum != digest {
		return &DifferentError{Key: key, WantSize: size, GotSize: size, WantDigest: digest, GotDigest: sum}
	}
	return nil
}

func (d *dirStore) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	name, err := d.file(key)
	if err != nil {
		return nil, err
	}
	s, err := dirCall(ctx, d, "open "+URI(d.uri, key), func() (*section, error) { return d.open(ctx, name, key, off, n) }, (*section).drop)
	if err != nil {
		return nil, err // a nil *section must not become a reader
	}
	return s, nil
}

func (d *dirStore) open(ctx context.Context, name, key string, off, n int64) (*section, error) {
	f, err := d.fs.Open(name)
	if err != nil {
		return nil, d.wrap("open", key, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(d.wrap("open", key, err), f.Close())
	}
	if n < 0 {
		n = info.Size() - off
	}
	if off < 0 || n < 0 || n > info.Size()-off {
		return nil, errors.Join(fmt.Errorf("deepstore: open %s: bytes %d to %d of %d", URI(d.uri, key), off, off+n, info.Size()), f.Close())
	}
	return &section{ctx: ctx, store: d, key: key, file: f, off: off, left: n}, nil
}

// section reads a part of a file until its context ends, or nothing comes for idleMax.
// It has a buffer of its own, because what hangs may be written to when nobody waits for
// it any longer.
type section struct {
	ctx       context.Context
	store     *dirStore
	key       string
	file      vfs.File
	off, left int64
	buf       []byte
	err       error // that ended it
}

// sectionBuffer is how much is read at once.
const sectionBuffer = 256 << 10

func (s *section) Read(b []byte) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.ctx.Err() != nil:
		return 0, context.Cause(s.ctx)
	case s.left == 0:
		return 0, io.EOF
	}
	want := int(min(int64(len(b)), s.left, sectionBuffer))
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	buf, off := s.buf[:want], s.off
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.store.calls.idle, errNoAnswer)
	defer cancel()
	n, err := dirCall(ctx, s.store, "read "+URI(s.store.uri, s.key), func() (int, error) { return s.file.ReadAt(buf, off) }, nil)
	n = copy(b, buf[:n])
	s.off, s.left = s.off+int64(n), s.left-int64(n)
	switch {
	case err == io.EOF && s.left == 0:
		err = nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF // it is shorter than it was
	}
	s.err = err
	return n, err
}

func (s *section) Close() error { return s.file.Close() }

func (s *section) drop() { s.file.Close() }

func (d *dirStore) Delete(ctx context.Context, key string) error {
	name, err := d.file(key)
	if err != nil {
		return err
	}
	_, err = dirCall(ctx, d, "delete "+URI(d.uri, key), func() (struct{}, error) {
		return struct{}{}, d.delete(name, key)
	}, nil)
	return err
}

func (d *dirStore) delete(name, key string) error {
	err := d.fs.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = d.fs.SyncDir(path.Dir(name))
	}
	if err != nil {
		return d.wrap("delete", key, err)
	}
	return nil
}
