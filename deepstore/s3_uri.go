package deepstore

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/shoalstore/shoal/internal/config"
)

// s3Place is what s3://bucket/prefix names.
type s3Place struct {
	bucket string
	prefix string // without slashes at its ends; empty: the whole bucket
}

// S3 takes keys of 1024 bytes. The longest key of the layout is below 512.
const s3PrefixMax = 512

var (
	s3Bucket = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]$`)
	// s3Prefix has what every endpoint takes as it is, in URLs and in signatures.
	s3Prefix = regexp.MustCompile(`^[A-Za-z0-9!_.*'()=/-]*$`)
)

// parseS3 reads the URI of a store, or of a root, in S3.
func parseS3(uri string) (s3Place, error) {
	bad := func(why string) (s3Place, error) {
		return s3Place{}, fmt.Errorf("deepstore: %q: %s", clip(config.WithoutSecrets(uri)), why)
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil || u.Scheme != "s3" || u.Opaque != "":
		return bad("want s3://bucket/prefix")
	case u.User != nil:
		// Not printed: what stands there may be a secret.
		return s3Place{}, fmt.Errorf("deepstore: s3://…@%s: credentials do not belong into a URI", clip(u.Host))
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("want s3://bucket/prefix and nothing after it")
	case !s3Bucket.MatchString(u.Host):
		return bad("a bucket has 3 to 63 letters, digits, dots, hyphens and underscores")
	}
	p := s3Place{bucket: u.Host, prefix: strings.Trim(u.Path, "/")}
	switch {
	case len(p.prefix) > s3PrefixMax:
		return bad(fmt.Sprintf("a prefix has at most %d bytes", s3PrefixMax))
	case strings.Contains(u.EscapedPath(), "%") || !s3Prefix.MatchString(p.prefix):
		return bad("a prefix has letters, digits, and !_.*'()=- between its slashes")
	}
	for part := range strings.SplitSeq(p.prefix, "/") {
		if p.prefix != "" && (part == "" || part == "." || part == "..") {
			return bad("the prefix has . or .. or empty parts")
		}
	}
	return p, nil
}

// String is the URI, without a slash at its end.
func (p s3Place) String() string {
	if p.prefix == "" {
		return "s3://" + p.bucket
	}
	return "s3://" + p.bucket + "/" + p.prefix
}

// key is the object's key in the bucket.
func (p s3Place) key(key string) string {
	if p.prefix == "" {
		return key
	}
	return p.prefix + "/" + key
}

// below reports whether p is root or below it.
func (p s3Place) below(root s3Place) bool {
	return p.bucket == root.bucket &&
		(root.prefix == "" || p.prefix == root.prefix || strings.HasPrefix(p.prefix, root.prefix+"/"))
}
