package metalog

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// SnapshotID names a snapshot: it holds everything in [0, EndOffset), and Epoch is
// that of the batch at EndOffset-1. The log resumes at EndOffset.
type SnapshotID struct {
	EndOffset int64 `json:"endOffset"`
	Epoch     int64 `json:"epoch"`
}

// String is the id as file names and URLs have it: twenty digits, a dash, ten.
func (id SnapshotID) String() string { return fmt.Sprintf("%020d-%010d", id.EndOffset, id.Epoch) }

// Compare orders ids by epoch, then by end offset.
func (id SnapshotID) Compare(other SnapshotID) int {
	return cmp.Or(cmp.Compare(id.Epoch, other.Epoch), cmp.Compare(id.EndOffset, other.EndOffset))
}

// ParseSnapshotID is the inverse of String; it accepts no other spelling.
func ParseSnapshotID(s string) (SnapshotID, error) {
	if len(s) != 31 || s[20] != '-' {
		return SnapshotID{}, fmt.Errorf("metalog: snapshot id %q is not <20 digits>-<10 digits>", s)
	}
	end, err1 := strconv.ParseUint(s[:20], 10, 63)
	epoch, err2 := strconv.ParseUint(s[21:], 10, 63)
	if err := cmp.Or(err1, err2); err != nil {
		return SnapshotID{}, fmt.Errorf("metalog: snapshot id %q: %w", s, err)
	}
	return SnapshotID{EndOffset: int64(end), Epoch: int64(epoch)}, nil
}

// SnapshotRef is what a follower is told of a snapshot, enough to fetch it from
// any holder of the same bytes.
type SnapshotRef struct {
	SnapshotID
	SizeBytes int64          `json:"sizeBytes"`
	Digest    segment.Digest `json:"digest"`
}

// Position is where a log ends, in the sense that two logs which agree on it agree
// on everything before: the next offset, and epoch and term of the batch before it
// (both zero at offset 0).
type Position struct {
	Offset    int64
	LastEpoch int64
	LastTerm  uuid.UUID
}

// FetchState is the part of a leader that decides an answer. Epochs is in order of
// epoch and of end; it covers the batch before LogStart too, if there is one.
type FetchState struct {
	LogStart, HighWatermark int64
	Epochs                  []EpochEnd
	Earliest, Latest        *SnapshotRef // both nil without a snapshot
}

// AnswerKind says which of the fields of an Answer counts.
type AnswerKind int

// The kinds of answer.
const (
	AnswerFrames    AnswerKind = iota // frames from the offset asked for, maybe none yet
	AnswerSnapshot                    // fetch this snapshot first
	AnswerDiverging                   // the log asked from is not a prefix of this one
	AnswerBroken                      // the log starts past 0 and there is no snapshot
)

// Answer is what a fetch is answered, by the row of METALOG §3 that matched first; 0 is no
// row of it.
type Answer struct {
	Kind      AnswerKind
	Row       int
	Snapshot  SnapshotRef
	Diverging Diverging
}

// Diverging names the largest epoch not above the one asked for, and where it ends.
type Diverging struct {
	Epoch     int64 `json:"epoch"`
	EndOffset int64 `json:"endOffset"`
}

// Decide is the table of METALOG §3: what a follower whose log ends at ask gets from
// a leader in state st. A LastTerm of zero is not compared. AnswerBroken is row 0:
// the table would name the latest snapshot, and the invariant that there is one does
// not hold.
func Decide(ask Position, st FetchState) Answer {
	e, l := st.Earliest, st.Latest
	switch {
	case ask.Offset == 0 && l != nil:
		return snapshotAnswer(1, l)
	case ask.Offset == 0 && st.LogStart == 0:
		return Answer{Kind: AnswerFrames, Row: 2}
	case ask.Offset < st.LogStart:
		return snapshotAnswer(3, l)
	case ask.Offset == st.LogStart && e != nil && ask.LastEpoch != e.Epoch:
		return snapshotAnswer(4, l)
	case e != nil && st.LogStart > 0 && ask.LastEpoch < e.Epoch:
		return snapshotAnswer(5, l)
	}
	own, ok := endOfEpoch(ask.LastEpoch, st)
	if !ok || own.Epoch != ask.LastEpoch || own.End < ask.Offset || termDiffers(ask.LastTerm, own.Term) {
		return Answer{Kind: AnswerDiverging, Row: 6, Diverging: Diverging{Epoch: own.Epoch, EndOffset: own.End}}
	}
	return Answer{Kind: AnswerFrames, Row: 7}
}

// Answer is Decide with the frames, if it is they that are answered. Where the log here is
// damaged the latest snapshot is answered if it holds what is there, as if the log began
// after it; the error comes all the same. Else a follower that was behind would not get on
// before the log is trimmed so far.
func (l *Log) Answer(ask Position, maxBytes int, st FetchState) (Answer, []byte, error) {
	a := Decide(ask, st)
	if a.Kind != AnswerFrames {
		return a, nil, nil
	}
	frames, err := l.Read(ask.Offset, maxBytes)
	if errors.As(err, new(*CorruptionError)) && st.Latest != nil && st.Latest.EndOffset > ask.Offset {
		a = snapshotAnswer(0, st.Latest)
	}
	return a, frames, err
}

func snapshotAnswer(row int, latest *SnapshotRef) Answer {
	if latest == nil {
		return Answer{Kind: AnswerBroken}
	}
	return Answer{Kind: AnswerSnapshot, Row: row, Snapshot: *latest}
}

// endOfEpoch is the largest epoch of the log that is not above epoch, with its end;
// (0, LSO) and false when there is none.
func endOfEpoch(epoch int64, st FetchState) (own EpochEnd, ok bool) {
	own = EpochEnd{End: st.LogStart}
	for _, e := range st.Epochs {
		if e.Epoch > epoch {
			break
		}
		own, ok = e, true
	}
	return own, ok
}

func termDiffers(asked, own uuid.UUID) bool { return asked != uuid.Nil && asked != own }
