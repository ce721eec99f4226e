package metalog

import (
	"context"
	"errors"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

func TestLogKeepsBatchesAcrossReopening(t *testing.T) {
	for name, fileBytes := range map[string]int64{"one file": 0, "a file per batch": onePerFile, "some in each": 600} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			l := openLog(t, disk, fileBytes)
			wantRange(t, l, 0, 0)
			batches := batchesOf(run{1, 3}, run{3, 4}, run{4, 1})
			appendAll(t, l, batches...)
			wantRange(t, l, 0, 8)
			before := l.State()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = openLog(t, disk, fileBytes)
			wantRange(t, l, 0, 8)
			if got := readAll(t, l); !reflect.DeepEqual(got, batches) {
				t.Fatal("the batches have changed")
			}
			if got := l.State(); !reflect.DeepEqual(got, before) {
				t.Fatalf("state %+v, before %+v", got, before)
			}
			want := []EpochEnd{{1, 3, termOf(1)}, {3, 7, termOf(3)}, {4, 8, termOf(4)}}
			if !slices.Equal(before.Epochs, want) {
				t.Fatalf("epochs %v", before.Epochs)
			}
			im, err := Replay(l, meta.Empty())
			if err != nil || im.Next() != 8 || im.Epoch() != 4 {
				t.Fatalf("replay: %v", err)
			}
		})
	}
}

