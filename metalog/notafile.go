package metalog

import (
	"io/fs"
)

// notAFile returns a *CorruptionError if something else is where a file should be. Links
// are not followed: what they lead to may be anything, and in no directory that is fsynced
// here.
func notAFile(name string, e fs.DirEntry) error {
	return notRegular(name, e.Type())
}

// notRegular is notAFile of what the type is known.
func notRegular(name string, t fs.FileMode) error {
	switch {
	case t.IsRegular():
		return nil
	case t.IsDir():
		return &CorruptionError{File: name, Reason: "it is a directory, and should be a file"}
	case t&fs.ModeSymlink != 0:
		return &CorruptionError{File: name, Reason: "it is a symbolic link, and should be a file"}
	}
	return &CorruptionError{File: name, Reason: "it is no regular file"}
}
