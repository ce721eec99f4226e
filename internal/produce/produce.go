// Package produce writes a files stream: it is what `shoal up` fills its tables
// with, and nothing in a node or a controller depends on it.
//
// It owns the directory of one stream (package stream reads it): the partition
// files, stream.id, and input.json, which remembers what the rows came from. It
// does not look into rows, except for the field that spreads them (spread.go).
//
// # Exactly once
//
// A row is in its partition file once its newline is. Whatever stops the
// producer, the next Open cuts torn last lines, and Run replays the input from
// its first row and leaves out, in each partition, as many rows as that
// partition's file already holds of this input. That is exact because the
// partition of a row depends on nothing but its number and its bytes, so a
// file holds a prefix of its partition's rows. The sum over all files would
// not do: buffers are written one by one, and a crash can leave row 5 in its
// file while row 4 is in none. What is left out is compared with the file on
// the way, so an input that changed is an error and not a silent shift.
//
// Start reading here, then run.go; input.go is what comes in, partition.go what
// goes out, state.go what is remembered.
package produce

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/stream"
)

// DefaultPartitions is how many partitions a new stream gets.
const DefaultPartitions = 3

// maxPartitions is what the five digits of a file name can number.
const maxPartitions = 100_000

const lockFile = "producer.lock"

// Config says which stream is written and how rows are spread.
type Config struct {
	// Path is the stream's directory below the file system's root.
	Path string
	// Partitions is the number of partitions rows are spread over; 0 is as many
	// as before, or DefaultPartitions if the stream is new.
	Partitions int
	// Key names the field whose value chooses a row's partition; empty is
	// round robin. A dotted name that is no field itself goes into objects.
	Key string
}

// Producer is the one writer of a stream. It is for one goroutine.
type Producer struct {
	fs         vfs.FS
	cfg        Config
	epoch      string
	lock       io.Closer
	partitions []*partition // by number; at least cfg.Partitions
	state      state
	synced     time.Time // when live rows last were
}

// Open makes the stream if it is not there, and readies it for writing: one
// producer at a time (vfs.ErrLocked), stream.id made before the first partition
// file, every torn last line cut. Close it.
func Open(fsys vfs.FS, cfg Config) (*Producer, error) {
	if cfg.Partitions < 0 || cfg.Partitions > maxPartitions {
		return nil, fmt.Errorf("produce: %d partitions: 1 to %d are possible", cfg.Partitions, maxPartitions)
	}
	p := &Producer{fs: fsys, cfg: cfg}
	if err := p.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("produce: stream %s: %w", path.Join(fsys.String(), cfg.Path), err), p.release())
	}
	return p, nil
}

func (p *Producer) open() (err error) {
	if err := p.fs.MkdirAll(p.cfg.Path, 0o755); err != nil {
		return err
	}
	if p.lock, err = p.fs.Lock(p.name(lockFile)); err != nil {
		return err
	}
	if p.epoch, err = p.openEpoch(); err != nil {
		return err
	}
	if p.state, err = readState(p.fs, p.name(stateFile)); err != nil {
		return err
	}
	there, err := p.existing()
	if err != nil {
		return err
	}
	if p.cfg.Partitions == 0 {
		p.cfg.Partitions = p.state.partitions(there)
	}
	if n := max(there, p.cfg.Partitions); n > p.state.Partitions {
		next := p.state.clone()
		next.Partitions = n
		if err := p.save(next); err != nil {
			return err
		}
	}
	for n := range p.state.Partitions {
		part, err := openPartition(p.fs, p.name(stream.FileName(int32(n))))
		if err != nil {
			return err
		}
		p.partitions = append(p.partitions, part)
	}
	if err := p.cutHoles(); err != nil {
		return err
	}
	return p.fs.SyncDir(p.cfg.Path)
}

// cutHoles undoes what a power cut can do to rows that were not synced: parts of
// a file that read as zeros, newlines among them, with good rows behind. What
// follows the first zero is cut off; Run makes it again from the input. It is
// done before anybody reads the stream. Live rows cannot be made again, and so
// stay as they are.
func (p *Producer) cutHoles() error {
	n := len(p.state.Inputs)
	if n == 0 || p.state.Inputs[n-1].Live || p.state.Inputs[n-1].Complete {
		return nil
	}
	for i, base := range p.state.Inputs[n-1].Base {
		if i == len(p.partitions) {
			break
		}
		if err := p.partitions[i].cutAtZero(base.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// openEpoch reads stream.id, or makes it.
func (p *Producer) openEpoch() (string, error) {
	name := p.name(stream.IDFile)
	text, err := readFile(p.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		id := uuid.New().String()
		return id, vfs.WriteFile(p.fs, name, []byte(id+"\n"))
	}
	if err != nil {
		return "", err
	}
	id, err := uuid.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return "", fmt.Errorf("%s does not hold a UUID: %w", name, err)
	}
	return id.String(), nil
}

// existing is one more than the largest partition number there is.
func (p *Producer) existing() (int, error) {
	entries, err := p.fs.ReadDir(p.cfg.Path)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range entries {
		if number, ok := stream.ParseFileName(e.Name()); ok {
			n = max(n, int(number)+1)
		}
	}
	return n, nil
}

// Epoch is the stream's epoch.
func (p *Producer) Epoch() string { return p.epoch }

// Partitions is the number of partitions rows are spread over.
func (p *Producer) Partitions() int { return p.cfg.Partitions }

// Lines is the number of complete lines of each partition, by its number.
func (p *Producer) Lines() []int64 {
	lines := make([]int64, len(p.partitions))
	for i, part := range p.partitions {
		lines[i] = part.end.Lines
	}
	return lines
}

// Sync writes what is buffered and makes it durable. A *vfs.SyncError means
// that the process must stop.
func (p *Producer) Sync() error {
	if err := p.syncAll(); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}

func (p *Producer) syncAll() error {
	for _, part := range p.partitions {
		if err := part.sync(); err != nil {
			return err
		}
	}
	return nil
}

// Close syncs and releases the stream.
func (p *Producer) Close() error {
	return errors.Join(p.Sync(), p.release())
}

func (p *Producer) release() error {
	var errs []error
	for _, part := range p.partitions {
		errs = append(errs, part.file.Close())
	}
	p.partitions = nil
	if p.lock != nil {
		errs = append(errs, p.lock.Close())
		p.lock = nil
	}
	return errors.Join(errs...)
}

func (p *Producer) flush() error {
	for _, part := range p.partitions {
		if err := part.flush(); err != nil {
			return err
		}
	}
	return nil
}

// marks is where the partitions end now.
func (p *Producer) marks() []mark {
	marks := make([]mark, len(p.partitions))
	for i, part := range p.partitions {
		marks[i] = part.end
	}
	return marks
}

func (p *Producer) name(file string) string { return path.Join(p.cfg.Path, file) }
