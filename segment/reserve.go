package segment

import (
	"fmt"
	"sync"
	"syscall"
)

// DefaultReserve is how many bytes of the file system reservations leave free,
// unless SetReserve says otherwise: room for the metadata log, sidecars, and the
// builds in progress.
const DefaultReserve = 512 << 20

// NoSpaceError says that a reservation would not leave enough of the disk. It
// matches syscall.ENOSPC.
type NoSpaceError struct {
	// FileSystem names the root of the store.
	FileSystem string
	// All in bytes: what was asked for, what the file system has free, what
	// others have reserved of that, and what is to stay free.
	Want, Free, Reserved, Reserve int64
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("segment: no space on %s: %d bytes wanted, %d free of which %d are reserved and %d are to stay free",
		e.FileSystem, e.Want, e.Free, e.Reserved, e.Reserve)
}

func (e *NoSpaceError) Unwrap() error { return syscall.ENOSPC }

// SetReserve sets how many bytes reservations leave free.
func (s *Store) SetReserve(bytes int64) { s.reserve.Store(max(bytes, 0)) }

// Reserve claims space for a file about to be written, so that downloads that
// would fill the disk are refused before their first byte. The claim counts in
// full until release is called, also for what has been written meanwhile: it
// errs on the side of the disk. Release may be called repeatedly.
func (s *Store) Reserve(bytes int64) (release func(), err error) {
	if bytes < 0 {
		return nil, fmt.Errorf("segment: reserve %d bytes", bytes)
	}
	free, err := s.fs.Free()
	if err != nil {
		return nil, fmt.Errorf("segment: free space of %s: %w", s.fs, err)
	}
	reserve := s.reserve.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if free-reserve-s.reserved < bytes {
		return nil, &NoSpaceError{FileSystem: s.fs.String(), Want: bytes, Free: free, Reserved: s.reserved, Reserve: reserve}
	}
	s.reserved += bytes
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.reserved -= bytes
		s.mu.Unlock()
	}), nil
}