func TestReadReturnsWholeBatchesWithinTheLimitAndAtLeastOne(t *testing.T) {
	l := logOf(t, run{1, 5})
	size := func(from int64, maxBytes int) (n int) {
		frames, err := l.Read(from, maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := DecodeEntries(frames)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	one := len(framesOf(t, batchAt(1, 1, false)))
	for _, c := range []struct{ from, maxBytes, want int }{
		{0, 1, 1}, {0, 1 << 20, 5}, {1, one, 1}, {1, 2*one - 1, 1}, {1, 2 * one, 2}, {1, 3 * one, 3}, {4, 1, 1}, {5, 1, 0},
	} {
		if got := size(int64(c.from), c.maxBytes); got != c.want {
			t.Errorf("from %d, at most %d bytes: %d batches, want %d", c.from, c.maxBytes, got, c.want)
		}
	}
	for _, from := range []int64{-1, 6} {
		var out *OutOfRangeError
		if _, err := l.Read(from, 1); !errors.As(err, &out) {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

func TestAppendRefusesWhatDoesNotContinueTheLog(t *testing.T) {
	l := logOf(t, run{1, 1}, run{3, 2})
	wrongTerm := batchAt(3, 3, false)
	wrongTerm.Term = termOf(9)
	noTerm := batchAt(3, 4, true)
	noTerm.Term = [16]byte{}
	for name, b := range map[string]*meta.Batch{
		"an offset again":        batchAt(2, 3, false),
		"an offset left out":     batchAt(4, 3, false),
		"an older epoch":         batchAt(3, 2, false),
		"another term, no epoch": wrongTerm,
		"no term":                noTerm,
	} {
		if err := l.Append(context.Background(), b); err == nil {
			t.Errorf("%s: appended", name)
		}
	}
	wantRange(t, l, 0, 3)
	appendAll(t, l, batchAt(3, 3, false))
}

func TestAppendRefusesABatchThatIsNoFrame(t *testing.T) {
	l := openLog(t, vfs.NewMem(), 0)
	b := batchAt(0, 1, true)
	for i := range int64(20) {
		b.Upserts = append(b.Upserts, job(100+i, 60<<10))
	}
	var large *BatchTooLargeError
	if err := l.Append(context.Background(), b); !errors.As(err, &large) {
		t.Fatalf("error %v", err)
	}
	wantRange(t, l, 0, 0)
}

func TestTrimRemovesWholeFilesAndTheLogRemembersWhatItContinues(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, onePerFile)
	appendAll(t, l, batchesOf(run{1, 3}, run{2, 3})...)
	for _, c := range []struct {
		before, start int64
		epochs        []EpochEnd
	}{
		{0, 0, []EpochEnd{{1, 3, termOf(1)}, {2, 6, termOf(2)}}},
		{2, 2, []EpochEnd{{1, 3, termOf(1)}, {2, 6, termOf(2)}}},
		{3, 3, []EpochEnd{{1, 3, termOf(1)}, {2, 6, termOf(2)}}},
		{4, 4, []EpochEnd{{2, 6, termOf(2)}}},
		{3, 4, []EpochEnd{{2, 6, termOf(2)}}},
		{99, 5, []EpochEnd{{2, 6, termOf(2)}}},
	} {
		if err := l.Trim(c.before); err != nil {
			t.Fatal(err)
		}
		again := openLog(t, disk.Clone(), onePerFile)
		for _, l := range []*Log{l, again} {
			wantRange(t, l, c.start, 6)
			if got := l.State().Epochs; !slices.Equal(got, c.epochs) {
				t.Fatalf("trimmed before %d: epochs %v, want %v", c.before, got, c.epochs)
			}
		}
	}
	var missing *SnapshotMissingError
	if _, err := Replay(l, meta.Empty()); !errors.As(err, &missing) || missing.Start != 5 || missing.Have != 0 {
		t.Fatalf("replay of a log that starts at 5 and no snapshot: %v", err)
	}
	entries, err := disk.ReadDir("log")
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d files are left, %v", len(entries), err)
	}
}

func TestTruncateRemovesTheEnd(t *testing.T) {
	for name, fileBytes := range map[string]int64{"one file": 0, "a file per batch": onePerFile, "some in each": 600} {
		for to := range int64(7) {
			t.Run(name, func(t *testing.T) {
				disk := vfs.NewMem()
				l := openLog(t, disk, fileBytes)
				appendAll(t, l, batchesOf(run{1, 3}, run{2, 3})...)
				if err := l.Truncate(to); err != nil {
					t.Fatal(err)
				}
				wantRange(t, l, 0, to)
				again := openLog(t, disk.Clone(), fileBytes)
				if a, b := again.State(), l.State(); a.HighWatermark != b.HighWatermark || !slices.Equal(a.Epochs, b.Epochs) {
					t.Fatalf("truncated to %d: %+v, reopened %+v", to, b, a)
				}
				appendAll(t, l, batchAt(to, 5, true))
				wantRange(t, openLog(t, disk.Clone(), fileBytes), 0, to+1)
			})
		}
	}
}

func TestWatchTellsOfANewEnd(t *testing.T) {
	l := logOf(t, run{1, 1})
	end, changed := l.Watch()
	select {
	case <-changed:
		t.Fatal("told of nothing")
	default:
	}
	appendAll(t, l, batchAt(1, 1, false))
	<-changed
	if now, _ := l.Watch(); end != 1 || now != 2 {
		t.Fatalf("end %d, then %d", end, now)
	}
}

func TestLeftoversAreSweptAndOtherFilesLeftAlone(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, onePerFile)
	appendAll(t, l, batchesOf(run{1, 2})...)
	l.Close()
	for _, name := range []string{"00000000000000000009.log.tmp", "00000000000000000000.log.deleted", "notes.txt", "x.tmp", "7.log", "00000000000000000000.log.corrupt"} {
		if err := vfs.WriteFile(disk, path.Join("log", name), []byte("?")); err != nil {
			t.Fatal(err)
		}
	}
	wantRange(t, openLog(t, disk, 0), 0, 2)
	entries, err := disk.ReadDir("log")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{"00000000000000000000.log", "00000000000000000000.log.corrupt", "00000000000000000001.log", "7.log", "notes.txt", "x.tmp"}
	if !slices.Equal(left, want) {
		t.Fatalf("left: %v", left)
	}
}

// patch changes a file in place, durably.
func patch(t testing.TB, disk vfs.FS, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := vfs.ReadFile(disk, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(disk, name, change(data)); err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 0x10
		return b
	}
}

func TestDamageIsRefusedAndNamed(t *testing.T) {
	files := []string{"log/00000000000000000000.log", "log/00000000000000000001.log", "log/00000000000000000002.log"}
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
		reason     string
	}{
		{"a bit in a batch", files[1], flip(-5), "bad frame"},
		{"a bit in the last batch", files[2], flip(-5), "bad frame"},
		{"a bit in a length", files[2], flip(logHeaderSize + 5), "bad frame"},
		{"a file that is not the last is short", files[1], func(b []byte) []byte { return b[:len(b)-1] }, "bad frame"},
		{"a file header", files[2], flip(20), "header checksum"},
		{"a file header's magic", files[0], flip(1), "does not begin"},
		{"a cut file header", files[2], func(b []byte) []byte { return b[:30] }, "inside its header"},
		{"a frame that holds no batch", files[2], func(b []byte) []byte { return AppendFrame(b[:logHeaderSize], []byte("what?")) }, "its batch is not"},
		{"a batch twice", files[2], func(b []byte) []byte { return append(b, b[logHeaderSize:]...) }, "does not continue"},
		{"a file without its batches", files[1], func(b []byte) []byte { return b[:logHeaderSize] }, "the file before it ends"},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := vfs.NewMem()
			l := openLog(t, disk, onePerFile)
			appendAll(t, l, batchesOf(run{1, 3})...)
			l.Close()
			patch(t, disk, c.file, c.change)
			_, err := OpenLog(disk, LogOptions{})
			var corrupt *CorruptionError
			if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("error %v", err)
			}
			if corrupt.File != c.file && c.reason != "the file before it ends" {
				t.Fatalf("it names %s", corrupt.File)
			}
		})
	}
	t.Run("a file is missing", func(t *testing.T) {
		disk := vfs.NewMem()
		l := openLog(t, disk, onePerFile)
		appendAll(t, l, batchesOf(run{1, 3})...)
		l.Close()
		if err := disk.Remove(files[1]); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptionError
		if _, err := OpenLog(disk, LogOptions{}); !errors.As(err, &corrupt) {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("a newer format", func(t *testing.T) {
		disk := vfs.NewMem()
		openLog(t, disk, 0).Close()
		patch(t, disk, files[0], func(b []byte) []byte { b[8] = 2; return b })
		var format *FormatError
		if _, err := OpenLog(disk, LogOptions{}); !errors.As(err, &format) || format.Version != 2 {
			t.Fatalf("error %v", err)
		}
	})
}

func TestDamageThatComesLaterIsNotServed(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, 0)
	appendAll(t, l, batchesOf(run{1, 3})...)
	f, err := disk.OpenFile(l.files[0].name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := l.files[0].pos[1] + 40
	if _, err := f.WriteAt([]byte{0xff}, at); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptionError
	if _, err := l.Read(0, 1<<20); !errors.As(err, &corrupt) || corrupt.Offset != l.files[0].pos[1] {
		t.Fatalf("error %v", err)
	}
	if _, err := l.Read(2, 1<<20); err != nil {
		t.Fatal(err)
	}
}

func TestTornTailIsCutOffAndOverwritten(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, 0)
	appendAll(t, l, batchesOf(run{1, 3})...)
	l.Close()
	patch(t, disk, "log/00000000000000000000.log", func(b []byte) []byte { return append(b[:len(b)-7], make([]byte, 3)...) })
	l = openLog(t, disk, 0)
	wantRange(t, l, 0, 2)
	appendAll(t, l, batchAt(2, 1, false), batchAt(3, 2, true))
	wantRange(t, openLog(t, disk.Clone(), 0), 0, 4)
}

func TestFullDiskAppendsNothingAndTheLogGoesOn(t *testing.T) { // METALOG §5, 37
	for name, fileBytes := range map[string]int64{"in a file": 0, "at a new file": onePerFile} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			full := false
			l := openLog(t, vfs.WithFaults(disk, func(op vfs.Op) error {
				if full && op.Kind == vfs.OpWrite {
					return syscall.ENOSPC
				}
				return nil
			}), fileBytes)
			appendAll(t, l, batchesOf(run{1, 2})...)
			full = true
			if err := l.Append(context.Background(), batchAt(2, 1, false)); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrPoisoned) {
				t.Fatalf("error %v", err)
			}
			wantRange(t, l, 0, 2)
			wantRange(t, openLog(t, disk.Clone(), fileBytes), 0, 2)
			full = false
			appendAll(t, l, batchAt(2, 1, false))
			wantRange(t, openLog(t, disk.Clone(), fileBytes), 0, 3)
		})
	}
}

