package meta

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json"
)

// MaxRecordSize is the largest encoded record, in bytes of CBOR.
const MaxRecordSize = 64 << 10

// RecordTooLargeError says that a record is over MaxRecordSize when encoded.
type RecordTooLargeError struct {
	Key  Key
	Size int
}

func (e *RecordTooLargeError) Error() string {
	return fmt.Sprintf("meta: the record %s takes %d bytes, the most is %d", e.Key, e.Size, MaxRecordSize)
}

// ErrMalformed is wrapped by every error of the decoders.
var ErrMalformed = errors.New("malformed")

// The CBOR modes: core deterministic encoding, so that a record has one
// encoding on every machine; nil and empty containers are one thing. The
// decoder takes only what the encoder can write: no indefinite lengths, no
// tags, no doubled or unknown keys. A key unknown here comes from a newer
// writer, and dropping what it says would lose it for good.
var (
	cborEnc   = must(encOptions().EncMode())
	cborEncTo = must(encOptions().UserBufferEncMode())
	cborDec   = must(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		MaxNestedLevels:   16,
		MaxArrayElements:  maxBatchRecords,
		MaxMapPairs:       16 << 10,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}.DecMode())
)

func encOptions() cbor.EncOptions {
	o := cbor.CoreDetEncOptions()
	o.NilContainers = cbor.NilContainerAsEmpty
	o.TagsMd = cbor.TagsForbidden
	return o
}

// must is for values made once from constants in this file.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// EncodeRecord returns the record in CBOR, or a *RecordTooLargeError. The
// record is read back before it is returned: what could not be read again, such
// as text that is not UTF-8, must not get into a log.
func EncodeRecord(r Record) ([]byte, error) {
	data, err := AppendRecord(nil, r)
	if err != nil {
		return nil, err
	}
	if _, err := DecodeRecord(r.Key().Kind, data); err != nil {
		return nil, fmt.Errorf("meta: %s does not survive its encoding: %w", r.Key(), err)
	}
	return data, nil
}

// AppendRecord appends the encoding of a record to dst, as EncodeRecord returns it. It
// does not read it back, and is for records of an image: they have been in a batch, which
// was encoded or decoded.
func AppendRecord(dst []byte, r Record) ([]byte, error) {
	encoded, err := appendRecord(dst, r)
	if err != nil {
		return dst, fmt.Errorf("meta: encode %s: %w", r.Key(), err)
	}
	if n := len(encoded) - len(dst); n > MaxRecordSize {
		return dst, &RecordTooLargeError{Key: r.Key(), Size: n}
	}
	return encoded, nil
}

func appendRecord(dst []byte, r Record) ([]byte, error) {
	if s, ok := r.(*Segment); ok {
		return appendSegment(dst, s), nil
	}
	return appendGeneral(dst, r)
}

// appendGeneral is the general encoder.
func appendGeneral(dst []byte, r Record) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	err := cborEncTo.MarshalToBuffer(r, buf)
	return buf.Bytes(), err
}

// DecodeRecord reads what EncodeRecord wrote. The result shares no memory with
// data.
func DecodeRecord(k Kind, data []byte) (Record, error) {
	if len(data) > MaxRecordSize {
		return nil, fmt.Errorf("meta: %s record of %d bytes: %w", k, len(data), ErrMalformed)
	}
	if k == KindSegment {
		if s := decodeSegment(data); s != nil {
			return s, nil
		}
	}
	return decodeRecord(k, data)
}

// decodeRecord is the general decoder.
func decodeRecord(k Kind, data []byte) (Record, error) {
	r := newRecord(k)
	if r == nil {
		return nil, fmt.Errorf("meta: record of unknown %s: %w", k, ErrMalformed)
	}
	if err := cborDec.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("meta: %s record: %w: %w", k, ErrMalformed, err)
	}
	r.trim()
	intern(r)
	return r, nil
}

// EncodeRecordJSON returns the record in its canonical JSON: the fields in the
// order of the Go struct, no spaces, maps by key. It is what people read.
func EncodeRecordJSON(r Record) ([]byte, error) {
	data, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("meta: encode %s: %w", r.Key(), err)
	}
	return data, nil
}

// DecodeRecordJSON reads what EncodeRecordJSON wrote, spaces and order apart.
// Unknown and doubled names are refused, as in CBOR.
func DecodeRecordJSON(k Kind, data []byte) (Record, error) {
	r := newRecord(k)
	if r == nil {
		return nil, fmt.Errorf("meta: record of unknown %s: %w", k, ErrMalformed)
	}
	if err := json.Unmarshal(data, r, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("meta: %s record: %w: %w", k, ErrMalformed, err)
	}
	r.trim()
	intern(r)
	return r, nil
}
