package meta

import (
	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/segment"
)

// Config is a table's configuration (DESIGN §6), complete: ParseConfig has put
// in every default.
type Config struct {
	Name        string           `json:"name" cbor:"1,keyasint"`
	Stream      StreamConfig     `json:"stream" cbor:"2,keyasint"`
	Format      segment.Format   `json:"format" cbor:"3,keyasint"`
	Replication int              `json:"replication" cbor:"4,keyasint"`
	Segment     SegmentConfig    `json:"segment" cbor:"5,keyasint"`
	Completion  CompletionConfig `json:"completion" cbor:"6,keyasint"`
	DeepStore   *DeepStoreConfig `json:"deepStore,omitempty" cbor:"7,keyasint,omitempty"`
	Download    DownloadPolicy   `json:"download" cbor:"8,keyasint"`
	Retention   RetentionConfig  `json:"retention" cbor:"9,keyasint"`
}

// MaxReplication bounds the replicas of a partition: their ids are in its record, and
// in those of its segments.
const MaxReplication = 10

// StreamConfig says where the rows come from.
type StreamConfig struct {
	Type string `json:"type" cbor:"1,keyasint"` // files
	// Path is the stream's directory, local, below the root that the process's
	// own configuration allows.
	Path string `json:"path,omitempty" cbor:"2,keyasint,omitempty"`
}

// SegmentConfig holds the end criteria of a segment and how it is written.
type SegmentConfig struct {
	MaxRows       int64           `json:"maxRows" cbor:"1,keyasint"`
	MaxBytes      config.Bytes    `json:"maxBytes" cbor:"2,keyasint"` // raw key, value and header bytes
	MaxAge        config.Duration `json:"maxAge" cbor:"3,keyasint"`   // from the first row
	Compression   string          `json:"compression" cbor:"4,keyasint"`
	RowGroupRows  int64           `json:"rowGroupRows" cbor:"5,keyasint"`
	RowGroupBytes config.Bytes    `json:"rowGroupBytes" cbor:"6,keyasint"`
}

// CompletionMode says what a replica does with KEEP.
type CompletionMode string

// The completion modes.
const (
	CompletionBuild    CompletionMode = "build"
	CompletionDownload CompletionMode = "download"
)

// CompletionConfig scales the completion protocol (PROTOCOL §2).
type CompletionConfig struct {
	Mode          CompletionMode  `json:"mode" cbor:"1,keyasint"`
	HoldTime      config.Duration `json:"holdTime" cbor:"2,keyasint"`
	CommitTimeout config.Duration `json:"commitTimeout" cbor:"3,keyasint"`
}

// DeepStoreConfig says where the backups go.
type DeepStoreConfig struct {
	URI        string          `json:"uri" cbor:"1,keyasint"`
	UploadWait config.Duration `json:"uploadWait" cbor:"2,keyasint"`
}

// DownloadPolicy orders the sources of a download.
type DownloadPolicy string

// The download policies.
const (
	DeepStoreFirst DownloadPolicy = "deepStoreFirst"
	PeersFirst     DownloadPolicy = "peersFirst"
	BothAtOnce     DownloadPolicy = "both"
)

// RetentionConfig bounds how long segments are kept.
type RetentionConfig struct {
	Age      config.Duration `json:"age" cbor:"1,keyasint"`
	LocalAge config.Duration `json:"localAge" cbor:"2,keyasint"` // 0 = as Age
}
