package metalog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/shoalstore/shoal/internal/vfs"
)

// A snapshot that is being downloaded lies beside the others as
//
//	<id>.checkpoint.<16 digits of the digest>.part
//	<id>.checkpoint.<16 digits of the digest>.part.journal
//
// The digest is in the name because a download goes on from whoever has the same bytes,
// and from nobody else. The one being written here has a name of its own, without it:
// what was written is lost with its process, what was downloaded is not.

// journalSuffix comes after the whole name of the .part. The journal is the
// downloader's; here it only counts that it is there.
const journalSuffix = ".journal"

// PartPath says where a snapshot is downloaded to, in which file system.
func (s *Snapshots) PartPath(ref SnapshotRef) (fsys vfs.FS, part string) {
	return s.fs, snapshotFile(s.dir, ref.SnapshotID) + "." + ref.Digest.Short() + partSuffix
}

// DropDownloads removes what was downloaded and not adopted, except for one .part and its
// journal; with an empty name it keeps none. It returns how many downloads that ended, and
// must not be called while one of those is under way.
func (s *Snapshots) DropDownloads(except string) (dropped int, err error) {
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("metalog: %w", err)
	}
	var errs []error
	for _, e := range entries {
		part, ok := downloadOf(e.Name())
		if !ok || part == path.Base(except) {
			continue
		}
		if e.Name() == part {
			dropped++
		}
		errs = append(errs, removeIfThere(s.fs, path.Join(s.dir, e.Name())))
	}
	return dropped, errors.Join(errs...)
}

// downloadOf returns the name of the .part that a file is, or is the journal of.
func downloadOf(name string) (part string, ok bool) {
	part = strings.TrimSuffix(strings.TrimSuffix(name, tmpSuffix), journalSuffix)
	_, ok = parseDownloadName(part)
	return part, ok
}

// parseDownloadName returns the id in the name of the .part of a download.
func parseDownloadName(name string) (SnapshotID, bool) {
	base, part := strings.CutSuffix(name, partSuffix)
	dot := strings.LastIndexByte(base, '.')
	if !part || dot < 0 || len(base)-dot-1 != 16 {
		return SnapshotID{}, false
	}
	if _, err := hex.DecodeString(base[dot+1:]); err != nil {
		return SnapshotID{}, false
	}
	return parseSnapshotName(base[:dot], snapshotSuffix)
}

// abandoned tells the names that belong to a download which nobody can go on with. files
// are all that there are. A .part without its journal is one, and so is each half of a
// download that is done: a power cut can leave the snapshot under both its names, and to
// write to the .part would then be to write to the snapshot.
func abandoned(name string, files map[string]bool) bool {
	part, ok := downloadOf(name)
	if !ok {
		return false
	}
	id, _ := parseDownloadName(part)
	journal := part + journalSuffix
	return name != part && name != journal || !files[part] || !files[journal] || files[id.String()+snapshotSuffix]
}
