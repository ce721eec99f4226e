package segment

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
)

// copyPlace is a directory <top>/<table-id>/<partition>.
type copyPlace struct {
	table     uuid.UUID
	partition int32
	path      string
}

// walk calls visit for each partition's directory below top, with the regular
// files in it. What else lies around is not ours, and is left alone.
func (s *Store) walk(top string, visit func(copyPlace, []fs.DirEntry) error) error {
	tables, err := s.fs.ReadDir(top)
	if err != nil {
		return err
	}
	for _, t := range tables {
		table, err := uuid.Parse(t.Name())
		if err != nil || table.String() != t.Name() || !t.IsDir() {
			s.strange(path.Join(top, t.Name()))
			continue
		}
		partitions, err := s.fs.ReadDir(path.Join(top, t.Name()))
		if err != nil {
			return err
		}
		for _, p := range partitions {
			dir := copyPlace{table: table, path: path.Join(top, t.Name(), p.Name())}
			n, err := strconv.ParseInt(p.Name(), 10, 32)
			if err != nil || n < 0 || strconv.FormatInt(n, 10) != p.Name() || !p.IsDir() {
				s.strange(dir.path)
				continue
			}
			dir.partition = int32(n)
			entries, err := s.fs.ReadDir(dir.path)
			if err != nil {
				return err
			}
			files := entries[:0]
			for _, e := range entries {
				if e.Type().IsRegular() {
					files = append(files, e)
				} else {
					s.strange(path.Join(dir.path, e.Name()))
				}
			}
			if err := visit(dir, files); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) strange(file string) {
	s.log.Warn().Str("file", file).Msg("not the store's, left alone")
}

// scanSegments rebuilds the index from segments/. For each data file the sidecar
// says digest and size; where it cannot, the data is hashed, and judged by the
// digits of the digest in its name.
func (s *Store) scanSegments() error {
	return s.walk(segmentsDir, func(dir copyPlace, files []fs.DirEntry) error {
		present := make(map[string]bool, len(files))
		for _, e := range files {
			present[e.Name()] = true
		}
		for _, e := range files {
			file := path.Join(dir.path, e.Name())
			if strings.HasSuffix(e.Name(), removedSuffix) {
				// A removal that was decided and durable; only the unlink is missing.
				if err := s.removeIfThere(file); err != nil {
					return err
				}
				continue
			}
			if _, _, err := ParseSidecarName(e.Name()); err == nil {
				if present[strings.TrimSuffix(e.Name(), sidecarSuffix)+fileSuffix] {
					continue
				}
				// A publish or a removal that did not get to the end.
				if err := s.removeIfThere(file); err != nil {
					return err
				}
				continue
			}
			name, short, err := ParseFileName(e.Name())
			if err != nil || name.Partition != dir.partition {
				s.strange(file)
				continue
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			h := Held{Table: dir.table, Partition: dir.partition, Name: name.String(), SizeBytes: info.Size(), State: StateSealed, file: file}
			if err := s.scanCopy(h, name.Seq, short); err != nil {
				return err
			}
		}
		return nil
	})
}

// scanCopy judges one data file and puts it into the index, sealed or quarantined.
func (s *Store) scanCopy(h Held, seq int64, short string) error {
	pieces, err := s.sidecarOf(h.file, short)
	if err == nil && pieces.Size == h.SizeBytes {
		h.Digest, err = pieces.Root()
		if err != nil {
			return err
		}
		s.insert(h, seq)
		return nil
	}
	if err == nil {
		err = fmt.Errorf("sidecar is of a file of %d bytes, this one has %d", pieces.Size, h.SizeBytes)
		// A proven list names the content, whatever became of the data. (But the
		// flaw may be in the sidecar's size field: the data decides.)
		h.Digest, _ = pieces.Root()
	}
	s.logged(s.log.Warn(), h).Err(err).Msg("sidecar cannot be used, hashing the segment")

	found, digest, err := s.hashCopy(context.Background(), h.file)
	if err != nil || digest.Short() != short {
		s.insert(h, seq)
		_, err = s.Quarantine(h, scanProblem(err, digest))
		return err
	}
	h.Digest, h.SizeBytes, h.Verified = digest, found.Size, s.now()
	if err := s.writeSidecar(h.file, found); vfs.IsSyncError(err) {
		return err
	} else if err != nil {
		// The copy is good all the same; RepairSidecar can try again.
		s.logged(s.log.Error(), h).Err(err).Msg("sidecar could not be written")
	}
	s.insert(h, seq)
	return nil
}

func scanProblem(err error, digest Digest) string {
	if err != nil {
		return "found at start, cannot be hashed: " + err.Error()
	}
	return fmt.Sprintf("found at start, content hashes to %s", digest)
}

// sidecarOf reads a sidecar of which only the digits in the file name are known.
func (s *Store) sidecarOf(data, short string) (*Pieces, error) {
	b, err := s.readSmall(sidecarPath(data))
	if err != nil {
		return nil, err
	}
	p := new(Pieces)
	if err := p.UnmarshalBinary(b); err != nil {
		return nil, err
	}
	root, err := p.Root()
	if err != nil {
		return nil, err
	}
	if root.Short() != short {
		return nil, fmt.Errorf("piece list combines to %s, not to %s…", root, short)
	}
	return p, nil
}
