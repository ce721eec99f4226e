package meta

import "fmt"

// Change is what a function of the image wants done: a batch that has no place
// in the log yet. The zero Change changes nothing.
type Change struct {
	Upserts  []Record
	Removals []Key
	// SnapshotHere becomes that of the batch.
	SnapshotHere bool
}

// Func is a function of the image: precondition and change in one. It is
// evaluated on the leader's newest state, accepted changes included, so what it
// finds true is true when its change takes effect. now is in milliseconds since
// the Unix epoch, and only for show.
//
// It returns a *Refusal if the precondition does not hold, and no change and no
// error if what it should bring about is already so. It must be pure, but may
// fill in results that its maker handed out (see Locations); they may be read
// once the function is known to have been evaluated.
type Func func(im *Image, now int64) (Change, error)

// Empty reports whether the change changes nothing.
func (c Change) Empty() bool {
	return len(c.Upserts) == 0 && len(c.Removals) == 0 && !c.SnapshotHere
}

// SnapshotHere asks for a snapshot, and changes no record.
func SnapshotHere(*Image, int64) (Change, error) { return Change{SnapshotHere: true}, nil }

// Refusal is why a function of the image made no change. Code is stable and
// goes to the caller of the API; Detail is for people.
type Refusal struct {
	Code   string
	Detail string
}

// The codes of refusals and verdicts.
const (
	CodeAlreadyCommitted = "ALREADY_COMMITTED"
	CodeClusterExists    = "CLUSTER_EXISTS"
	CodeDigestDiffers    = "DIGEST_DIFFERS"
	CodeInvalidCommit    = "INVALID_COMMIT"
	CodeInvalidConfig    = "INVALID_CONFIG"
	CodeInvalidNode      = "INVALID_NODE"
	CodeInvalidPartition = "INVALID_PARTITION"
	CodeInvalidRecord    = "INVALID_RECORD"
	CodeNodeIDInUse      = "NODE_ID_IN_USE"
	CodeNodeInUse        = "NODE_IN_USE"
	CodeNotAReplica      = "NOT_A_REPLICA"
	CodeNotDone          = "NOT_DONE"
	CodeNotExpired       = "NOT_EXPIRED"
	CodePartitionEnded   = "PARTITION_ENDED"
	CodeRecordTooLarge   = "RECORD_TOO_LARGE"
	CodeRetained         = "RETAINED"
	CodeStaleEpoch       = "STALE_EPOCH"
	CodeStaleIncarnation = "STALE_INCARNATION"
	CodeStaleSequence    = "STALE_SEQUENCE"
	CodeStreamEpoch      = "STREAM_EPOCH"
	CodeTableDeleting    = "TABLE_DELETING"
	CodeTableExists      = "TABLE_EXISTS"
	CodeTableNotActive   = "TABLE_NOT_ACTIVE"
	CodeTooFewCopies     = "TOO_FEW_COPIES"
	CodeUnknownJob       = "UNKNOWN_JOB"
	CodeUnknownNode      = "UNKNOWN_NODE"
	CodeUnknownPartition = "UNKNOWN_PARTITION"
	CodeUnknownSegment   = "UNKNOWN_SEGMENT"
	CodeUnknownTable     = "UNKNOWN_TABLE"
	CodeWrongStore       = "WRONG_STORE"
)

func (r *Refusal) Error() string { return r.Code + ": " + r.Detail }

func refusal(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}

func refuse(code, format string, args ...any) (Change, error) {
	return Change{}, refusal(code, format, args...)
}

// Merge returns the change that has the effect of all the changes in order,
// made to this image: what a group commit writes.
func (im *Image) Merge(changes ...Change) Change {
	last := map[Key]Record{} // nil: removed
	var order []Key
	var merged Change
	removed := map[Key]bool{} // records of this image
	note := func(k Key, r Record) {
		if _, known := last[k]; !known {
			order = append(order, k)
		}
		last[k] = r
	}
	for _, c := range changes {
		merged.SnapshotHere = merged.SnapshotHere || c.SnapshotHere
		for _, k := range c.Removals {
			note(k, nil)
			if im.Lookup(k) != nil && !removed[k] { // else it came within the changes
				removed[k] = true
				merged.Removals = append(merged.Removals, k)
			}
		}
		for _, r := range c.Upserts {
			note(r.Key(), r)
		}
	}
	for _, k := range order {
		if r := last[k]; r != nil {
			merged.Upserts = append(merged.Upserts, r)
		}
	}
	return merged
}
