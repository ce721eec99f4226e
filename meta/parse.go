package meta

import (
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/segment"
)

// StreamFiles is the stream type of a directory of append-only files.
const StreamFiles = "files"

// The URI schemes of deep stores.
const (
	DeepStoreFile = "file"
	DeepStoreS3   = "s3"
)

// DefaultConfig returns the configuration of which a table's file needs to say
// only what differs: it lacks a name and a stream.
func DefaultConfig() *Config {
	return &Config{
		Stream:      StreamConfig{Type: StreamFiles},
		Format:      segment.Format{Type: segment.FormatRaw, OnError: "keep"},
		Replication: 3,
		Segment: SegmentConfig{
			MaxRows:       1_000_000,
			MaxBytes:      256 << 20,
			MaxAge:        config.Duration(time.Hour),
			Compression:   segment.CompressionZstd,
			RowGroupRows:  segment.DefaultRowGroupRows,
			RowGroupBytes: segment.DefaultRowGroupBytes,
		},
		Completion: CompletionConfig{
			Mode:          CompletionBuild,
			HoldTime:      config.Duration(3 * time.Second),
			CommitTimeout: config.Duration(120 * time.Second),
		},
		Download:  DeepStoreFirst,
		Retention: RetentionConfig{Age: config.Duration(720 * time.Hour)},
	}
}

// ParseConfig reads a table's configuration from YAML or JSON and puts in the
// defaults. The error is config.Faults with every fault there is, those of
// syntax and type and those of Validate; name says in them where the document
// came from.
func ParseConfig(name string, data []byte) (*Config, error) {
	c := DefaultConfig()
	var faults config.Faults
	switch err := config.Decode(name, data, c).(type) {
	case nil:
	case config.Faults:
		faults = err
	default:
		return nil, err
	}
	for _, f := range c.faults() {
		if !faults.Has(f.Field) { // what could not be read need not be judged
			faults = append(faults, f)
		}
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate returns every fault of the configuration as config.Faults, or nil.
// Whether the process can open the stream and the deep store is for it to say.
func (c *Config) Validate() error { return c.faults().Err() }

func (c *Config) faults() config.Faults {
	var faults config.Faults
	if err := segment.ValidTable(c.Name); err != nil {
		faults.Addf("name", c.Name, "%v", err)
	}
	c.Stream.validate(&faults)
	c.Format.Validate(func(field string, value any, format string, args ...any) {
		faults.Addf("format."+field, value, format, args...)
	})
	switch {
	case c.Replication < 1 || c.Replication > MaxReplication:
		faults.Addf("replication", c.Replication, "must be 1 to %d", MaxReplication)
	case c.Replication == 1 && c.DeepStore == nil:
		faults.Addf("replication", c.Replication, "must be 2 or more without a deepStore: one copy on one node is no durability")
	}
	c.Segment.validate(&faults)
	c.Completion.validate(&faults)
	if c.DeepStore != nil {
		c.DeepStore.validate(&faults, c.Completion.CommitTimeout)
	}
	oneOf(&faults, "download", c.Download, DeepStoreFirst, PeersFirst, BothAtOnce)
	c.validateRetention(&faults)
	return faults
}

func (s *StreamConfig) validate(faults *config.Faults) {
	if !oneOf(faults, "stream.type", s.Type, StreamFiles) {
		return
	}
	if problem := localPathProblem(s.Path); problem != "" {
		faults.Addf("stream.path", s.Path, "%s", problem)
	}
}

// localPathProblem says why p does not name a directory below the root that the
// process allows, or nothing.
func localPathProblem(p string) string {
	switch {
	case p == "":
		return "must name the stream's directory, below the root that the processes are configured with"
	case !fs.ValidPath(p) || p == ".":
		return "must be a plain relative path: slashes between names, no \".\" or \"..\", not starting or ending with a slash"
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == '\\' || r == ':' || r == 0x7f }):
		return "must not contain control characters, backslashes or colons"
	}
	return ""
}

