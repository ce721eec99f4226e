package meta

import "strings"

// decodeSegment reads a segment, three times as fast as the general decoder: nearly all
// records are segments, and reading a million of them is most of what a start costs. It
// returns nil for what is not the usual encoding of one.
func decodeSegment(data []byte) *Segment {
	w := wordPool.Get().(words)
	r := cborReader{b: data, words: w}
	s := r.segment()
	wordPool.Put(w)
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
			s.Status = SegmentStatus(r.word())
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
			s.Locations = r.locations()
		case 24:
			s.Committer = r.word()
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

func (r *cborReader) locations() []Location {
	n := r.count(cborList)
	if n == 0 {
		return nil
	}
	list := make([]Location, n)
	for i := range list {
		r.location(&list[i])
	}
	return list
}

func (r *cborReader) location(l *Location) {
	var key uint64
	for n := r.count(cborMap); n > 0 && !r.bad; n-- {
		switch key = r.key(key); key {
		case 1:
			l.Node = r.word()
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
	moments := [...]*int64{
		&t.Created, &t.FirstConsumed, &t.WinnerDecided, &t.CommitStarted, &t.Committed, &t.SecondCopy,
		&t.Replicated, &t.Uploaded, &t.DeepStore, &t.EndRequested, &t.Recommitted, &t.LastLocation,
	}
	var key uint64
	for n := r.count(cborMap); n > 0 && !r.bad; n-- {
		if key = r.key(key); key == 0 || key > uint64(len(moments)) {
			r.bad = true
			return
		}
		*moments[key-1] = r.int()
	}
}
