package metalog

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
)

// far is a position past every log of these tests.
var far = Position{Offset: 500, LastEpoch: 7, LastTerm: termOf(7)}

func TestResetBeginsAnEmptyLogThatGoesOnAtThePosition(t *testing.T) {
	for name, at := range map[string]Position{
		"past the end":          far,
		"at the end":            {Offset: 5, LastEpoch: 3, LastTerm: termOf(3)},
		"where a file begins":   {Offset: 3, LastEpoch: 3, LastTerm: termOf(3)},
		"at the very beginning": {},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			l := openLog(t, disk, onePerFile)
			appendAll(t, l, batchesOf(run{1, 2}, run{2, 3})...)
			_, changed := l.Watch()
			if err := l.Reset(at); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
			default:
				t.Error("nobody was told that the end has moved")
			}
			wantFiles(t, disk, "log", strings.TrimPrefix(logFileName("log", at.Offset), "log/"))
			for _, l := range []*Log{l, openLog(t, disk.CrashClone(nil), onePerFile)} {
				wantRange(t, l, at.Offset, at.Offset)
				if l.Position() != at || l.Bytes() != logHeaderSize {
					t.Errorf("it is at %+v with %d bytes", l.Position(), l.Bytes())
				}
				var want []EpochEnd
				if at.Offset > 0 {
					want = []EpochEnd{{Epoch: at.LastEpoch, Term: at.LastTerm, End: at.Offset}}
				}
				if got := l.State(); !slices.Equal(got.Epochs, want) || got.LogStart != at.Offset || got.HighWatermark != at.Offset {
					t.Errorf("its state is %+v", got)
				}
				appendAll(t, l, batchAt(at.Offset, 7, at.LastEpoch < 7), batchAt(at.Offset+1, 7, false))
				wantRange(t, l, at.Offset, at.Offset+2)
			}
			wantRange(t, openLog(t, disk.CrashClone(nil), onePerFile), at.Offset, at.Offset+2)
		})
	}
}

func TestResetRefusesAPositionThatNoLogHas(t *testing.T) {
	l := logOf(t, run{1, 3})
	for _, at := range []Position{
		{Offset: -1, LastEpoch: 1, LastTerm: termOf(1)}, {Offset: 5}, {Offset: 5, LastEpoch: 1},
		{Offset: 5, LastTerm: termOf(1)}, {Offset: 0, LastEpoch: 1, LastTerm: termOf(1)}, {Offset: 0, LastTerm: uuid.Max},
		{Offset: 5, LastEpoch: -1, LastTerm: termOf(1)},
	} {
		if err := l.Reset(at); err == nil {
			t.Errorf("the log is at %+v", at)
		}
	}
	wantRange(t, l, 0, 3)
}

func TestScenario36PowerCutDuringResetLeavesTheOldLogOrTheNew(t *testing.T) {
	old := batchesOf(run{1, 2}, run{3, 3})
	for name, at := range map[string]Position{
		"past the end":        far,
		"where a file begins": {Offset: 3, LastEpoch: 3, LastTerm: termOf(3)},
	} {
		for files, fileBytes := range map[string]int64{"one file": 0, "a file per batch": onePerFile} {
			t.Run(name+", "+files, func(t *testing.T) {
				disk := vfs.NewMem()
				l := openLog(t, disk, fileBytes)
				appendAll(t, l, old...)
				l.Close()
				if err := RaiseEpoch(disk, 7); err != nil { // so that an empty directory is refused
					t.Fatal(err)
				}
				var reset, appended bool
				for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
					reset, appended = false, false
					l, err := OpenLog(fs, LogOptions{FileBytes: fileBytes})
					if err != nil {
						return err
					}
					err = l.Reset(at)
					reset = err == nil
					if err == nil {
						err = l.Append(context.Background(), batchAt(at.Offset, 8, true))
						appended = err == nil
					}
					return errors.Join(err, l.Close())
				}) {
					t.Run(crash.String(), func(t *testing.T) {
						// And the power goes once more while that is made good.
						for again := range vfs.CrashPoints(crash.Disk, func(fs vfs.FS) error {
							l, err := OpenLog(fs, LogOptions{FileBytes: fileBytes})
							if err != nil {
								return err
							}
							return l.Close()
						}) {
							l := openLog(t, again.Disk, fileBytes)
							switch {
							case l.Start() == 0 && !reset:
								wantRange(t, l, 0, 5)
							case l.End() == at.Offset && !appended:
								wantRange(t, l, at.Offset, at.Offset)
								if l.Position() != at {
									t.Fatalf("it is at %+v", l.Position())
								}
							default:
								wantRange(t, l, at.Offset, at.Offset+1)
							}
							for _, name := range fileNames(t, again.Disk, "log") {
								if !strings.HasSuffix(name, logFileSuffix) {
									t.Errorf("%s is left", name)
								}
							}
						}
					})
				}
			})
		}
	}
}

