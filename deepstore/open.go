package deepstore

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/shoalstore/shoal/internal/vfs"
)

// ErrNoS3 says that a URI wants S3.
var ErrNoS3 = errors.New("deepstore: this build has no S3 yet; use file:///dir")

// ErrNotAllowed says that a URI leaves the directories that the process's own
// configuration allows. A table's configuration comes over the network and must
// not choose where a process writes.
var ErrNotAllowed = errors.New("deepstore: not below an allowed root")

// Open opens the store of a URI: file:///dir, where dir is one of roots or below
// one. The roots are directories of the process's own configuration and are made
// if they are not there; symbolic links do not lead out of them.
func Open(uri string, roots []string) (Store, error) {
	dir, err := checkURI(uri)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		prefix, ok, err := below(root, dir)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		fsys, err := vfs.OS(root)
		if err != nil {
			return nil, fmt.Errorf("deepstore: %s: %w", uri, err)
		}
		return NewDir(fsys, prefix, uri)
	}
	return nil, notAllowed(uri, roots)
}

// notAllowed says what is, and which setting that is.
func notAllowed(uri string, roots []string) error {
	if len(roots) == 0 {
		return fmt.Errorf("%w: %s: none is configured (--deepstore-root)", ErrNotAllowed, uri)
	}
	return fmt.Errorf("%w: %s (--deepstore-root allows %s)", ErrNotAllowed, uri, strings.Join(roots, ", "))
}

// CheckURI reports whether Open could open the URI, as far as that can be told
// without touching anything: to validate a table's configuration.
func CheckURI(uri string, roots []string) error {
	dir, err := checkURI(uri)
	if err != nil {
		return err
	}
	for _, root := range roots {
		if _, ok, err := below(root, dir); err != nil || ok {
			return err
		}
	}
	return notAllowed(uri, roots)
}

// checkURI returns the directory of a file:// URI.
func checkURI(uri string) (dir string, err error) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", fmt.Errorf("deepstore: %w", err)
	}
	switch {
	case u.Scheme == "s3":
		return "", fmt.Errorf("%w: %s", ErrNoS3, uri)
	case u.Scheme != "file":
		return "", fmt.Errorf("deepstore: %q: want file:///dir or s3://bucket/prefix", clip(uri))
	case u.Host != "":
		return "", fmt.Errorf("deepstore: %s: a file URI has three slashes (file:///dir), this one names host %q", uri, u.Host)
	case u.RawQuery != "" || u.Fragment != "" || !path.IsAbs(u.Path):
		return "", fmt.Errorf("deepstore: %q: want file:///dir and nothing after it", clip(uri))
	case path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") && u.Path != "/":
		return "", fmt.Errorf("deepstore: %q: the path has . or .. or empty parts", clip(uri))
	}
	return path.Clean(u.Path), nil
}

// below reports whether dir is root or below it, by name, and where.
func below(root, dir string) (prefix string, ok bool, err error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return "", false, fmt.Errorf("deepstore: root %s: %w", root, err)
	}
	rel, err := filepath.Rel(abs, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false, nil
	}
	return filepath.ToSlash(rel), true, nil
}

// FileURI is the URI of a directory.
func FileURI(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("deepstore: %w", err)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), nil
}
