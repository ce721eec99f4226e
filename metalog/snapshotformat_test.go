package metalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/segment"
)

func TestSnapshotIsReadAsItWasWritten(t *testing.T) {
	for name, im := range map[string]*meta.Image{
		"small":          imageAfter(t, batchesOf(run{1, 2}, run{3, 1})...),
		"several frames": bigImage(t),
	} {
		t.Run(name, func(t *testing.T) {
			data := snapshotBytes(t, im)
			got, h, err := ReadSnapshot("x", bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, got, im)
			if h != headerOf(im) || h.ID() != (SnapshotID{EndOffset: 3, Epoch: im.Epoch()}) || h.Cluster != testCluster || h.Time != 1002 {
				t.Errorf("the header says %+v", h)
			}
			if again := snapshotBytes(t, got); !bytes.Equal(again, data) {
				t.Error("the image that was read is written as other bytes")
			}
		})
	}
	if n := len(frameEnds(t, snapshotBytes(t, bigImage(t)))); n < 5 {
		t.Errorf("the big one has only %d frames", n)
	}
}

// emptySnapshot is header and footer.
func emptySnapshot() []byte {
	header := AppendFrame(nil, encodeSnapshotHeader(SnapshotHeader{}))
	return AppendFrame(header, encodeSnapshotFooter(footerOf(0, header)))
}

// footerOf is the footer that belongs after the frames.
func footerOf(records uint64, frames []byte) snapshotFooter {
	var hash segment.PieceHasher
	_, _ = hash.Write(frames)
	_, digest := hash.Sum()
	return snapshotFooter{records: records, bytes: uint64(len(frames)), state: digest}
}

func TestScenario27EmptyStateIsHeaderAndFooterAndLoads(t *testing.T) {
	im, h, err := ReadSnapshot("x", bytes.NewReader(emptySnapshot()))
	if err != nil || h != (SnapshotHeader{}) {
		t.Fatalf("%+v, %v", h, err)
	}
	wantImage(t, im, meta.Empty())
}

func TestSnapshotCutAnywhereIsNoticed(t *testing.T) {
	data := snapshotBytes(t, bigImage(t))
	cuts := []int{0, 1, frameHeaderSize - 1, frameHeaderSize, len(data) - 1}
	for _, end := range frameEnds(t, data) {
		if end < len(data) {
			cuts = append(cuts, end, end+1, end-1)
		}
	}
	for _, cut := range cuts {
		var damage *CorruptionError
		if _, _, err := ReadSnapshot("x", bytes.NewReader(data[:cut])); !errors.As(err, &damage) || damage.File != "x" {
			t.Errorf("cut at %d of %d: %v", cut, len(data), err)
		}
	}
}

func TestSnapshotWithAFlippedBitIsNoticed(t *testing.T) {
	data := snapshotBytes(t, imageAfter(t, batchesOf(run{1, 2}, run{3, 1})...))
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 8)
		if _, _, err := ReadSnapshot("x", bytes.NewReader(bad)); err == nil {
			t.Errorf("a bit of byte %d flipped, and it is read", i)
		}
	}
}

// reframe is a snapshot of these payloads, each in a good frame.
func reframe(payloads ...[]byte) (data []byte) {
	for _, p := range payloads {
		data = AppendFrame(data, p)
	}
	return data
}

