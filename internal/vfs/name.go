package vfs

import (
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// checkName refuses any name that is not the one clean, local spelling of a
// file below the root. Every implementation asks here first, so that a test on
// Mem meets the same refusals as the operating system.
func checkName(op, name string) error {
	if !fs.ValidPath(name) || strings.ContainsAny(name, "\x00\\") {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

// checkNotRoot is checkName for operations that need a parent directory.
func checkNotRoot(op, name string) error {
	if err := checkName(op, name); err != nil {
		return err
	}
	if name == "." {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EINVAL}
	}
	return nil
}

// parents lists the directories from the top down to name itself, the root
// excluded: "a/b/c" gives "a", "a/b", "a/b/c".
func parents(name string) []string {
	var out []string
	for ; name != "."; name = path.Dir(name) {
		out = append(out, name)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
