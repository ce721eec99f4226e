package commit

import (
	"fmt"

	"github.com/google/uuid"
)

// Bounds of what a message may carry. maxErrorBytes is what a replica cuts its
// own error to.
const (
	maxNameBytes    = 512
	maxErrorBytes   = 4096
	maxURIBytes     = 4096
	maxExtraTimeSec = 24 * 3600
)

// InvalidMessage says why a message is malformed: it is answered 400, and no
// machine ever sees it.
type InvalidMessage struct {
	Field   string // the JSON name, or "message" for its kind
	Problem string
}

func (e *InvalidMessage) Error() string {
	return fmt.Sprintf("commit: malformed message: %s %s", e.Field, e.Problem)
}

// check is one condition of a well-formed message.
type check struct {
	ok      bool
	field   string
	problem string
}

// Validate returns an *InvalidMessage if the message is malformed. Whether what
// it says is true is the controller's to find out.
func (m *Message) Validate() error {
	checks := []check{
		{m.Table != uuid.Nil, "tableId", "is missing"},
		{m.Partition >= 0, "partition", "is negative"},
		{m.Seq >= 0, "seq", "is negative"},
		{m.Segment != "", "segment", "is missing"},
		{len(m.Segment) <= maxNameBytes, "segment", "is too long"},
		{m.Instance != "", "instance", "is missing"},
		{len(m.Instance) <= maxNameBytes, "instance", "is too long"},
		{m.Incarnation > 0, "incarnation", "is not positive"},
		{len(m.StreamEpoch) <= maxNameBytes, "streamEpoch", "is too long"},
		{m.Offset >= 0, "offset", "is negative"},
		{m.Rows >= 0, "rows", "is negative"},
		{m.Bytes >= 0, "bytes", "is negative"},
		{len(m.Error) <= maxErrorBytes, "error", "is too long"},
		{len(m.DeepStoreURI) <= maxURIBytes, "deepStoreUri", "is too long"},
	}
	for _, c := range append(checks, m.kindChecks()...) {
		if !c.ok {
			return &InvalidMessage{c.field, c.problem}
		}
	}
	return nil
}

// kindChecks are the conditions of the message's own kind.
func (m *Message) kindChecks() []check {
	switch m.Kind {
	case SegmentConsumed:
		return []check{{m.Reason.valid(), "reason", fmt.Sprintf("%q is none of the reasons", m.Reason)}}
	case SegmentStoppedConsuming:
		return []check{{m.Reason == "" || m.Reason.valid(), "reason", fmt.Sprintf("%q is none of the reasons", m.Reason)}}
	case SegmentCommitStart:
		return nil
	case SegmentCommitEnd:
		return []check{
			{m.Rows > 0, "rows", "is not positive: a segment without rows is never committed"},
			{!m.Digest.IsZero(), "digest", "is missing"},
			{m.SizeBytes > 0, "sizeBytes", "is not positive"},
			{m.StoreID != uuid.Nil, "storeId", "is missing"},
		}
	case ExtendBuildTime:
		return []check{{m.ExtraTimeSec > 0 && m.ExtraTimeSec <= maxExtraTimeSec, "extraTimeSec", "is not between 1 and 86400"}}
	}
	return []check{{false, "message", fmt.Sprintf("%q is none of the protocol's", m.Kind)}}
}

func (r Reason) valid() bool {
	switch r {
	case RowLimit, SizeLimit, TimeLimit, ForceCommit, EndOfPartition:
		return true
	}
	return false
}