func TestSnapshotOfGoodFramesThatMakeNoSnapshotIsRefused(t *testing.T) {
	im := imageAfter(t, batchesOf(run{1, 2})...)
	var recs []byte // cluster, leader, two jobs
	var parts [][]byte
	for r := range im.Records() {
		data, err := meta.EncodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, appendRecord(nil, r.Key().Kind, data))
		recs = append(recs, parts[len(parts)-1]...)
	}
	frame := func(records ...[]byte) []byte {
		return append([]byte{frameOfRecords}, bytes.Join(records, nil)...)
	}
	// closed is what whoever writes these frames would end them with.
	closed := func(n uint64, h SnapshotHeader, frames ...[]byte) []byte {
		data := reframe(append([][]byte{encodeSnapshotHeader(h)}, frames...)...)
		return AppendFrame(data, encodeSnapshotFooter(footerOf(n, data)))
	}
	h := headerOf(im)
	good := closed(4, h, frame(recs))
	if _, _, err := ReadSnapshot("x", bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*SnapshotHeader)) SnapshotHeader {
		other := h
		change(&other)
		return other
	}
	footer := func(f snapshotFooter) []byte {
		data := reframe(encodeSnapshotHeader(h), frame(recs))
		return AppendFrame(data, encodeSnapshotFooter(f))
	}
	right, err := decodeSnapshotFooter(lastPayload(t, good))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"no header":              good[frameEnds(t, good)[0]:],
		"two headers":            append(reframe(encodeSnapshotHeader(h)), good...),
		"something after":        append(bytes.Clone(good), 0),
		"a snapshot after":       append(bytes.Clone(good), good...),
		"another type of frame":  reframe(encodeSnapshotHeader(h), []byte("x")),
		"an empty frame":         closed(4, h, frame(), frame(recs)),
		"a record left out":      closed(4, h, frame(parts[0], parts[1], parts[2])),
		"a record twice":         closed(5, h, frame(parts[0], parts[1], parts[2], parts[2], parts[3])),
		"records out of order":   closed(4, h, frame(parts[0], parts[1], parts[3], parts[2])),
		"half a record":          closed(4, h, frame(recs[:len(recs)-1])),
		"a record cut to 3 byte": closed(4, h, frame(recs, []byte{9, 0, 0})),
		"an unknown kind":        closed(5, h, frame(recs, appendRecord(nil, 99, []byte{0xa0}))),
		"a record too large":     closed(5, h, frame(recs, appendRecord(nil, meta.KindJob, make([]byte, meta.MaxRecordSize+1)))),
		"no leader":              closed(3, h, frame(parts[0], parts[2], parts[3])),
		"another epoch":          closed(4, with(func(h *SnapshotHeader) { h.LastEpoch = 2 }), frame(recs)),
		"another term":           closed(4, with(func(h *SnapshotHeader) { h.LastTerm = termOf(9) }), frame(recs)),
		"another cluster":        closed(4, with(func(h *SnapshotHeader) { h.Cluster = termOf(9) }), frame(recs)),
		"no position":            closed(4, with(func(h *SnapshotHeader) { h.Offset = -1 }), frame(recs)),
		"wrong count":            footer(snapshotFooter{right.records + 1, right.bytes, right.state}),
		"wrong size":             footer(snapshotFooter{right.records, right.bytes - 1, right.state}),
		"wrong state":            footer(snapshotFooter{right.records, right.bytes, segment.Digest{1}}),
		"a short footer":         reframe(encodeSnapshotHeader(h), frame(recs), encodeSnapshotFooter(right)[:20]),
		"a long header":          reframe(append(encodeSnapshotHeader(h), 0), frame(recs)),
		"version 0":              reframe(versionOf(h, 0), frame(recs)),
	} {
		var damage *CorruptionError
		if _, _, err := ReadSnapshot("x", bytes.NewReader(data)); !errors.As(err, &damage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var newer *FormatError
	if _, _, err := ReadSnapshot("x", bytes.NewReader(reframe(versionOf(h, 2)))); !errors.As(err, &newer) || newer.Version != 2 {
		t.Errorf("a newer version: %v", err)
	}
}

// Frames are decoded ahead; what is said of them is as if they were not.
func TestDamagedRecordsAreToldInTheirOrder(t *testing.T) {
	data := snapshotBytes(t, manyFrames(t))
	ends := frameEnds(t, data)
	if len(ends) < 2*framesAhead {
		t.Fatalf("%d frames", len(ends))
	}
	broken := func(frames ...int) (out []byte) {
		for i := range ends {
			from := 0
			if i > 0 {
				from = ends[i-1]
			}
			payload, _, err := NextFrame(data[from:])
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains(frames, i) {
				payload = payload[:len(payload)-1]
			}
			out = AppendFrame(out, payload)
		}
		return out
	}
	for i := 1; i < len(ends)-1; i++ {
		for _, bad := range [][]byte{broken(i), broken(i, i+1), broken(i)[:ends[i]+20]} {
			var damage *CorruptionError
			if _, _, err := ReadSnapshot("x", bytes.NewReader(bad)); !errors.As(err, &damage) || damage.Offset != int64(ends[i-1]) {
				t.Errorf("frame %d at %d: %v", i, ends[i-1], err)
			}
		}
	}
}

// A snapshot that is refused early leaves nothing that decodes on: see TestMain.
func TestSnapshotWhoseFirstRecordsAreRefusedIsReadNoFurther(t *testing.T) {
	im := manyFrames(t)
	var two []byte
	for _, name := range []string{"TABLE", "table"} {
		data, err := meta.EncodeRecord(&meta.Table{ID: uuid.New(), Name: name, State: meta.TableCreating})
		if err != nil {
			t.Fatal(err)
		}
		two = appendRecord(two, meta.KindTable, data)
	}
	data := snapshotBytes(t, im)
	ends := frameEnds(t, data)
	bad := reframe(encodeSnapshotHeader(headerOf(im)), append([]byte{frameOfRecords}, two...))
	bad = append(bad, data[ends[0]:]...)
	r := bytes.NewReader(bad)
	var damage *CorruptionError
	if _, _, err := ReadSnapshot("x", r); !errors.As(err, &damage) {
		t.Errorf("got %v", err)
	}
	if r.Len() == 0 {
		t.Error("all of it was read")
	}
}

func versionOf(h SnapshotHeader, v uint32) []byte {
	b := encodeSnapshotHeader(h)
	binary.LittleEndian.PutUint32(b[8:], v)
	return b
}

func lastPayload(t *testing.T, data []byte) []byte {
	t.Helper()
	ends := frameEnds(t, data)
	payload, _, err := NextFrame(data[ends[len(ends)-2]:])
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// A disk that cannot be read says nothing about the snapshot.
func TestSnapshotThatCannotBeReadIsNotCalledDamaged(t *testing.T) {
	data := snapshotBytes(t, imageAfter(t, batchesOf(run{1, 2})...))
	for _, at := range []int{0, 10, 90, len(data)} {
		broken := io.MultiReader(bytes.NewReader(data[:at]), failingReader{})
		_, _, err := ReadSnapshot("x", broken)
		var damage *CorruptionError
		if !errors.Is(err, errBadDisk) || errors.As(err, &damage) {
			t.Errorf("at %d: %v", at, err)
		}
	}
}

var errBadDisk = errors.New("bad disk")

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errBadDisk }

// A snapshot that version 1 wrote must be readable for ever. If this test fails, the
// format has changed: give it a new version and read the old one too.
func TestSnapshotOfFormatVersion1IsRead(t *testing.T) {
	const golden = "testdata/snapshot-v1.hex"
	im := imageAfter(t, batchesOf(run{1, 2}, run{3, 1})...)
	written := snapshotBytes(t, im)
	old := wantGolden(t, golden, written)
	got, _, err := ReadSnapshot(golden, bytes.NewReader(old))
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, got, im)
}

