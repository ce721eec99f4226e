package node

import (
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/meta"
)

// ConsumptionConfig is which node consumes which partition.
type ConsumptionConfig struct {
	Node    string
	StoreID uuid.UUID
	Key     meta.PartitionKey
}

// FeedID names one reader of the partition, with its buffer. Numbers are never
// used again, so that what is said late of a feed that was closed is recognised.
type FeedID uint64

// ConsumptionEvent is something that happened to a partition's consumption.
type ConsumptionEvent interface{ consumptionEvent() }

// ImageSeen hands in the node's image: a newer one, or the same when it has
// caught up since. Incarnation is what the node speaks under; while it is 0
// nothing is begun.
type ImageSeen struct {
	Image       *meta.Image
	CaughtUp    bool
	Incarnation int64
}

// FeedMoved says how a feed stands. It is level, not edge: it follows whatever
// changed, and each series of Offers, and saying it again does no harm. Rows at
// or past Fetched are not taken before the next one.
type FeedMoved struct {
	Feed     FeedID
	Position int64  // offset of the first row that waits, or Fetched when none does
	Fetched  int64  // the reader's next-fetch position
	Taken    int64  // everything below it was taken, or never was
	End      int64  // of the stream, as far as known
	Epoch    string // of the stream, "" while unknown
	Waiting  bool   // rows wait
	Err      error  // why it ended; rows that wait are still good
}

// EffectDone is the result of an Effect: Answered, NoAnswer, Sealed, SealFailed,
// Uploaded, Downloaded or NoSource. Exactly one follows each Effect but
// StopDownload.
type EffectDone struct {
	Segment meta.SegmentKey
	Run     uint64
	Event   commit.ReplicaEvent
}

// BuilderFailed says that a run's builder could not be opened, or did not take a
// row. It takes no more.
type BuilderFailed struct {
	Segment meta.SegmentKey
	Run     uint64
	Err     error
}

// ConsumptionTick lets deadlines be seen; each other event does too.
type ConsumptionTick struct{}

func (ImageSeen) consumptionEvent()       {}
func (FeedMoved) consumptionEvent()       {}
func (EffectDone) consumptionEvent()      {}
func (BuilderFailed) consumptionEvent()   {}
func (ConsumptionTick) consumptionEvent() {}

// ConsumptionAction is something the shell is to do. Actions are carried out in
// their order, and before the next event is handed in.
type ConsumptionAction interface{ consumptionAction() }

// OpenFeed begins to read the partition at Offset, with room for feedSteady. An
// error, also of opening, comes out of FeedMoved. Private: it is for one run
// that builds anew while another has the partition's feed. Config is that of the
// segment that the feed is opened for.
type OpenFeed struct {
	Feed    FeedID
	Offset  int64
	Private bool
	Config  *meta.Config
}

// CloseFeed ends a feed and gives up what waits in it.
type CloseFeed struct{ Feed FeedID }

// SkipFeed drops the waiting rows below Offset.
type SkipFeed struct {
	Feed   FeedID
	Offset int64
}

// LimitFeed says how far a feed may read ahead from now on: feedSteady, or
// feedRollOver while nobody takes its rows.
type LimitFeed struct {
	Feed     FeedID
	RollOver bool
}

// OpenBuilder begins a new, empty builder at the segment's start; an older one
// of that run is dropped. The first one of a run is its beginning. BuilderFailed
// follows if that cannot be.
type OpenBuilder struct {
	Segment *meta.Segment // as it was when the run began
	Run     uint64
	Table   string
	Config  *meta.Config // exactly the version that the record names
}

// DropBuilder gives up a run's builder, if it still has one. Its rows are in the
// stream.
type DropBuilder struct {
	Segment meta.SegmentKey
	Run     uint64
}

// Effect is what a run's machine asks for: Send, Seal, Upload, Download or
// StopDownload. Seal takes the builder away from the run; if there is none,
// because it failed to open, the seal fails.
type Effect struct {
	Segment *meta.Segment
	Run     uint64
	Config  *meta.Config
	Do      commit.ReplicaAction
}

// Claim says that a run sees to the segment: its copies are left alone until
// Unclaim, which comes when the run is over and all its effects have come back.
type (
	Claim   struct{ Segment meta.SegmentKey }
	Unclaim struct{ Segment meta.SegmentKey }
)

// RollOverBegan says that nobody takes the rows of the partition's feed from now
// on; RollOverEnded that a run has that feed now, which may be another one that
// was opened in its place. A roll-over that began without an end did not come to
// be: the run was told to catch up.
type (
	RollOverBegan struct{ Feed FeedID }
	RollOverEnded struct{ Feed FeedID }
)

// RunMoved says that a run's machine changed its state, for the log.
type RunMoved struct {
	Segment    *meta.Segment
	Run        uint64
	Was, State commit.ReplicaState
	Offset     int64
}

// Ended says that a run is over: what it has under way may be cut short, and it
// asks for nothing more.
type Ended struct {
	Segment meta.SegmentKey
	Run     uint64
}

// ConfigMissing says that the image shows a segment for this node to consume,
// and lacks its table or the version of the configuration that it names.
type ConfigMissing struct{ Segment *meta.Segment }

func (OpenFeed) consumptionAction()      {}
func (CloseFeed) consumptionAction()     {}
func (SkipFeed) consumptionAction()      {}
func (LimitFeed) consumptionAction()     {}
func (OpenBuilder) consumptionAction()   {}
func (DropBuilder) consumptionAction()   {}
func (Effect) consumptionAction()        {}
func (Claim) consumptionAction()         {}
func (Unclaim) consumptionAction()       {}
func (RollOverBegan) consumptionAction() {}
func (RollOverEnded) consumptionAction() {}
func (RunMoved) consumptionAction()      {}
func (Ended) consumptionAction()         {}
func (ConfigMissing) consumptionAction() {}

// Reading is a run that takes the rows of a feed.
type Reading struct {
	Feed    FeedID
	Segment meta.SegmentKey
	Run     uint64
}

// RunView is how a run stands.
type RunView struct {
	Segment   *meta.Segment
	Run       uint64
	Table     string
	State     commit.ReplicaState
	Position  int64
	Rows      int64
	Bytes     int64
	LastError string
	// StreamEnd is that of the stream as the partition's feed knows it, 0 if there
	// is no such feed.
	StreamEnd int64
}

// replicaConfig is what the machine of a segment's run is born with.
func (c *Consumption) replicaConfig(s *meta.Segment, cfg *meta.Config) commit.ReplicaConfig {
	return commit.ReplicaConfig{
		Key:     commit.Key{Table: s.Table, Partition: s.Partition, Seq: s.Seq},
		Segment: s.Name, Instance: c.cfg.Node, Incarnation: c.incarnation, StoreID: c.cfg.StoreID,
		StreamEpoch: s.StreamEpoch, Start: s.Start,
		MaxRows: cfg.Segment.MaxRows, MaxBytes: int64(cfg.Segment.MaxBytes), MaxAge: time.Duration(cfg.Segment.MaxAge),
		Timing:     commit.Timing{Hold: time.Duration(cfg.Completion.HoldTime), CommitTimeout: time.Duration(cfg.Completion.CommitTimeout)},
		Download:   cfg.Completion.Mode == meta.CompletionDownload,
		UploadWait: uploadWait(cfg), Attempt: s.Attempt,
	}
}

func uploadWait(cfg *meta.Config) time.Duration {
	if cfg.DeepStore == nil {
		return 0
	}
	return time.Duration(cfg.DeepStore.UploadWait)
}
