package metalog

import (
	"errors"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

func TestEpochsOnlyRise(t *testing.T) {
	disk := vfs.NewMem()
	for want := int64(1); want < 4; want++ {
		if got, err := ClaimEpoch(disk, want-1); err != nil || got != want {
			t.Fatalf("epoch %d, %v; want %d", got, err, want)
		}
	}
	// The log lost what the last two leaders wrote.
	if got, err := ClaimEpoch(disk, 1); err != nil || got != 4 {
		t.Fatalf("epoch %d, %v", got, err)
	}
}

func TestEpochFileThatCannotBeTrustedIsRefused(t *testing.T) {
	for name, damage := range map[string]func(vfs.FS) error{
		"missing although the log has an epoch": func(fs vfs.FS) error { return fs.Remove(EpochFile) },
		"older than the log":                    func(fs vfs.FS) error { return vfs.WriteFile(fs, EpochFile, encodeEpoch(1)) },
		"a digit changed": func(fs vfs.FS) error {
			return vfs.WriteFile(fs, EpochFile, []byte("epoch 9"+string(encodeEpoch(2)[7:])))
		},
		"empty":               func(fs vfs.FS) error { return vfs.WriteFile(fs, EpochFile, nil) },
		"something else":      func(fs vfs.FS) error { return vfs.WriteFile(fs, EpochFile, []byte("hello\n")) },
		"more after the line": func(fs vfs.FS) error { return vfs.WriteFile(fs, EpochFile, append(encodeEpoch(2), "more"...)) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			for range 2 {
				if _, err := ClaimEpoch(disk, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := damage(disk); err != nil {
				t.Fatal(err)
			}
			var corrupt *CorruptionError
			if epoch, err := ClaimEpoch(disk, 2); !errors.As(err, &corrupt) || corrupt.File != EpochFile {
				t.Fatalf("epoch %d, %v", epoch, err)
			}
		})
	}
}

func TestEpochThatCannotBeSyncedIsNotGivenOut(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir} {
		fs := vfs.WithFaults(vfs.NewMem(), func(op vfs.Op) error {
			if op.Kind == kind {
				return syscall.EIO
			}
			return nil
		})
		if epoch, err := ClaimEpoch(fs, 0); !errors.Is(err, syscall.EIO) || epoch != 0 {
			t.Errorf("%s fails: epoch %d, %v", kind, epoch, err)
		}
	}
}

func FuzzDecodeEpoch(f *testing.F) {
	f.Add(encodeEpoch(7))
	f.Add([]byte("epoch 07 crc32c 00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		epoch, err := decodeEpoch(data)
		if err == nil && string(encodeEpoch(epoch)) != string(data) {
			t.Fatalf("%q reads as %d", data, epoch)
		}
	})
}