func TestScenario37ResetOnAFullDiskChangesNothing(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, 0)
	appendAll(t, l, batchesOf(run{1, 3})...)
	full := vfs.WithSpace(disk, 10)
	l.fs = full
	if err := l.Reset(far); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrPoisoned) {
		t.Fatalf("got %v", err)
	}
	appendAll(t, l, batchAt(3, 1, false))
	wantRange(t, openLog(t, disk.CrashClone(nil), 0), 0, 4)
	full.Add(1000)
	if err := l.Reset(far); err != nil {
		t.Fatal(err)
	}
	wantRange(t, openLog(t, disk.CrashClone(nil), 0), 500, 500)
}

// Once the new log may be there, the old one takes nothing more: it would be lost.
func TestScenario37ResetThatFailsHalfwayPoisonsTheLog(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpSync, vfs.OpRename, vfs.OpSyncDir, vfs.OpReadDir} {
		for _, nth := range []int{1, 2} {
			disk := vfs.NewMem()
			l := openLog(t, disk, onePerFile)
			appendAll(t, l, batchesOf(run{1, 3})...)
			count := 0
			l.fs = vfs.WithFaults(disk, func(op vfs.Op) error {
				if op.Kind == kind {
					if count++; count == nth {
						return syscall.EIO
					}
				}
				return nil
			})
			err := l.Reset(far)
			if err == nil {
				if count >= nth {
					t.Errorf("%s %d failed, and the log is reset", kind, nth)
				}
				continue
			}
			if !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) {
				t.Errorf("%s %d: %v", kind, nth, err)
			}
			if err := l.Append(context.Background(), batchAt(3, 1, false)); !errors.Is(err, ErrPoisoned) {
				t.Errorf("%s %d: append: %v", kind, nth, err)
			}
			l.Close()
			if l = openLog(t, disk, onePerFile); l.End() != 3 && l.Start() != 500 {
				t.Errorf("%s %d: reopened it is [%d, %d)", kind, nth, l.Start(), l.End())
			}
		}
	}
}

func TestResetThatCannotBeTrustedIsNotFinished(t *testing.T) {
	name := logFileName("log", 500) + resetSuffix
	header := encodeLogHeader(far)
	flipped := slices.Clone(header)
	flipped[20] ^= 1
	with := slices.Concat(header, framesOf(t, batchAt(500, 7, false)))
	for what, files := range map[string]map[string][]byte{
		"damaged":       {name: flipped},
		"short":         {name: header[:20]},
		"with batches":  {name: with},
		"a wrong name":  {logFileName("log", 400) + resetSuffix: header},
		"two of a kind": {name: header, logFileName("log", 400) + resetSuffix: encodeLogHeader(Position{400, 7, termOf(7)})},
	} {
		disk := vfs.NewMem()
		l := openLog(t, disk, 0)
		appendAll(t, l, batchesOf(run{1, 3})...)
		l.Close()
		for name, data := range files {
			putFile(t, disk, name, data)
		}
		before := fileNames(t, disk, "log")
		var damage *CorruptionError
		if l, err := OpenLog(disk, LogOptions{}); !errors.As(err, &damage) {
			t.Errorf("%s: opened %v, %v", what, l, err)
		}
		if after := fileNames(t, disk, "log"); !slices.Equal(before, after) {
			t.Errorf("%s: %q became %q", what, before, after)
		}
	}
}

func TestResetOfAClosedLogIsRefused(t *testing.T) {
	l := logOf(t, run{1, 3})
	l.Close()
	if err := l.Reset(far); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A reader that has found its batch when the log goes gets that batch, or hears that
// it is out of range: nothing else.
func TestReadersOfALogThatIsReset(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, onePerFile)
	appendAll(t, l, batchesOf(run{1, 3})...)
	reset := false
	l.fs = vfs.WithFaults(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && !reset {
			reset = true
			return l.Reset(Position{1, 1, termOf(1)})
		}
		return nil
	})
	b, err := l.Read(1, 1)
	if err != nil || len(b) > 0 {
		t.Errorf("read %d bytes, %v; the log is empty at 1", len(b), err)
	}
	var out *OutOfRangeError
	if _, err := l.Read(2, 1); !errors.As(err, &out) {
		t.Errorf("got %v", err)
	}
}

func TestRaiseEpochOnlyRaises(t *testing.T) {
	disk := vfs.NewMem()
	for _, last := range []int64{0, 5, 3} {
		if err := RaiseEpoch(disk, last); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := ClaimEpoch(disk, 5); err != nil || got != 6 {
		t.Errorf("claimed %d, %v", got, err)
	}
	fresh := vfs.NewMem()
	if err := RaiseEpoch(fresh, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Stat(EpochFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was claimed, and there is a file: %v", err)
	}
}
