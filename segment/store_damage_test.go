package segment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

// damageOf fails unless err is a *DamageError.
func damageOf(t *testing.T, err error) *DamageError {
	t.Helper()
	damage, ok := errors.AsType[*DamageError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	return damage
}

func TestVerifyNamesTheDamagedPiece(t *testing.T) {
	data := randomBytes(3*PieceSize + 1000)
	for _, at := range []int64{0, PieceSize - 1, PieceSize, 2*PieceSize + 12345, 3*PieceSize + 999} {
		disk := vfs.NewMem()
		s := openTestStore(t, disk)
		h := mustPublish(t, s, testName(1), data)
		flipBit(t, disk, h.File(), at)
		for range 2 {
			damage := damageOf(t, s.Verify(t.Context(), h))
			if want := []int{int(at / PieceSize)}; !slices.Equal(damage.Pieces, want) || damage.Sidecar {
				t.Errorf("bit of byte %d: %+v", at, damage)
			}
			if !strings.Contains(damage.Error(), h.File()) {
				t.Errorf("does not name the file: %v", damage)
			}
			// The size is right, so only a full read shows it: also after a restart.
			s = openTestStore(t, disk)
			h, _ = find(s, testName(1), data)
		}
	}
}

func TestVerifyOfATruncatedOrExtendedCopy(t *testing.T) {
	data := randomBytes(2*PieceSize + 1000)
	for why, c := range map[string]struct {
		data []byte
		want []int
	}{
		"within the last piece": {data[:2*PieceSize+1], []int{2}},
		"by pieces":             {data[:PieceSize-5], []int{0, 1, 2}},
		"empty":                 {nil, nil},
		"longer":                {append(bytes.Clone(data), 0), []int{2}},
	} {
		disk := vfs.NewMem()
		s := openTestStore(t, disk)
		h := mustPublish(t, s, testName(1), data)
		writeRaw(t, disk, h.File(), c.data)
		if damage := damageOf(t, s.Verify(t.Context(), h)); !slices.Equal(damage.Pieces, c.want) || damage.Sidecar {
			t.Errorf("%s: %+v", why, damage)
		}
		// A restart sees the wrong size at once.
		s = openTestStore(t, disk)
		mustNotHold(t, s, testName(1), data)
		if held := s.Held(); len(held) != 1 || held[0].State != StateQuarantined || held[0].Reason == "" || held[0].Name != testName(1) {
			t.Errorf("%s: held %+v", why, held)
		}
	}
}

func TestFlippedBitInASidecar(t *testing.T) {
	data := randomBytes(2*PieceSize - 1000)
	for why, c := range map[string]struct {
		at     int64
		pieces []int
	}{
		"entry of piece 1":                  {int64(sidecarHeaderSize) + 32 + 5, []int{1}},
		"magic":                             {2, nil},
		"size, to another number of pieces": {11, nil},
		// What the root does not cover.
		"size, with the same number of pieces": {8, nil},
	} {
		t.Run(why, func(t *testing.T) {
			disk := vfs.NewMem()
			s := openTestStore(t, disk)
			h := mustPublish(t, s, testName(1), data)
			flipBit(t, disk, sidecarPath(h.File()), c.at)
			damage := damageOf(t, s.Verify(t.Context(), h))
			if !damage.Sidecar || !slices.Equal(damage.Pieces, c.pieces) {
				t.Errorf("got %+v", damage)
			}
			if _, _, _, err := s.Open(h); !damageOf(t, err).Sidecar {
				t.Errorf("opened with %v", err)
			}
			damaged := disk.Clone()

			if err := s.RepairSidecar(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			mustHold(t, s, testName(1), data)
			mustBeTidy(t, disk, s)

			// A start repairs it too: the data is read, and proves itself.
			s = openTestStore(t, damaged)
			mustHold(t, s, testName(1), data)
			mustBeTidy(t, damaged, s)
		})
	}
}

func TestOpenRefusesAPieceListThatDoesNotProve(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	h := mustPublish(t, s, testName(1), randomBytes(PieceSize+1))
	flipBit(t, disk, sidecarPath(h.File()), int64(sidecarHeaderSize))
	_, _, _, err := s.Open(h)
	if damage := damageOf(t, err); !damage.Sidecar {
		t.Errorf("got %+v", damage)
	}
	if err := s.Remove(h); err != nil { // the failed Open left no pin
		t.Error(err)
	}
}

func TestRepairSidecarDoesNotBlessDamagedData(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	h := mustPublish(t, s, testName(1), randomBytes(1000))
	before := readRaw(t, disk, sidecarPath(h.File()))
	flipBit(t, disk, h.File(), 500)
	damageOf(t, s.RepairSidecar(t.Context(), h))
	if !bytes.Equal(readRaw(t, disk, sidecarPath(h.File())), before) {
		t.Error("the sidecar was changed")
	}
}

func TestVerifyWithDataAndSidecarBothBad(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	h := mustPublish(t, s, testName(1), randomBytes(1000))
	flipBit(t, disk, h.File(), 500)
	flipBit(t, disk, sidecarPath(h.File()), int64(sidecarHeaderSize))
	if damage := damageOf(t, s.Verify(t.Context(), h)); damage.Sidecar || len(damage.Pieces) != 0 {
		t.Errorf("got %+v", damage)
	}
}

func TestVerifyStopsWithItsContext(t *testing.T) {
	s := openTestStore(t, vfs.NewMem())
	h := mustPublish(t, s, testName(1), randomBytes(1000))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Verify(ctx, h); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestUnreadableSectorIsDamageOfItsPiece(t *testing.T) {
	broken := false
	s := openTestStore(t, vfs.WithFaults(vfs.NewMem(), func() func(vfs.Op) error {
		reads := 0
		return func(op vfs.Op) error {
			if broken && op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, fileSuffix) {
				if reads++; reads > PieceSize/hashBufferSize+1 {
					return syscall.EIO
				}
			}
			return nil
		}
	}()))
	h := mustPublish(t, s, testName(1), randomBytes(2*PieceSize))
	broken = true
	damage := damageOf(t, s.Verify(t.Context(), h))
	if !slices.Equal(damage.Pieces, []int{1}) || !errors.Is(damage, syscall.EIO) {
		t.Errorf("got %+v", damage)
	}
}

func TestQuarantinedCopyIsKeptAsASourceOfItsGoodPieces(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	data := randomBytes(2*PieceSize + 1000)
	h := mustPublish(t, s, testName(1), data)
	flipBit(t, disk, h.File(), PieceSize+5)
	reading, _, release, err := s.Open(h) // a reader does not keep bad bytes in service
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.Quarantine(h, "piece 1 is bad")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(q); !errors.Is(err, ErrPinned) {
		t.Errorf("the reader's pin was lost: %v", err)
	}
	if b, err := io.ReadAll(reading); err != nil || len(b) != len(data) {
		t.Errorf("the reader got %d bytes, %v", len(b), err)
	}
	release()
	mustNotHold(t, s, testName(1), data)

	for range 2 {
		held := s.Held()
		if len(held) != 1 || held[0].State != StateQuarantined || held[0].Reason != "piece 1 is bad" || held[0].Digest != h.Digest || held[0].SizeBytes != h.SizeBytes {
			t.Fatalf("held: %+v", held)
		}
		f, pieces, release, err := s.Open(held[0])
		if err != nil {
			t.Fatal(err)
		}
		for i := range pieces.Count() {
			off, n := pieces.Range(i)
			piece := make([]byte, n)
			if _, err := f.ReadAt(piece, off); err != nil {
				t.Fatal(err)
			}
			if err := pieces.VerifyPiece(i, piece); (err == nil) != (i != 1) {
				t.Errorf("piece %d: %v", i, err)
			}
		}
		release()
		if damage := damageOf(t, s.Verify(t.Context(), held[0])); !slices.Equal(damage.Pieces, []int{1}) {
			t.Errorf("got %+v", damage)
		}
		mustBeTidy(t, disk, s)
		s = openTestStore(t, disk)
	}

	// A good copy takes its place; when that goes bad too, both are kept.
	h = mustPublish(t, s, testName(1), data)
	if _, err := s.Quarantine(h, "again"); err != nil {
		t.Fatal(err)
	}
	if held := openTestStore(t, disk).Held(); len(held) != 2 || held[0].Reason != "piece 1 is bad" || held[1].Reason != "again" {
		t.Fatalf("held: %+v", held)
	}
	for _, h := range s.Held() {
		if err := s.Remove(h); err != nil {
			t.Error(err)
		}
	}
	if left := filesBelow(t, disk, "quarantine"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestQuarantineTwiceIsOnce(t *testing.T) {
	s := openTestStore(t, vfs.NewMem())
	h := mustPublish(t, s, testName(1), randomBytes(1000))
	q, err := s.Quarantine(h, "first")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Quarantine(q, "second"); err != nil || again != q {
		t.Errorf("got %+v, %v", again, err)
	}
	if _, err := s.Quarantine(h, "third"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("got %v", err)
	}
	if err := s.Orphan(q, testTime); err == nil {
		t.Error("a quarantined copy was made an orphan")
	}
}

func TestMissingDataIsDamageAndThenForgotten(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	h := mustPublish(t, s, testName(1), randomBytes(1000))
	if err := disk.Remove(h.File()); err != nil {
		t.Fatal(err)
	}
	damageOf(t, s.Verify(t.Context(), h))
	if _, err := s.Quarantine(h, "gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if held := s.Held(); len(held) != 0 {
		t.Errorf("held: %+v", held)
	}
	if s = openTestStore(t, disk); len(s.Held()) != 0 {
		t.Errorf("held: %+v", s.Held())
	}
	mustBeTidy(t, disk, s)
}

func TestFullDiskDoesNotKeepBadBytesInService(t *testing.T) {
	disk := vfs.NewMem()
	space := vfs.WithSpace(disk, 1<<20)
	s := openTestStore(t, space)
	data := randomBytes(1000)
	h := mustPublish(t, s, testName(1), data)
	space.Add(-1 << 20)
	if _, err := s.Quarantine(h, "bad"); err != nil {
		t.Fatal(err)
	}
	mustNotHold(t, s, testName(1), data)
	held := openTestStore(t, disk).Held()
	if len(held) != 1 || held[0].State != StateQuarantined || !strings.Contains(held[0].Reason, "unknown") {
		t.Errorf("held: %+v", held)
	}
}

func TestReasonIsReadableByPeople(t *testing.T) {
	disk := vfs.NewMem()
	s := openTestStore(t, disk)
	h := mustPublish(t, s, testName(1), randomBytes(1000))
	q, err := s.Quarantine(h, "one bit")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(readRaw(t, disk, reasonPath(q.File())), &got); err != nil {
		t.Fatal(err)
	}
	if got["why"] != "one bit" || got["at"] != "2026-11-29T16:25:00Z" || got["digest"] != h.Digest.String() {
		t.Errorf("got %v", got)
	}
}

// What a scan finds in segments/, and what becomes of it.
func TestScanJudgesWhatItFinds(t *testing.T) {
	data, other := randomBytes(5000), randomBytes(5001)
	for why, c := range map[string]struct {
		damage func(t *testing.T, disk vfs.FS, file string)
		sealed bool
		// quarantined copies expected, when not sealed
		quarantined int
	}{
		"no sidecar": {func(t *testing.T, disk vfs.FS, file string) {
			if err := disk.Remove(sidecarPath(file)); err != nil {
				t.Fatal(err)
			}
		}, true, 0},
		"sidecar of another file": {func(t *testing.T, disk vfs.FS, file string) {
			p, _ := hashBytes(other)
			b, _ := p.MarshalBinary()
			writeRaw(t, disk, sidecarPath(file), b)
		}, true, 0},
		"empty sidecar": {func(t *testing.T, disk vfs.FS, file string) { writeRaw(t, disk, sidecarPath(file), nil) }, true, 0},
		"no data": {func(t *testing.T, disk vfs.FS, file string) {
			if err := disk.Remove(file); err != nil {
				t.Fatal(err)
			}
		}, false, 0},
		"other data, no sidecar": {func(t *testing.T, disk vfs.FS, file string) {
			writeRaw(t, disk, file, other)
			if err := disk.Remove(sidecarPath(file)); err != nil {
				t.Fatal(err)
			}
		}, false, 1},
		"empty data":     {func(t *testing.T, disk vfs.FS, file string) { writeRaw(t, disk, file, nil) }, false, 1},
		"truncated data": {func(t *testing.T, disk vfs.FS, file string) { writeRaw(t, disk, file, data[:4999]) }, false, 1},
		"half removed": {func(t *testing.T, disk vfs.FS, file string) {
			if err := disk.Rename(file, trimExt(file)+removedSuffix); err != nil {
				t.Fatal(err)
			}
		}, false, 0},
	} {
		t.Run(why, func(t *testing.T) {
			disk := vfs.NewMem()
			s := openTestStore(t, disk)
			h := mustPublish(t, s, testName(1), data)
			c.damage(t, disk, h.File())
			for range 2 { // the second start finds nothing more to do
				s = openTestStore(t, disk)
				held := s.Held()
				switch {
				case c.sealed:
					mustHold(t, s, testName(1), data)
				case len(held) != c.quarantined:
					t.Fatalf("held: %+v", held)
				case len(held) == 1 && (held[0].State != StateQuarantined || !strings.Contains(held[0].Reason, "found at start")):
					t.Fatalf("held: %+v", held)
				}
				mustBeTidy(t, disk, s)
			}
		})
	}
}
