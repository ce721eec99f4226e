package deepstore

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/shoalstore/shoal/internal/config"
)

// ErrNotAllowed says that a URI leaves the directories and buckets that the
// process's own configuration allows. A table's configuration comes over the
// network and must not choose where a process writes.
var ErrNotAllowed = errors.New("deepstore: not below an allowed root")

// Open opens the store of a URI: file:///dir or s3://bucket/prefix, which is one of
// the roots or below one. Roots are directories and s3:// URIs of the process's own
// configuration. A directory is made if it is not there, and symbolic links do not
// lead out of it; S3 is not asked yet.
func Open(uri string, roots []string, s3 S3Config) (Store, error) {
	return NewOpener(roots, s3).Store(uri)
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
	_, err := place(uri, roots)
	return err
}

// Validate adds what is wrong with a process's settings of deep stores, as far as
// that can be told without touching a store. With a root in S3, environment and
// shared files are read: without a region there, not one upload would succeed.
func Validate(roots []string, s3 S3Config, faults *config.Faults) {
	inS3 := false
	for _, root := range roots {
		if err := checkRoot(root); err != nil {
			faults.Addf("deepstoreRoot", "", "%v", err)
		} else if isS3(root) {
			inS3 = true
		}
	}
	err := s3.Validate()
	if err == nil && inS3 {
		_, err = newS3Client(s3)
	}
	if err != nil {
		faults.Addf("s3", "", "%v", err)
	}
}

func checkRoot(root string) error {
	switch {
	case root == "":
		return errors.New("deepstore: a root is a directory or s3://bucket/prefix, not nothing")
	case isS3(root):
		_, err := parseS3(root)
		return err
	case strings.Contains(root, "://"):
		return fmt.Errorf("deepstore: root %q: want a directory or s3://bucket/prefix", clip(config.WithoutSecrets(root)))
	}
	return nil
}

// placed is where a store is: in S3, or in a directory below a root.
type placed struct {
	s3           bool
	inS3         s3Place
	root, prefix string
}

// place finds the root that a URI is below.
func place(uri string, roots []string) (placed, error) {
	if isS3(uri) {
		return placeS3(uri, roots)
	}
	dir, err := checkFileURI(uri)
	if err != nil {
		return placed{}, err
	}
	for _, root := range roots {
		if isS3(root) {
			continue
		}
		if prefix, ok, err := below(root, dir); err != nil || ok {
			return placed{root: root, prefix: prefix}, err
		}
	}
	return placed{}, notAllowed(uri, roots)
}

func placeS3(uri string, roots []string) (placed, error) {
	at, err := parseS3(uri)
	if err != nil {
		return placed{}, err
	}
	for _, root := range roots {
		if !isS3(root) {
			continue
		}
		switch allowed, err := parseS3(root); {
		case err != nil:
			return placed{}, err
		case at.below(allowed):
			return placed{s3: true, inS3: at}, nil
		}
	}
	return placed{}, notAllowed(uri, roots)
}

func isS3(uri string) bool { return strings.HasPrefix(uri, "s3:") }

// checkFileURI returns the directory of a file:// URI.
func checkFileURI(uri string) (dir string, err error) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", fmt.Errorf("deepstore: %w", err)
	}
	switch {
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