// A length is not believed beyond what a frame may have.
func TestForgedLengthsCostOneFrame(t *testing.T) {
	h := SnapshotHeader{}
	huge := AppendFrame(nil, make([]byte, MaxFramePayload))[:frameHeaderSize]
	forged := append(reframe(encodeSnapshotHeader(h)), huge...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := ReadSnapshot("x", bytes.NewReader(forged))
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Fatal("it was read")
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 2*MaxFramePayload {
		t.Errorf("%d bytes were allocated for a file of %d", n, len(forged))
	}
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add(emptySnapshot())
	data := snapshotBytes(f, imageAfter(f, batchesOf(run{1, 2}, run{3, 1})...))
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Fuzz(func(t *testing.T, data []byte) {
		im, h, err := ReadSnapshot("x", bytes.NewReader(data))
		if err == nil {
			checkReadAgain(t, im, h)
		}
	})
}

// FuzzSnapshotPayloads gives each payload a good frame and the file a good footer, so
// that the fuzzer comes past the checksums. Each payload is preceded by its length in
// two bytes.
func FuzzSnapshotPayloads(f *testing.F) {
	split := func(data []byte) (out []byte) {
		ends := frameEnds(f, data)
		for from, i := 0, 0; i < len(ends)-1; from, i = ends[i], i+1 {
			payload, _, _ := NextFrame(data[from:])
			out = append(binary.LittleEndian.AppendUint16(out, uint16(len(payload))), payload...)
		}
		return out
	}
	f.Add(split(emptySnapshot()))
	f.Add(split(snapshotBytes(f, imageAfter(f, batchesOf(run{1, 2}, run{3, 1})...))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var data []byte
		var records uint64
		for len(b) > 2 {
			n := min(max(int(binary.LittleEndian.Uint16(b)), 1), len(b)-2)
			payload := b[2 : 2+n]
			b = b[2+n:]
			data = AppendFrame(data, payload)
			if payload[0] != frameOfRecords {
				continue
			}
			for rest := payload[1:]; len(rest) > 0; records++ {
				var err error
				if _, rest, err = takeRecord(rest); err != nil {
					break
				}
			}
		}
		im, h, err := ReadSnapshot("x", bytes.NewReader(AppendFrame(data, encodeSnapshotFooter(footerOf(records, data)))))
		if err == nil {
			checkReadAgain(t, im, h)
		}
	})
}

// checkReadAgain writes an image that was read, if it is one that has a file, and
// reads that.
func checkReadAgain(t *testing.T, im *meta.Image, h SnapshotHeader) {
	t.Helper()
	if headerOf(im) != h {
		t.Fatalf("the header says %+v, the image is at %+v", h, headerOf(im))
	}
	if writable(h, im) != nil {
		return
	}
	again, _, err := ReadSnapshot("again", bytes.NewReader(snapshotBytes(t, im)))
	if err != nil {
		t.Fatal(err)
	}
	wantImage(t, again, im)
}
