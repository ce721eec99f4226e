package meta

import (
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/segment"
)

// Nearly all records are segments, and to write a million of them is most of what a
// snapshot costs, to read them most of what a start costs. So they have an encoder and a
// decoder of their own, which do what the general ones do, several times as fast: the tests
// compare them.

// appendSegment appends the encoding of a segment.
func appendSegment(dst []byte, s *Segment) []byte {
	w := cborWriter{b: dst}
	m := w.beginMap()
	w.bytesField(&m, 1, s.Table[:])
	w.intField(&m, 2, int64(s.Partition))
	w.intField(&m, 3, s.Seq)
	w.textField(&m, 4, s.Name)
	w.textField(&m, 5, string(s.Status))
	w.intField(&m, 6, s.Start)
	w.intFieldIf(&m, 7, s.End)
	w.intFieldIf(&m, 8, s.Rows)
	w.intFieldIf(&m, 9, s.SizeBytes)
	w.intFieldIf(&m, 10, s.MinTimestamp)
	w.intFieldIf(&m, 11, s.MaxTimestamp)
	if !s.Digest.IsZero() {
		w.bytesField(&m, 12, s.Digest[:])
	}
	if s.SHA256 != (segment.SHA256{}) {
		w.bytesField(&m, 13, s.SHA256[:])
	}
	if s.RowsDigest != (segment.RowsDigest{}) {
		w.bytesField(&m, 14, s.RowsDigest[:])
	}
	w.intFieldIf(&m, 15, int64(s.LastLeaderEpoch))
	w.intFieldIf(&m, 16, int64(s.Generation))
	w.intField(&m, 17, int64(s.ConfigVersion))
	w.textField(&m, 18, s.StreamEpoch)
	w.intField(&m, 19, s.LeaderEpoch)
	w.field(&m, 20)
	w.head(cborList, uint64(len(s.Replicas)))
	for _, node := range s.Replicas {
		w.text(node)
	}
	w.intFieldIf(&m, 21, int64(s.Attempt))
	if e := s.EndRequested; e != nil {
		w.field(&m, 22)
		w.endRequested(e)
	}
	if len(s.Locations) > 0 {
		w.field(&m, 23)
		w.head(cborList, uint64(len(s.Locations)))
		for i := range s.Locations {
			w.location(&s.Locations[i])
		}
	}
	w.textFieldIf(&m, 24, s.Committer)
	w.field(&m, 25)
	w.times(&s.Times)
	if e := s.LastError; e != nil {
		w.field(&m, 26)
		w.lastError(e)
	}
	w.endMap(m)
	return w.b
}

func (w *cborWriter) endRequested(e *EndRequested) {
	m := w.beginMap()
	w.textField(&m, 1, e.Reason)
	if e.Job != uuid.Nil {
		w.bytesField(&m, 2, e.Job[:])
	}
	w.endMap(m)
}

func (w *cborWriter) location(l *Location) {
	m := w.beginMap()
	w.textFieldIf(&m, 1, l.Node)
	if l.StoreID != uuid.Nil {
		w.bytesField(&m, 2, l.StoreID[:])
	}
	w.textFieldIf(&m, 3, l.URI)
	w.intField(&m, 4, l.Since)
	if l.Verified {
		w.field(&m, 5)
		w.b = append(w.b, cborTrue)
	}
	w.endMap(m)
}

func (w *cborWriter) times(t *Times) {
	m := w.beginMap()
	for i, at := range t.moments() {
		w.intFieldIf(&m, uint64(i+1), *at)
	}
	w.endMap(m)
}

func (w *cborWriter) lastError(e *LastError) {
	m := w.beginMap()
	w.textField(&m, 1, e.Node)
	w.intField(&m, 2, e.At)
	w.textField(&m, 3, e.Error)
	w.endMap(m)
}

// moments are the fields in the order of their keys, which begin at 1.
func (t *Times) moments() [12]*int64 {
	return [...]*int64{
		&t.Created, &t.FirstConsumed, &t.WinnerDecided, &t.CommitStarted, &t.Committed, &t.SecondCopy,
		&t.Replicated, &t.Uploaded, &t.DeepStore, &t.EndRequested, &t.Recommitted, &t.LastLocation,
	}
}

// decodeSegment reads a segment. It returns nil for what is not the usual encoding of one.
func decodeSegment(data []byte) *Segment {
	r := cborReader{b: data, cborMemory: memories.Get().(*cborMemory)}
	s := r.segment()
	memories.Put(r.cborMemory)
	if r.bad || len(r.b) > 0 {
		return nil
	}
	return s
}

func (r *cborReader) segment() *Segment {
	s := new(Segment)
	var name []byte
	var key uint64
	for n := r.count(cborMap); n > 0 && !r.bad; n-- {
		switch key = r.key(key); key {
		case 1:
			r.bytes(s.Table[:])
		case 2:
			s.Partition = r.int32()
		case 3:
			s.Seq = r.int()
		case 4:
			name = r.text()
		case 5:
			s.Status = SegmentStatus(r.word(string(SegmentDone)))
		case 6:
			s.Start = r.int()
		case 7:
			s.End = r.int()
		case 8:
			s.Rows = r.int()
		case 9:
			s.SizeBytes = r.int()
		case 10:
			s.MinTimestamp = r.int()
		case 11:
			s.MaxTimestamp = r.int()
		case 12:
			r.bytes(s.Digest[:])
		case 13:
			r.bytes(s.SHA256[:])
		case 14:
			r.bytes(s.RowsDigest[:])
		case 15:
			s.LastLeaderEpoch = r.int32()
		case 16:
			s.Generation = int(r.int32())
		case 17:
			s.ConfigVersion = int(r.int32())
		case 18:
			s.StreamEpoch = r.word()
		case 19:
			s.LeaderEpoch = r.int()
		case 20:
			s.Replicas = r.wordList()
		case 21:
			s.Attempt = int(r.int32())
		case 23:
			s.Locations = r.locations(s.Replicas)
		case 24:
			s.Committer = r.word(s.Replicas...)
		case 25:
			r.times(&s.Times)
		default:
			r.bad = true // 22 and 26 are rare
		}
	}
	s.Name = s.nameFrom(name)
	return s
}

// nameFrom makes the name. It is where a URI has it, if there is one: see shareName.
func (s *Segment) nameFrom(name []byte) string {
	for i := range s.Locations {
		uri := s.Locations[i].URI
		at := strings.LastIndexByte(uri, '/') + 1
		if end := at + len(name); end <= len(uri) && uri[at:end] == string(name) {
			return uri[at:end]
		}
	}
	return string(name)
}

func (r *cborReader) locations(replicas []string) []Location {
	n := r.count(cborList)
	if n == 0 {
		return nil
	}
	list := make([]Location, n)
	for i := range list {
		r.location(&list[i], replicas)
	}
	return list
}

func (r *cborReader) location(l *Location, replicas []string) {
	var key uint64
	for n := r.count(cborMap); n > 0 && !r.bad; n-- {
		switch key = r.key(key); key {
		case 1:
			l.Node = r.word(replicas...)
		case 2:
			r.bytes(l.StoreID[:])
		case 3:
			l.URI = string(r.text())
		case 4:
			l.Since = r.int()
		case 5:
			l.Verified = r.bool()
		default:
			r.bad = true
		}
	}
}

func (r *cborReader) times(t *Times) {
	moments := t.moments()
	var key uint64
	for n := r.count(cborMap); n > 0 && !r.bad; n-- {
		if key = r.key(key); key == 0 || key > uint64(len(moments)) {
			r.bad = true
			return
		}
		*moments[key-1] = r.int()
	}
}
