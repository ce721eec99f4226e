package peerdl

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mountSmall mounts a tmpfs of so many bytes, which only root may.
func mountSmall(dir string, size int64) (unmount func() error, resize func(int64) error, err error) {
	mount := func(size int64, flags uintptr) error {
		return unix.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%d", size))
	}
	if err := mount(size, 0); err != nil {
		return nil, nil, err
	}
	return func() error { return unix.Unmount(dir, unix.MNT_DETACH) },
		func(size int64) error { return mount(size, unix.MS_REMOUNT) }, nil
}