func (s *SegmentConfig) validate(faults *config.Faults) {
	positive(faults, "segment.maxRows", s.MaxRows)
	positive(faults, "segment.maxBytes", s.MaxBytes)
	positive(faults, "segment.maxAge", s.MaxAge)
	oneOf(faults, "segment.compression", s.Compression,
		segment.CompressionZstd, segment.CompressionSnappy, segment.CompressionNone)
	positive(faults, "segment.rowGroupRows", s.RowGroupRows)
	positive(faults, "segment.rowGroupBytes", s.RowGroupBytes)
}

func (c *CompletionConfig) validate(faults *config.Faults) {
	oneOf(faults, "completion.mode", c.Mode, CompletionBuild, CompletionDownload)
	within(faults, "completion.holdTime", c.HoldTime, minHoldTime, maxCompletionTime)
	within(faults, "completion.commitTimeout", c.CommitTimeout, minCommitTimeout, maxCompletionTime)
}

func (d *DeepStoreConfig) validate(faults *config.Faults, commitTimeout config.Duration) {
	if problem := deepStoreURIProblem(d.URI); problem != "" {
		faults.Addf("deepStore.uri", config.WithoutSecrets(d.URI), "%s", problem)
	}
	switch {
	case d.UploadWait < 0:
		faults.Addf("deepStore.uploadWait", d.UploadWait, "must not be negative")
	case d.UploadWait > 0 && d.UploadWait >= commitTimeout:
		faults.Addf("deepStore.uploadWait", d.UploadWait,
			"must be shorter than completion.commitTimeout (%v), or an outage of the deep store stops commits", commitTimeout)
	}
}

// deepStoreURIProblem says why uri does not name a deep store, or nothing.
func deepStoreURIProblem(uri string) string {
	u, err := url.Parse(uri)
	switch {
	case err != nil || !utf8.ValidString(uri):
		return "is not a URI"
	case u.Scheme != DeepStoreFile && u.Scheme != DeepStoreS3:
		return "must begin with file:// or s3://"
	case u.User != nil:
		return "must not contain credentials: they belong to the process"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return "must not have a query or fragment"
	case u.Scheme == DeepStoreFile && (u.Host != "" || !path.IsAbs(u.Path) || path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/")):
		return "must be file:/// and a clean absolute path"
	case u.Scheme == DeepStoreS3 && (u.Host == "" || u.Port() != ""):
		return "must be s3:// and a bucket, with or without a prefix"
	case u.Scheme == DeepStoreS3 && !validPrefix(u.Path):
		return "has a prefix with an empty name, \".\" or \"..\" in it"
	}
	return ""
}

// validPrefix reports whether p, the path of a bucket's URI, is empty or a
// prefix of keys.
func validPrefix(p string) bool {
	p = strings.Trim(p, "/")
	return p == "" || fs.ValidPath(p)
}

func (c *Config) validateRetention(faults *config.Faults) {
	r := &c.Retention
	positive(faults, "retention.age", r.Age)
	switch {
	case r.LocalAge < 0:
		faults.Addf("retention.localAge", r.LocalAge, "must not be negative; 0 is as retention.age")
	case r.LocalAge > 0 && c.DeepStore == nil:
		faults.Addf("retention.localAge", r.LocalAge, "needs a deepStore, which keeps what the nodes drop")
	case r.LocalAge > r.Age:
		faults.Addf("retention.localAge", r.LocalAge, "must not be longer than retention.age (%v)", r.Age)
	}
}

// oneOf reports whether value is among the allowed ones, and a fault if not.
func oneOf[T ~string](faults *config.Faults, field string, value T, allowed ...T) bool {
	if slices.Contains(allowed, value) {
		return true
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	faults.Addf(field, string(value), "must be %s", strings.Join(names, " or "))
	return false
}

// The bounds of the completion's times. With a commitTimeout that is over before
// the committer has asked, every round is lost and nothing is ever committed; a
// holdTime of nothing is a busy loop; and multiples of both must not overflow.
const (
	minHoldTime       = config.Duration(10 * time.Millisecond)
	minCommitTimeout  = config.Duration(time.Second)
	maxCompletionTime = config.Duration(24 * time.Hour)
)

func within(faults *config.Faults, field string, value, least, most config.Duration) {
	if value < least || value > most {
		faults.Addf(field, value, "must be from %v to %v", least, most)
	}
}

func positive[T ~int64](faults *config.Faults, field string, value T) {
	if value <= 0 {
		faults.Addf(field, value, "must be more than 0")
	}
}