func TestHalfAWriteOnAFullDiskIsCutOff(t *testing.T) { // METALOG §5, 37
	disk := vfs.NewMem()
	space := vfs.WithSpace(disk, 1<<20)
	l := openLog(t, space, 0)
	appendAll(t, l, batchesOf(run{1, 2})...)
	free, err := space.Free()
	if err != nil {
		t.Fatal(err)
	}
	space.Add(20 - free)
	if err := l.Append(context.Background(), batchAt(2, 1, false)); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error %v", err)
	}
	info, err := disk.Stat(l.files[0].name)
	if err != nil || info.Size() != l.Bytes() {
		t.Fatalf("the file has %d bytes, the log knows %d, %v", info.Size(), l.Bytes(), err)
	}
}

func TestFailedFsyncPoisonsTheLog(t *testing.T) { // METALOG §5, 37
	for _, kind := range []vfs.Kind{vfs.OpSync, vfs.OpSyncDir} {
		t.Run(string(kind), func(t *testing.T) {
			disk := vfs.NewMem()
			broken := false
			l := openLog(t, vfs.WithFaults(disk, func(op vfs.Op) error {
				if broken && op.Kind == kind {
					return syscall.EIO
				}
				return nil
			}), onePerFile) // so that each append makes a file, and syncs the directory
			appendAll(t, l, batchAt(0, 1, true))
			broken = true
			if err := l.Append(context.Background(), batchAt(1, 1, false)); !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
				t.Fatalf("error %v", err)
			}
			broken = false
			if err := l.Append(context.Background(), batchAt(1, 1, false)); !errors.Is(err, ErrPoisoned) {
				t.Fatalf("appended after a failed fsync: %v", err)
			}
			wantRange(t, l, 0, 1) // what was durable is still served
			again := openLog(t, disk.Clone(), onePerFile)
			appendAll(t, again, batchAt(again.End(), 2, true))
		})
	}
}

