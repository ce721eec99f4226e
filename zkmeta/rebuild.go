package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/metalog"
)

// listAtOnce is how many directories are listed at a time.
const listAtOnce = 16

// Rebuild makes the image from the record znodes, for a controller that has neither
// a log of its own nor finds enough of it in ZooKeeper. The znodes are the state;
// while they are being read they change, and what changes is in the log: so it notes
// the head, reads them all, and then applies the entries since that head. Each
// entry says of its records what they are after it, so it does no harm that some
// were read later than the head.
//
// It fails with an *EntryMissingError if so much was written meanwhile that the tail
// no longer reaches back, and with ErrNoAnswer if the session changed: another server
// may be behind the one that named the head. The caller begins again.
func Rebuild(ctx context.Context, c *Conn) (*meta.Image, error) {
	cluster, err := ReadIdentity(ctx, c)
	if err != nil {
		return nil, err
	}
	session := c.Session().ID
	first, _, err := readHead(ctx, c)
	if err != nil {
		return nil, err
	}
	records, err := scan(ctx, c)
	if err != nil {
		return nil, err
	}
	last, _, err := readHead(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := catchUpRecords(ctx, c, records, first.next(), last.next()); err != nil {
		return nil, err
	}
	if c.Session().ID != session {
		return nil, fmt.Errorf("zkmeta: rebuild: %w", noAnswer(errors.New("the session changed while the record znodes were read")))
	}
	im, err := imageOf(c, records, last)
	if err != nil {
		return nil, err
	}
	if found := im.Cluster(); last.next() > 0 && (found == nil || found.ID != cluster) {
		return nil, &TreeError{Path: c.Path(clusterName), Reason: fmt.Sprintf("it is not of cluster %s, which the znode %s names", cluster, idName)}
	}
	return im, nil
}

// imageOf makes the image of records that end at the head.
func imageOf(c *Conn, records map[meta.Key]meta.Record, head headRecord) (*meta.Image, error) {
	keys := slices.SortedFunc(maps.Keys(records), meta.Key.Compare)
	sorted := func(yield func(meta.Record) bool) {
		for _, k := range keys {
			if !yield(records[k]) {
				return
			}
		}
	}
	at := meta.Position{Next: head.next(), Epoch: head.Epoch, Time: head.Time}
	im, err := meta.Restore(at, sorted)
	if err != nil {
		return nil, fmt.Errorf("zkmeta: the record znodes below %s do not make an image: %w", c.Path(), err)
	}
	if im.LastTerm() != head.Term {
		return nil, &TreeError{Path: c.Path(leaderName), Reason: fmt.Sprintf("it is not of term %s, which the head names", head.Term)}
	}
	return im, nil
}

// catchUpRecords applies the entries in [from, to) to a set of records.
func catchUpRecords(ctx context.Context, c *Conn, records map[meta.Key]meta.Record, from, to int64) error {
	for from < to {
		frames, err := readTail(ctx, c, from, to, metalog.MaxFramePayload)
		if err != nil {
			return err
		}
		entries, err := metalog.DecodeEntries(frames)
		if err != nil {
			return err
		}
		for _, e := range entries {
			for _, k := range e.Batch.Removals {
				delete(records, k)
			}
			for _, r := range e.Batch.Upserts {
				records[r.Key()] = r
			}
		}
		from += int64(len(entries))
	}
	return nil
}

// level is a directory on the way down to records.
type level struct {
	kind  meta.Kind
	path  string // below the root
	depth int    // of directories that are still below it
}

// roots are where records are found, with the directories below them.
var roots = []level{
	{meta.KindTable, tablesDir, 0},
	{meta.KindTableConfig, configsDir, 1},
	{meta.KindPartition, partitionsDir, 1},
	{meta.KindSegment, segmentsDir, 3},
	{meta.KindTombstone, tombstonesDir, 3},
	{meta.KindNode, nodesDir, 0},
	{meta.KindJob, jobsDir, 1},
}

// scan reads all record znodes. One that goes while it is being read is left out:
// the entry that removed it comes later.
func scan(ctx context.Context, c *Conn) (map[meta.Key]meta.Record, error) {
	s := scanner{conn: c, records: map[meta.Key]meta.Record{}}
	singles := []found{{meta.KindCluster, clusterName}, {meta.KindLeader, leaderName}}
	if err := s.read(ctx, singles); err != nil {
		return nil, err
	}
	for levels := roots; len(levels) > 0; {
		below, leaves, err := s.descend(ctx, levels)
		if err != nil {
			return nil, err
		}
		if err := s.read(ctx, leaves); err != nil {
			return nil, err
		}
		levels = below
	}
	return s.records, nil
}

// found is a record's znode.
type found struct {
	kind meta.Kind
	path string
}

type scanner struct {
	conn    *Conn
	records map[meta.Key]meta.Record
}

// descend lists directories and returns those below them, and the records in them.
func (s *scanner) descend(ctx context.Context, levels []level) (below []level, leaves []found, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(listAtOnce)
	for _, l := range levels {
		g.Go(func() error {
			names, err := s.conn.Children(ctx, s.conn.Path(l.path))
			if errors.Is(err, ErrNoNode) && !slices.Contains(fixedDirs, l.path) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, name := range names {
				rel := path.Join(l.path, name)
				switch {
				case l.depth == 0:
					leaves = append(leaves, found{l.kind, rel})
				case isDirectory(l.kind, rel):
					below = append(below, level{l.kind, rel, l.depth - 1})
				default:
					return &TreeError{Path: rel, Reason: fmt.Sprintf("no %s is below a directory of that name", l.kind)}
				}
			}
			return nil
		})
	}
	return below, leaves, g.Wait()
}

// isDirectory reports whether records of the kind can be below such a path: the id of
// a table and then numbers, or the first byte of a job's id.
func isDirectory(kind meta.Kind, rel string) bool {
	parts := strings.Split(rel, "/")
	if kind == meta.KindJob {
		b, err := strconv.ParseUint(parts[1], 16, 8)
		return err == nil && parts[1] == fmt.Sprintf("%02x", b)
	}
	id, err := uuid.Parse(parts[1])
	if err != nil || id.String() != parts[1] {
		return false
	}
	for _, part := range parts[2:] {
		if n, err := strconv.ParseInt(part, 10, 64); err != nil || n < 0 || strconv.FormatInt(n, 10) != part {
			return false
		}
	}
	return true
}

func (s *scanner) read(ctx context.Context, znodes []found) error {
	paths := make([]string, len(znodes))
	for i, z := range znodes {
		paths[i] = s.conn.Path(z.path)
	}
	return s.conn.Each(ctx, paths, readAtOnce, func(i int, data []byte, _ int32, err error) error {
		if errors.Is(err, ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		r, err := decodeRecord(znodes[i].kind, znodes[i].path, data)
		if err != nil {
			return err
		}
		s.records[r.Key()] = r
		return nil
	})
}
