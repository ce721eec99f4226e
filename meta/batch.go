package meta

import (
	"fmt"
	"iter"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/uuid"
)

// Batch is one entry of the metadata log: it takes effect whole or not at all,
// and has one offset. The removals come first, so a key that is among both has
// its record replaced by one that owes nothing to it; among either it occurs
// once.
type Batch struct {
	// Offset is the batch's place in the log; the first has 0.
	Offset int64
	// Epoch is that of the leader that wrote it, Term the random id of that
	// leader. The first batch of an epoch holds the Leader record that says so.
	Epoch int64
	Term  uuid.UUID
	// Time is when it was written, in milliseconds since the Unix epoch, and
	// always later than the batch before: see NextTime.
	Time     int64
	Upserts  []Record
	Removals []Key
	// SnapshotHere asks everybody who keeps the log for a snapshot of the image that
	// this batch leaves: the same id, and the same bytes, in many places.
	SnapshotHere bool
}

// maxBatchRecords bounds the upserts and the removals of a batch.
const maxBatchRecords = 1 << 16

// NextTime returns the time of the batch that follows one of time previous:
// now, or a millisecond later than previous if the clock says less.
func NextTime(previous, now int64) int64 { return max(previous+1, now) }

// Keys yields the keys that the batch touches, upserts first.
func (b *Batch) Keys() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for _, r := range b.Upserts {
			if !yield(r.Key()) {
				return
			}
		}
		for _, k := range b.Removals {
			if !yield(k) {
				return
			}
		}
	}
}

// The layout of a batch in CBOR (docs/format/records.md).
type (
	batchLayout struct {
		Offset   int64          `cbor:"1,keyasint"`
		Epoch    int64          `cbor:"2,keyasint"`
		Term     uuid.UUID      `cbor:"3,keyasint"`
		Time     int64          `cbor:"4,keyasint"`
		Upserts  []recordLayout `cbor:"5,keyasint"`
		Removals []keyLayout    `cbor:"6,keyasint"`

		SnapshotHere bool `cbor:"7,keyasint,omitempty"`
	}
	recordLayout struct {
		_    struct{} `cbor:",toarray"`
		Kind Kind
		Data cbor.RawMessage
	}
	keyLayout struct {
		_         struct{} `cbor:",toarray"`
		Kind      Kind
		Table     uuid.UUID
		Name      string
		Partition int32
		Num       int64
	}
)

// EncodeBatch returns the batch in CBOR, or a *RecordTooLargeError.
func EncodeBatch(b *Batch) ([]byte, error) {
	if len(b.Upserts) > maxBatchRecords || len(b.Removals) > maxBatchRecords {
		return nil, fmt.Errorf("meta: a batch of %d upserts and %d removals, the most is %d of each",
			len(b.Upserts), len(b.Removals), maxBatchRecords)
	}
	l := batchLayout{
		Offset: b.Offset, Epoch: b.Epoch, Term: b.Term, Time: b.Time,
		Upserts:  make([]recordLayout, len(b.Upserts)),
		Removals: make([]keyLayout, len(b.Removals)),

		SnapshotHere: b.SnapshotHere,
	}
	for i, r := range b.Upserts {
		data, err := EncodeRecord(r)
		if err != nil {
			return nil, err
		}
		l.Upserts[i] = recordLayout{Kind: r.Key().Kind, Data: data}
	}
	for i, k := range b.Removals {
		l.Removals[i] = keyLayout{
			Kind: k.Kind, Table: k.Table, Name: k.Name, Partition: k.Partition, Num: k.Num,
		}
	}
	data, err := cborEnc.Marshal(&l)
	if err != nil {
		return nil, fmt.Errorf("meta: encode batch %d: %w", b.Offset, err)
	}
	return data, nil
}

// DecodeBatch reads what EncodeBatch wrote. It allocates no more than a small
// multiple of len(data), whatever the data say, and the result shares no memory
// with it. It does not ask whether the batch makes sense: Apply does.
func DecodeBatch(data []byte) (*Batch, error) {
	var l batchLayout
	if err := cborDec.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("meta: batch: %w: %w", ErrMalformed, err)
	}
	b := &Batch{Offset: l.Offset, Epoch: l.Epoch, Term: l.Term, Time: l.Time, SnapshotHere: l.SnapshotHere}
	for _, u := range l.Upserts {
		r, err := DecodeRecord(u.Kind, u.Data)
		if err != nil {
			return nil, fmt.Errorf("meta: batch %d: %w", l.Offset, err)
		}
		b.Upserts = append(b.Upserts, r)
	}
	for _, k := range l.Removals {
		if !k.Kind.Valid() {
			return nil, fmt.Errorf("meta: batch %d removes a record of unknown %s: %w", l.Offset, k.Kind, ErrMalformed)
		}
		b.Removals = append(b.Removals, Key{
			Kind: k.Kind, Table: k.Table, Name: k.Name, Partition: k.Partition, Num: k.Num,
		})
	}
	return b, nil
}

// DecodeBatchHead reads a batch but for what it does: its upserts and removals, and
// whether it asks for a snapshot. It is for who reads a whole log to know where its
// batches are, and does not look at the rest of data.
func DecodeBatchHead(data []byte) (*Batch, error) {
	r := cborReader{b: data}
	b := new(Batch)
	r.count(cborMap)
	for want := uint64(1); want <= 4 && !r.bad; want++ {
		if r.key(want-1) != want {
			r.bad = true
		}
		switch want {
		case 1:
			b.Offset = r.int()
		case 2:
			b.Epoch = r.int()
		case 3:
			r.bytes(b.Term[:])
		case 4:
			b.Time = r.int()
		}
	}
	if !r.bad {
		return b, nil
	}
	whole, err := DecodeBatch(data)
	if err != nil {
		return nil, err
	}
	return &Batch{Offset: whole.Offset, Epoch: whole.Epoch, Term: whole.Term, Time: whole.Time}, nil
}