// A new file that was published and could not be opened is on the disk: a batch that
// still fits into the old one must not go there.
func TestFileThatCannotBeOpenedPoisonsTheLog(t *testing.T) {
	disk := vfs.NewMem()
	broken := false
	l := openLog(t, vfs.WithFaults(disk, func(op vfs.Op) error {
		if broken && op.Kind == vfs.OpOpen {
			return syscall.EMFILE
		}
		return nil
	}), 700)
	appendAll(t, l, batchAt(0, 1, true), batchAt(1, 1, false))
	large := batchAt(2, 1, false)
	large.Upserts = append(large.Upserts, job(50, 600))
	broken = true
	if err := l.Append(context.Background(), large); !errors.Is(err, syscall.EMFILE) || !errors.Is(err, ErrPoisoned) {
		t.Fatalf("error %v", err)
	}
	broken = false
	if err := l.Append(context.Background(), batchAt(2, 1, false)); !errors.Is(err, ErrPoisoned) {
		t.Fatalf("error %v", err)
	}
	wantRange(t, openLog(t, disk.Clone(), 700), 0, 2)
}

func TestClosedLogRefusesAndClosesAgain(t *testing.T) {
	l := logOf(t, run{1, 1})
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Append(context.Background(), batchAt(1, 1, false)); !errors.Is(err, ErrClosed) {
		t.Fatalf("append: %v", err)
	}
	if _, err := l.Read(0, 1); !errors.Is(err, ErrClosed) {
		t.Fatalf("read: %v", err)
	}
}

func FuzzOpenLog(f *testing.F) {
	const name = "log/00000000000000000000.log"
	disk := vfs.NewMem()
	l := openLog(f, disk, 0)
	appendAll(f, l, batchesOf(run{1, 2}, run{2, 1})...)
	l.Close()
	sound, err := vfs.ReadFile(disk, name, 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sound)
	f.Add(sound[:len(sound)-3])
	f.Add(append(slices.Clone(sound), make([]byte, 700)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := vfs.NewMem()
		if err := disk.MkdirAll("log", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(disk, name, data); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLog(disk, LogOptions{})
		if err != nil {
			after, err := vfs.ReadFile(disk, name, 1<<30)
			if err != nil || !slices.Equal(after, data) {
				t.Fatal("it was refused and changed")
			}
			return
		}
		defer l.Close()
		wantRange(t, l, 0, l.End())
	})
}

// What is appended to a file without a name is gone with the process, so a log
// that was removed under its writer takes nothing more.
func TestAppendRefusesALogThatWasRemovedUnderIt(t *testing.T) {
	for name, harm := range map[string]func(fs vfs.FS, file string) error{
		"removed":  func(fs vfs.FS, file string) error { return fs.Remove(file) },
		"replaced": func(fs vfs.FS, file string) error { return vfs.WriteFile(fs, file, []byte("another")) },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			l := openLog(t, fs, 0)
			batches := batchesOf(run{1, 3})
			appendAll(t, l, batches[:2]...)
			if err := harm(fs, l.last().name); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := l.Append(t.Context(), batches[2]); !errors.Is(err, ErrPoisoned) {
					t.Errorf("append: %v, want %v", err, ErrPoisoned)
				}
			}
			if l.End() != 2 {
				t.Errorf("the log ends at %d, want 2", l.End())
			}
		})
	}
}

// A controller's directory with an epoch and no log has lost its log. An empty
// one in its place would be another cluster, which every node refuses.
func TestOpenLogRefusesToBeginAnewWhereAnEpochWasClaimed(t *testing.T) {
	fs := vfs.NewMem()
	if err := openLog(t, fs, 0).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ClaimEpoch(fs, 0); err != nil {
		t.Fatal(err)
	}
	if err := openLog(t, fs, 0).Close(); err != nil { // the first batch never came: nothing is lost
		t.Fatal(err)
	}
	if err := fs.RemoveAll("log"); err != nil {
		t.Fatal(err)
	}
	var damage *CorruptionError
	if _, err := OpenLog(fs, LogOptions{}); !errors.As(err, &damage) {
		t.Errorf("open: %v, want a *CorruptionError", err)
	}
	if _, err := fs.Stat("log"); err == nil {
		t.Error("it made the directory, into which a backup that is moved back would go")
	}
}
