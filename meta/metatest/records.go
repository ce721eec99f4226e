// Package metatest makes records, batches and images for tests: arbitrary
// records that exercise the encodings (records.go), a log that changes are made
// to as a leader makes them (log.go), and random walks of such changes
// (walk.go). What it generates depends on nothing but rapid's draws.
package metatest

import (
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/config"
	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

// Record generates records of every kind with arbitrary fields: they have an
// encoding, but need not make sense together.
func Record() *rapid.Generator[meta.Record] {
	return rapid.OneOf(
		as(Cluster()), as(Leader()), as(Table()), as(TableConfig()), as(Partition()),
		as(Segment()), as(Tombstone()), as(Node()), as(Job()),
	)
}

// as widens a generator of one type of record.
func as[R meta.Record](g *rapid.Generator[R]) *rapid.Generator[meta.Record] {
	return rapid.Map(g, func(r R) meta.Record { return r })
}

// Batch generates batches of arbitrary records and keys.
func Batch() *rapid.Generator[*meta.Batch] {
	return rapid.Custom(func(t *rapid.T) *meta.Batch {
		b := &meta.Batch{
			Offset:  rapid.Int64Min(0).Draw(t, "offset"),
			Epoch:   rapid.Int64Min(0).Draw(t, "epoch"),
			Term:    UUID().Draw(t, "term"),
			Time:    rapid.Int64().Draw(t, "time"),
			Upserts: nonEmpty(rapid.SliceOfN(Record(), 0, 8).Draw(t, "upserts")),

			SnapshotHere: rapid.Bool().Draw(t, "snapshot here"),
		}
		for _, r := range rapid.SliceOfN(Record(), 0, 4).Draw(t, "removals") {
			b.Removals = append(b.Removals, r.Key())
		}
		return b
	})
}

// UUID generates identifiers, the zero one included.
func UUID() *rapid.Generator[uuid.UUID] {
	return rapid.Custom(func(t *rapid.T) (u uuid.UUID) {
		copy(u[:], bytesOf(t, len(u)))
		return u
	})
}

func bytesOf(t *rapid.T, n int) []byte {
	if rapid.IntRange(0, 9).Draw(t, "zero") == 0 {
		return make([]byte, n)
	}
	return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes")
}

func digest(t *rapid.T) (d segment.Digest) {
	copy(d[:], bytesOf(t, len(d)))
	return d
}

// text is any UTF-8, what JSON has to escape included.
func text() *rapid.Generator[string] { return rapid.StringN(0, 24, 64) }

func texts(t *rapid.T, name string) []string {
	return nonEmpty(rapid.SliceOfN(text(), 0, 4).Draw(t, name))
}

// nonEmpty is the canonical form of a slice: nil if it is empty.
func nonEmpty[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func maybe[T any](t *rapid.T, name string, g *rapid.Generator[T]) *T {
	return rapid.Ptr(g, true).Draw(t, name)
}

// fill draws each of the numbers.
func fill(t *rapid.T, numbers ...*int64) {
	for _, n := range numbers {
		*n = rapid.Int64().Draw(t, "number")
	}
}

// Cluster generates cluster records.
func Cluster() *rapid.Generator[*meta.Cluster] {
	return rapid.Custom(func(t *rapid.T) *meta.Cluster {
		return &meta.Cluster{ID: UUID().Draw(t, "id"), FormatVersion: rapid.Int().Draw(t, "formatVersion")}
	})
}

// Leader generates leader records.
func Leader() *rapid.Generator[*meta.Leader] {
	return rapid.Custom(func(t *rapid.T) *meta.Leader {
		return &meta.Leader{
			Epoch: rapid.Int64().Draw(t, "epoch"), Term: UUID().Draw(t, "term"),
			Controller: text().Draw(t, "controller"), URL: text().Draw(t, "url"),
		}
	})
}

// Table generates table records.
func Table() *rapid.Generator[*meta.Table] {
	pause := rapid.Custom(func(t *rapid.T) meta.Pause {
		return meta.Pause{Reason: text().Draw(t, "reason"), By: text().Draw(t, "by")}
	})
	return rapid.Custom(func(t *rapid.T) *meta.Table {
		return &meta.Table{
			ID: UUID().Draw(t, "id"), Name: text().Draw(t, "name"),
			State: rapid.SampledFrom([]meta.TableState{
				meta.TableCreating, meta.TableActive, meta.TablePaused, meta.TableDeleting,
			}).Draw(t, "state"),
			Pause:         maybe(t, "pause", pause),
			ConfigVersion: rapid.Int().Draw(t, "configVersion"),
			CreatedAt:     rapid.Int64().Draw(t, "createdAt"),
			LastError:     text().Draw(t, "lastError"),
			ConsumeFrom:   meta.ConsumeFrom(text().Draw(t, "consumeFrom")),
		}
	})
}

// TableConfig generates table configurations, which need not be valid. Sizes
// and durations are not negative: those have no text form.
func TableConfig() *rapid.Generator[*meta.TableConfig] {
	column := rapid.Custom(func(t *rapid.T) segment.Column {
		return segment.Column{
			Name: text().Draw(t, "name"), Path: text().Draw(t, "path"),
			Type: segment.ColumnType(text().Draw(t, "type")),
		}
	})
	return rapid.Custom(func(t *rapid.T) *meta.TableConfig {
		duration := func(name string) config.Duration {
			return config.Duration(rapid.Int64Min(0).Draw(t, name))
		}
		c := &meta.TableConfig{Table: UUID().Draw(t, "table"), Version: rapid.Int().Draw(t, "version")}
		c.Config = meta.Config{
			Name:   text().Draw(t, "name"),
			Stream: meta.StreamConfig{Type: text().Draw(t, "streamType"), Path: text().Draw(t, "path")},
			Format: segment.Format{
				Type: segment.FormatType(text().Draw(t, "format")), Timestamp: text().Draw(t, "timestamp"),
				OnError: text().Draw(t, "onError"), KeepValue: maybe(t, "keepValue", rapid.Bool()),
				Columns: nonEmpty(rapid.SliceOfN(column, 0, 3).Draw(t, "columns")),
			},
			Replication: rapid.Int().Draw(t, "replication"),
			Segment: meta.SegmentConfig{
				MaxRows: rapid.Int64().Draw(t, "maxRows"), MaxBytes: config.Bytes(rapid.Int64Min(0).Draw(t, "maxBytes")),
				MaxAge: duration("maxAge"), Compression: text().Draw(t, "compression"),
				RowGroupRows:  rapid.Int64().Draw(t, "rowGroupRows"),
				RowGroupBytes: config.Bytes(rapid.Int64Min(0).Draw(t, "rowGroupBytes")),
			},
			Completion: meta.CompletionConfig{
				Mode: meta.CompletionMode(text().Draw(t, "mode")), HoldTime: duration("holdTime"),
				CommitTimeout: duration("commitTimeout"),
			},
			Download:  meta.DownloadPolicy(text().Draw(t, "download")),
			Retention: meta.RetentionConfig{Age: duration("age"), LocalAge: duration("localAge")},
		}
		if rapid.Bool().Draw(t, "deepStore") {
			c.Config.DeepStore = &meta.DeepStoreConfig{URI: text().Draw(t, "uri"), UploadWait: duration("uploadWait")}
		}
		return c
	})
}

// Partition generates partition records.
func Partition() *rapid.Generator[*meta.Partition] {
	hole := rapid.Custom(func(t *rapid.T) meta.Hole {
		return meta.Hole{
			From: rapid.Int64().Draw(t, "from"), To: rapid.Int64().Draw(t, "to"), Why: text().Draw(t, "why"),
		}
	})
	return rapid.Custom(func(t *rapid.T) *meta.Partition {
		p := &meta.Partition{
			Table: UUID().Draw(t, "table"), Partition: rapid.Int32().Draw(t, "partition"),
			Replicas: texts(t, "replicas"), StreamEpoch: text().Draw(t, "streamEpoch"),
			State: rapid.SampledFrom([]meta.PartitionState{
				meta.PartitionConsuming, meta.PartitionPaused, meta.PartitionEnded, meta.PartitionError,
			}).Draw(t, "state"),
			Holes: nonEmpty(rapid.SliceOfN(hole, 0, 3).Draw(t, "holes")),
		}
		fill(t, &p.NextSeq, &p.NextOffset, &p.FirstRetained)
		return p
	})
}

// Segment generates segment records.
func Segment() *rapid.Generator[*meta.Segment] {
	location := rapid.Custom(func(t *rapid.T) meta.Location {
		return meta.Location{
			Node: text().Draw(t, "node"), StoreID: UUID().Draw(t, "storeId"), URI: text().Draw(t, "uri"),
			Since: rapid.Int64().Draw(t, "since"), Verified: rapid.Bool().Draw(t, "verified"),
		}
	})
	endRequested := rapid.Custom(func(t *rapid.T) meta.EndRequested {
		return meta.EndRequested{Reason: text().Draw(t, "reason"), Job: UUID().Draw(t, "job")}
	})
	lastError := rapid.Custom(func(t *rapid.T) meta.LastError {
		return meta.LastError{Node: text().Draw(t, "node"), At: rapid.Int64().Draw(t, "at"), Error: text().Draw(t, "error")}
	})
	return rapid.Custom(func(t *rapid.T) *meta.Segment {
		s := &meta.Segment{
			Table: UUID().Draw(t, "table"), Partition: rapid.Int32().Draw(t, "partition"), Name: text().Draw(t, "name"),
			Status: rapid.SampledFrom([]meta.SegmentStatus{
				meta.SegmentInProgress, meta.SegmentDone, meta.SegmentLost,
			}).Draw(t, "status"),
			Digest:          digest(t),
			SHA256:          segment.SHA256(digest(t)),
			RowsDigest:      segment.RowsDigest(UUID().Draw(t, "rowsDigest")),
			LastLeaderEpoch: rapid.Int32().Draw(t, "lastLeaderEpoch"),
			Generation:      rapid.Int().Draw(t, "generation"), ConfigVersion: rapid.Int().Draw(t, "configVersion"),
			StreamEpoch: text().Draw(t, "streamEpoch"),
			Replicas:    texts(t, "replicas"), Attempt: rapid.Int().Draw(t, "attempt"),
			EndRequested: maybe(t, "endRequested", endRequested),
			Locations:    nonEmpty(rapid.SliceOfN(location, 0, 4).Draw(t, "locations")),
			Committer:    text().Draw(t, "committer"),
			LastError:    maybe(t, "lastError", lastError),
		}
		x := &s.Times
		fill(t, &s.Seq, &s.Start, &s.End, &s.Rows, &s.SizeBytes, &s.MinTimestamp, &s.MaxTimestamp, &s.LeaderEpoch,
			&x.Created, &x.FirstConsumed, &x.WinnerDecided, &x.CommitStarted, &x.Committed, &x.SecondCopy,
			&x.Replicated, &x.Uploaded, &x.DeepStore, &x.EndRequested, &x.Recommitted, &x.LastLocation)
		return s
	})
}

// Tombstone generates tombstones.
func Tombstone() *rapid.Generator[*meta.Tombstone] {
	return rapid.Custom(func(t *rapid.T) *meta.Tombstone {
		s := &meta.Tombstone{
			Table: UUID().Draw(t, "table"), Partition: rapid.Int32().Draw(t, "partition"),
			DeepStoreKeys: texts(t, "deepStoreKeys"), Expired: rapid.Bool().Draw(t, "expired"), Store: text().Draw(t, "store"),
		}
		fill(t, &s.Seq, &s.DeletedAt)
		return s
	})
}

// Node generates node records.
func Node() *rapid.Generator[*meta.Node] {
	return rapid.Custom(func(t *rapid.T) *meta.Node {
		n := &meta.Node{
			ID: text().Draw(t, "id"), URL: text().Draw(t, "url"), Zone: text().Draw(t, "zone"), Tags: texts(t, "tags"),
			StoreID: UUID().Draw(t, "storeId"), BootID: UUID().Draw(t, "bootId"),
			State: rapid.SampledFrom([]meta.NodeState{meta.NodeUp, meta.NodeDown, meta.NodeDraining}).Draw(t, "state"),
		}
		fill(t, &n.CapacityBytes, &n.Incarnation, &n.LocationsSeq)
		return n
	})
}

// Job generates job records.
func Job() *rapid.Generator[*meta.Job] {
	return rapid.Custom(func(t *rapid.T) *meta.Job {
		j := &meta.Job{
			ID: UUID().Draw(t, "id"), Kind: text().Draw(t, "kind"),
			State:   rapid.SampledFrom([]meta.JobState{meta.JobRunning, meta.JobDone, meta.JobFailed}).Draw(t, "state"),
			Created: rapid.Int64().Draw(t, "created"),
			Args:    rapid.MapOfN(text(), text(), 0, 3).Draw(t, "args"),
			Counts:  rapid.MapOfN(text(), rapid.Int64(), 0, 3).Draw(t, "counts"),
		}
		if len(j.Args) == 0 {
			j.Args = nil
		}
		if len(j.Counts) == 0 {
			j.Counts = nil
		}
		return j
	})
}
