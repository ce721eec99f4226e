package metalog

import (
	"context"
	"errors"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta"
)

// METALOG §5, 36: a power cut at each durable operation, and what is found after it.
// The work counts what it was told is durable; a reopened log must hold that, and
// nothing that was not at least asked for.

// appendUntilError appends until the power goes, and returns how many it was told of.
func appendUntilError(l *Log, batches []*meta.Batch) (acknowledged int64) {
	for _, b := range batches {
		if l.Append(context.Background(), b) != nil {
			break
		}
		acknowledged++
	}
	return acknowledged
}

func TestPowerCutDuringAppendsLosesNothingAcknowledged(t *testing.T) {
	batches := batchesOf(run{1, 3}, run{2, 3})
	for name, fileBytes := range map[string]int64{"one file": 0, "a file per batch": onePerFile} {
		t.Run(name, func(t *testing.T) {
			var acknowledged int64
			for crash := range vfs.CrashPoints(vfs.NewMem(), func(fs vfs.FS) error {
				acknowledged = 0
				l, err := OpenLog(fs, LogOptions{FileBytes: fileBytes})
				if err != nil {
					return err
				}
				acknowledged = appendUntilError(l, batches)
				return l.Close()
			}) {
				t.Run(crash.String(), func(t *testing.T) {
					l := openLog(t, crash.Disk, fileBytes)
					end := l.End()
					if end < acknowledged || end > acknowledged+1 {
						t.Fatalf("%d batches were acknowledged, %d are there", acknowledged, end)
					}
					wantRange(t, l, 0, end)
					// The next leader writes where this one ended.
					appendAll(t, l, batchAt(end, 7, true))
					wantRange(t, openLog(t, crash.Disk.CrashClone(nil), fileBytes), 0, end+1)
				})
			}
		})
	}
}

func TestPowerCutDuringTrimLeavesALogWithoutAHole(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, onePerFile)
	appendAll(t, l, batchesOf(run{1, 2}, run{2, 3})...)
	l.Close()
	for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
		l, err := OpenLog(fs, LogOptions{FileBytes: onePerFile})
		if err != nil {
			return err
		}
		return errors.Join(l.Trim(4), l.Close())
	}) {
		t.Run(crash.String(), func(t *testing.T) {
			l := openLog(t, crash.Disk, onePerFile)
			if l.Start() > 4 || crash.Done && l.Start() != 4 {
				t.Fatalf("the log starts at %d", l.Start())
			}
			wantRange(t, l, l.Start(), 5)
		})
	}
}

func TestPowerCutDuringTruncateLeavesAPrefix(t *testing.T) {
	for name, fileBytes := range map[string]int64{"one file": 0, "a file per batch": onePerFile, "some in each": 600} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			l := openLog(t, disk, fileBytes)
			appendAll(t, l, batchesOf(run{1, 2}, run{2, 4})...)
			l.Close()
			for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
				l, err := OpenLog(fs, LogOptions{FileBytes: fileBytes})
				if err != nil {
					return err
				}
				return errors.Join(l.Truncate(1), l.Append(context.Background(), batchAt(1, 5, true)), l.Close())
			}) {
				t.Run(crash.String(), func(t *testing.T) {
					l := openLog(t, crash.Disk, fileBytes)
					wantRange(t, l, 0, l.End())
					if l.End() < 1 || crash.Done && (l.End() != 2 || l.Position().LastEpoch != 5) {
						t.Fatalf("the log ends at %+v", l.Position())
					}
				})
			}
		})
	}
}

// A follower stores several frames with one fsync. A cut in the middle may leave a
// later frame without an earlier one: damage, by the rule, and the follower's cache is
// set aside; what was acknowledged before is never lost silently.
func TestPowerCutDuringAGroupedAppendIsAPrefixOrIsRefused(t *testing.T) {
	disk := vfs.NewMem()
	l := openLog(t, disk, 0)
	appendAll(t, l, batchesOf(run{1, 2})...)
	l.Close()
	var group []Entry
	for i := int64(2); i < 9; i++ {
		b := batchAt(i, 1, false)
		b.Upserts = append(b.Upserts, job(100+i, 700))
		group = append(group, entryOf(t, b))
	}
	for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
		l, err := OpenLog(fs, LogOptions{})
		if err != nil {
			return err
		}
		return errors.Join(l.AppendEntries(context.Background(), group), l.Close())
	}) {
		t.Run(crash.String(), func(t *testing.T) {
			l, err := OpenLog(crash.Disk, LogOptions{})
			var corrupt *CorruptionError
			if errors.As(err, &corrupt) && !crash.Done {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			wantRange(t, l, 0, l.End())
			if l.End() < 2 || crash.Done && l.End() != 9 {
				t.Fatalf("the log ends at %d", l.End())
			}
		})
	}
}

func TestPowerCutNeverGivesAnEpochOutTwice(t *testing.T) {
	disk := vfs.NewMem()
	if _, err := ClaimEpoch(disk, 0); err != nil {
		t.Fatal(err)
	}
	var given int64
	for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
		given = 1
		for range 3 {
			epoch, err := ClaimEpoch(fs, 0) // the log's tail is lost each time
			if err != nil {
				return err
			}
			given = epoch
		}
		return nil
	}) {
		t.Run(crash.String(), func(t *testing.T) {
			epoch, err := ClaimEpoch(crash.Disk, 0)
			if err != nil {
				t.Fatal(err)
			}
			if epoch <= given {
				t.Fatalf("epoch %d was given out before, now %d", given, epoch)
			}
		})
	}
}
