package metalog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/shoalstore/shoal/internal/vfs"
)

// EpochFile is where a controller keeps the last epoch it has claimed.
const EpochFile = "epoch"

// ClaimEpoch returns an epoch that was never used, having made that durable in
// EpochFile first. last is the epoch at the end of the log, 0 when it is empty.
//
// The log alone cannot say which epochs were used: the batch that opens one may be a
// torn tail after a power cut. Given out again, the epoch would fence nothing: a
// request that still carries it from before would pass for one of the new leader.
func ClaimEpoch(fsys vfs.FS, last int64) (int64, error) {
	claimed, err := readEpoch(fsys)
	if err != nil {
		return 0, err
	}
	if claimed < last {
		return 0, &CorruptionError{File: EpochFile, Reason: fmt.Sprintf(
			"it says epoch %d and the log holds epoch %d; every epoch is claimed here first", claimed, last)}
	}
	if err := vfs.WriteFile(fsys, EpochFile, encodeEpoch(claimed+1)); err != nil {
		return 0, fmt.Errorf("metalog: claim epoch %d: %w", claimed+1, err)
	}
	return claimed + 1, nil
}

// RaiseEpoch makes EpochFile say that every epoch up to last was claimed. Whoever
// writes a data directory from elsewhere does it last, because a log that is missing
// beside the file is refused, and one without it can still be written again.
func RaiseEpoch(fsys vfs.FS, last int64) error {
	claimed, err := readEpoch(fsys)
	if err != nil || claimed >= last {
		return err
	}
	if err := vfs.WriteFile(fsys, EpochFile, encodeEpoch(last)); err != nil {
		return fmt.Errorf("metalog: raise the epoch to %d: %w", last, err)
	}
	return nil
}

// readEpoch returns 0 when there is no file yet.
func readEpoch(fsys vfs.FS) (int64, error) {
	const sizeMax = 100 // bytes; the longest line is 45
	info, err := fsys.Stat(EpochFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("metalog: %w", err)
	case info.Size() > sizeMax && info.Mode().IsRegular():
		return 0, &CorruptionError{File: EpochFile, Reason: fmt.Sprintf("it does not hold an epoch: it has %d bytes", info.Size())}
	}
	if err := notRegular(EpochFile, info.Mode()); err != nil {
		return 0, err
	}
	data, err := vfs.ReadFile(fsys, EpochFile, sizeMax)
	if err != nil {
		return 0, fmt.Errorf("metalog: %w", err)
	}
	epoch, err := decodeEpoch(data)
	if err != nil {
		return 0, &CorruptionError{File: EpochFile, Reason: "it does not hold an epoch", Err: err}
	}
	return epoch, nil
}

// The file is one line that a person can read: "epoch 7 crc32c 1a2b3c4d".
func encodeEpoch(epoch int64) []byte {
	text := fmt.Sprintf("epoch %d", epoch)
	return fmt.Appendf(nil, "%s crc32c %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

func decodeEpoch(data []byte) (int64, error) {
	var epoch int64
	if _, err := fmt.Sscanf(string(data), "epoch %d", &epoch); err != nil {
		return 0, err
	}
	if want := encodeEpoch(epoch); epoch < 1 || string(want) != string(data) {
		return 0, fmt.Errorf("%q is not a line that was written here", data)
	}
	return epoch, nil
}
