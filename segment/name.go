package segment

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Name is the label of a segment: table, partition, sequence number and the
// time its record was created, written
//
//	<table>__<partition>__<seq>__<yyyyMMddTHHmmssZ>
//
// It is a label for people, paths and URLs; the key of a segment is (table id,
// partition, seq). A Name from ParseName, or one that passed Validate, can be
// used as a path element.
type Name struct {
	Table string
	// Partition and Seq are 0 or more.
	Partition int32
	Seq       int64
	// Created is in UTC and whole seconds, of a year from 1 to 9999.
	Created time.Time
}

const (
	nameSeparator  = "__"
	nameTimeLayout = "20060102T150405Z"
)

// NewName is a Name with created brought to UTC and whole seconds, so that it
// survives String and ParseName unchanged.
func NewName(table string, partition int32, seq int64, created time.Time) Name {
	return Name{Table: table, Partition: partition, Seq: seq, Created: created.UTC().Truncate(time.Second)}
}

// ParseName reads what Name.String wrote and nothing else: a name has one
// spelling.
func ParseName(s string) (Name, error) {
	n, err := parseName(s)
	if err != nil {
		return Name{}, fmt.Errorf("segment: name %q: %w", abridge(s), err)
	}
	return n, nil
}

func parseName(s string) (n Name, err error) {
	parts := strings.Split(s, nameSeparator)
	if len(parts) != 4 {
		return n, fmt.Errorf("has %d parts between %q, not table, partition, seq and time", len(parts), nameSeparator)
	}
	n.Table = parts[0]
	partition, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return n, fmt.Errorf("partition: %w", err)
	}
	n.Partition = int32(partition)
	if n.Seq, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return n, fmt.Errorf("seq: %w", err)
	}
	if n.Created, err = time.Parse(nameTimeLayout, parts[3]); err != nil {
		return n, fmt.Errorf("time: %w", err)
	}
	if err := n.Validate(); err != nil {
		return n, err
	}
	if canonical := n.String(); canonical != s {
		return n, fmt.Errorf("is spelt %q", canonical)
	}
	return n, nil
}

// Validate says what is wrong with a name that was put together by hand.
func (n Name) Validate() error {
	if err := ValidTable(n.Table); err != nil {
		return err
	}
	if n.Partition < 0 || n.Seq < 0 {
		return fmt.Errorf("segment: partition %d, seq %d: neither may be negative", n.Partition, n.Seq)
	}
	if y := n.Created.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("segment: created in year %d", y)
	}
	return nil
}

// String is the name in full.
func (n Name) String() string {
	return strings.Join([]string{
		n.Table,
		strconv.FormatInt(int64(n.Partition), 10),
		strconv.FormatInt(n.Seq, 10),
		n.Created.UTC().Format(nameTimeLayout),
	}, nameSeparator)
}

// Compare orders names by table, partition, seq and time. (Their text does not
// sort so: its numbers have no leading zeros.)
func (n Name) Compare(o Name) int {
	return cmp.Or(
		cmp.Compare(n.Table, o.Table),
		cmp.Compare(n.Partition, o.Partition),
		cmp.Compare(n.Seq, o.Seq),
		n.Created.Compare(o.Created),
	)
}

// MarshalText and UnmarshalText make a Name travel in JSON as its String.
func (n Name) MarshalText() ([]byte, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	return []byte(n.String()), nil
}

func (n *Name) UnmarshalText(b []byte) (err error) {
	*n, err = ParseName(string(b))
	return err
}

var tablePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$`)

// ValidTable checks a table name against the grammar. What passes is a safe path
// element, and cannot hold the separator of a segment's name.
func ValidTable(table string) error {
	switch {
	case !tablePattern.MatchString(table):
		return fmt.Errorf("segment: table name %q: want 1 to 128 of A-Z a-z 0-9 _ . - that begin and end with a letter or digit", abridge(table))
	case strings.Contains(table, nameSeparator):
		return fmt.Errorf("segment: table name %q holds %q, which separates the parts of a segment's name", table, nameSeparator)
	}
	return nil
}

// abridge keeps what a stranger sent short enough to print.
func abridge(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
