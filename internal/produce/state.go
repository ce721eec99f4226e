package produce

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/shoalstore/shoal/internal/vfs"
)

// stateFile, beside the partition files, remembers the inputs in their order.
const stateFile = "input.json"

const stateVersion = 1

type state struct {
	Version int `json:"version"`
	// Partitions is how many files there are to be. It is written down before
	// they are made: a stream whose making was cut short would else be taken
	// for one of fewer partitions.
	Partitions int      `json:"partitions"`
	Inputs     []record `json:"inputs"`
}

// clone returns a state to be changed and saved.
func (s state) clone() state {
	s.Inputs = slices.Clone(s.Inputs)
	return s
}

// partitions is the number to spread rows over when none is asked for: that of
// the last input, or of the stream, where there are files already.
func (s state) partitions(there int) int {
	if n := len(s.Inputs); n > 0 {
		return s.Inputs[n-1].Partitions
	}
	return cmp.Or(s.Partitions, there, DefaultPartitions)
}

// record is one input as it was when it was begun or last continued.
type record struct {
	// Source is what the user called it; it is compared by its files.
	Source string   `json:"source"`
	Live   bool     `json:"live,omitempty"` // cannot be read again: standard input, telemetry
	Files  []fileID `json:"files,omitempty"`
	// Partitions and Key are the spread; Base is where the partitions ended
	// when the input was begun.
	Partitions int    `json:"partitions"`
	Key        string `json:"key,omitempty"`
	Base       []mark `json:"base"`
	// Complete: all Rows of the files as they are described here were written
	// and synced.
	Complete bool  `json:"complete"`
	Rows     int64 `json:"rows,omitempty"`
}

// rowsBefore is the number of the input's first row.
func (r *record) rowsBefore() int64 {
	var n int64
	for _, m := range r.Base {
		n += m.Lines
	}
	return n
}

// fileID tells a file from another by its first bytes, which stay when a file
// grows or moves.
type fileID struct {
	Name      string `json:"name"`
	SizeBytes int64  `json:"sizeBytes"`
	HeadBytes int64  `json:"headBytes"`
	HeadHash  string `json:"headHash"` // XXH3-64 of the first HeadBytes bytes, hex

	head []byte // the first bytes themselves, of a file as it is now
}

// headBytes is how much of a file is remembered. It need not tell all files
// apart: the rows themselves are compared when an input is replayed.
const headBytes = 4096

func identify(name string, sizeBytes int64, head []byte) fileID {
	return fileID{Name: name, SizeBytes: sizeBytes, HeadBytes: int64(len(head)), HeadHash: hashHead(head), head: head}
}

func hashHead(head []byte) string { return fmt.Sprintf("%016x", xxh3.Hash(head)) }

// continues reports whether a file as it is now begins like one remembered.
func (f fileID) continues(was fileID) bool {
	return int64(len(f.head)) >= was.HeadBytes && hashHead(f.head[:was.HeadBytes]) == was.HeadHash
}

func readState(fsys vfs.FS, name string) (state, error) {
	s := state{Version: stateVersion}
	text, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if s.Version != stateVersion {
		return s, fmt.Errorf("%s has version %d, this program knows version %d", name, s.Version, stateVersion)
	}
	return s, nil
}

func (s state) write(fsys vfs.FS, name string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteFile(fsys, name, append(text, '\n'))
}

// plan is what is to be done with an input.
type plan int

const (
	planBegin  plan = iota // its rows follow what is there
	planResume             // it is the last input: replay it
	planDone               // all its rows are there
)

// decide compares an input with what is remembered. It is where "other input
// only with append" is decided, and it is pure.
//
// An input is the same if its files begin with those remembered, in order, and
// only the last of them has grown: rows are then added at the end only.
//
// For planDone rows is the number of the input's rows.
func (s state) decide(in record, lines []int64, appendIt bool) (p plan, rows int64, err error) {
	if in.Live {
		return planBegin, 0, nil
	}
	last := len(s.Inputs) - 1
	for i := last; i >= 0; i-- {
		have := &s.Inputs[i]
		if have.Live || !have.continuedBy(in.Files) {
			continue
		}
		unchanged := slices.EqualFunc(have.Files, in.Files, func(a, b fileID) bool { return a.SizeBytes == b.SizeBytes })
		switch {
		case have.Complete && unchanged && (i < last || have.holds(lines)):
			return planDone, have.Rows, nil
		case i < last:
			return 0, 0, &OtherInputError{Source: in.Source, Last: s.Inputs[last].Source,
				Why: "it was begun before that one and has rows that are not in the stream; a stream can only continue its last input"}
		case have.Partitions != in.Partitions || have.Key != in.Key:
			return 0, 0, &SpreadChangedError{Source: in.Source, Was: have.spread(), Now: in.spread()}
		}
		return planResume, 0, nil
	}
	if appendIt {
		return planBegin, 0, nil
	}
	if last >= 0 {
		return 0, 0, &OtherInputError{Source: in.Source, Last: s.Inputs[last].Source, Why: "append must be asked for"}
	}
	for _, n := range lines {
		if n > 0 {
			return 0, 0, &OtherInputError{Source: in.Source, Last: "an unknown input", Why: "append must be asked for"}
		}
	}
	return planBegin, 0, nil
}

func (r *record) continuedBy(files []fileID) bool {
	if len(files) < len(r.Files) {
		return false
	}
	for i, was := range r.Files {
		now := files[i]
		grown := now.SizeBytes > was.SizeBytes && i == len(r.Files)-1
		moved := now.Name != was.Name && len(files) > 1 // a single file may be called otherwise
		if moved || !now.continues(was) || now.SizeBytes != was.SizeBytes && !grown {
			return false
		}
	}
	return true
}

// holds reports whether the lines there are hold all rows of a complete input.
func (r *record) holds(lines []int64) bool {
	var n int64
	for _, l := range lines {
		n += l
	}
	return n-r.rowsBefore() == r.Rows
}

func (r *record) spread() string {
	if r.Key == "" {
		return fmt.Sprintf("round robin over %d partitions", r.Partitions)
	}
	return fmt.Sprintf("%d partitions by %q", r.Partitions, r.Key)
}

// OtherInputError says that a stream was filled from another input and that
// mixing the two was not asked for, or cannot be done.
type OtherInputError struct {
	Source string // the input that was given
	Last   string // the one the stream was last filled from
	Why    string
}

func (e *OtherInputError) Error() string {
	return fmt.Sprintf("the stream was last filled from %s, and %s is another input: %s", e.Last, e.Source, e.Why)
}

// SpreadChangedError says that an input is to go on with rows spread otherwise
// than they were: which of them are done could not be told.
type SpreadChangedError struct {
	Source, Was, Now string
}

func (e *SpreadChangedError) Error() string {
	return fmt.Sprintf("%s was begun with %s and cannot go on with %s", e.Source, e.Was, e.Now)
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
