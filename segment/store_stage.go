package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
)

// What is not sealed lies in staging/. A build is lost with its process, because
// its rows are still in the stream: staging/builds is emptied at open. A download
// is kept while its journal lies beside it, and continues.
const (
	buildsDir    = "staging/builds"
	downloadsDir = "staging/downloads"

	downloadSuffix = ".part"
	// journalSuffix comes after the whole name of the .part.
	journalSuffix = ".journal"
)

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,200}$`)

// Stage creates a file to build a segment in and returns it with its path. Label
// shows up in the path, for people; the segment's name is a good one. The caller
// ends it with Publish, or closes it and calls Discard.
func (s *Store) Stage(table uuid.UUID, partition int32, label string) (vfs.File, string, error) {
	if !labelPattern.MatchString(label) {
		return nil, "", fmt.Errorf("segment: label %q: want 1 to 200 of A-Z a-z 0-9 _ . -", abridge(label))
	}
	return s.createStaged(fmt.Sprintf("%s-%d-%s", table, partition, label))
}

func (s *Store) createStaged(label string) (vfs.File, string, error) {
	name := fmt.Sprintf("%s/%s.%d", buildsDir, label, s.stages.Add(1))
	f, err := s.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, "", fmt.Errorf("segment: stage on %s: %w", s.fs, err)
	}
	return f, name, nil
}

// Discard removes a staged file, and a download's journal, that will not be
// published. One that is already gone is no error.
func (s *Store) Discard(staged string) error {
	if dir := path.Dir(path.Clean(staged)); dir != buildsDir && !strings.HasPrefix(dir, downloadsDir+"/") {
		return fmt.Errorf("segment: discard %q: not in staging", abridge(staged))
	}
	// The journal last: without its .part it is swept, but a .part without
	// journal would be as well.
	return s.removeIfThere(staged, staged+journalSuffix)
}

// Download is a download that was begun and not published.
type Download struct {
	Table     uuid.UUID
	Partition int32
	Name      string
	// Short is the first 16 hex digits of the digest (Digest.Short).
	Short string
	// Path is where its .part is; its journal is Path plus ".journal".
	Path string
	// SizeBytes is how long the .part is, holes included.
	SizeBytes int64
}

// DownloadPath says where the .part of a download belongs, and makes its
// directory. The same segment and digest always get the same path.
func (s *Store) DownloadPath(table uuid.UUID, partition int32, name string, digest Digest) (string, error) {
	if err := checkName(partition, name); err != nil {
		return "", err
	}
	dir := copyDir(downloadsDir, table, partition)
	if err := s.fs.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("segment: download on %s: %w", s.fs, err)
	}
	return path.Join(dir, FileName(name, digest)+downloadSuffix), nil
}

// Downloads lists what is in staging/downloads, so that a node can continue what
// it still wants and Discard the rest.
func (s *Store) Downloads() ([]Download, error) {
	var all []Download
	err := s.walk(downloadsDir, func(dir copyPlace, files []fs.DirEntry) error {
		for _, e := range files {
			file, ok := strings.CutSuffix(e.Name(), downloadSuffix)
			name, short, err := ParseFileName(file)
			if !ok || err != nil {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			all = append(all, Download{dir.table, dir.partition, name.String(), short, path.Join(dir.path, e.Name()), info.Size()})
		}
		return nil
	})
	return all, err
}

// checkName refuses a name from outside that is none, or is not the partition's.
func checkName(partition int32, name string) error {
	n, err := ParseName(name)
	if err != nil {
		return err
	}
	if n.Partition != partition {
		return fmt.Errorf("segment: name %s is not of partition %d", name, partition)
	}
	return nil
}

func (s *Store) sweepBuilds() error {
	builds, err := s.fs.ReadDir(buildsDir)
	if err != nil {
		return err
	}
	for _, e := range builds {
		if err := s.fs.RemoveAll(path.Join(buildsDir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// sweepDownloads removes downloads that have no journal to go on by (whether a
// journal is any good is for its reader to see), and those that are done: a crash
// in Publish can leave a file under both its names, and to go on writing to the
// .part would then be to write to a sealed copy.
func (s *Store) sweepDownloads() error {
	return s.walk(downloadsDir, func(dir copyPlace, files []fs.DirEntry) error {
		present := make(map[string]bool, len(files))
		for _, e := range files {
			present[e.Name()] = true
		}
		for _, e := range files {
			name := e.Name()
			part, isJournal := strings.CutSuffix(name, journalSuffix)
			file, isDownload := strings.CutSuffix(part, downloadSuffix)
			_, sealed := s.lookup(path.Join(copyDir(segmentsDir, dir.table, dir.partition), file))
			if isDownload && present[part] && present[part+journalSuffix] && !sealed {
				continue
			}
			if err := s.fs.RemoveAll(path.Join(dir.path, name)); err != nil {
				return err
			}
			if !isJournal && !sealed {
				s.log.Info().Str("file", path.Join(dir.path, name)).Msg("swept a download that cannot be resumed")
			}
		}
		return nil
	})
}
