package zkmeta

import (
	"bytes"
	"fmt"
	"iter"

	"github.com/google/uuid"

	"github.com/shoalstore/shoal/meta"
)

// DifferenceError says where a copy of an image is not what it should be.
type DifferenceError struct {
	What      string // "segment …", "the offset of the next batch"
	Want, Got string
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("zkmeta: the copy differs: %s is %s in the original and %s in the copy", e.What, e.Want, e.Got)
}

// Same returns a *DifferenceError unless two images are one: record by record as they
// are encoded, and in where they end.
func Same(want, got *meta.Image) error {
	for _, d := range []DifferenceError{
		{"the offset of the next batch", fmt.Sprint(want.Next()), fmt.Sprint(got.Next())},
		{"the epoch", fmt.Sprint(want.Epoch()), fmt.Sprint(got.Epoch())},
		{"the term", want.LastTerm().String(), got.LastTerm().String()},
		{"the time of the last batch", fmt.Sprint(want.LastTime()), fmt.Sprint(got.LastTime())},
		{"the cluster", clusterOf(want).String(), clusterOf(got).String()},
	} {
		if d.Want != d.Got {
			return &d
		}
	}
	return sameRecords(want.Records(), got.Records())
}

func clusterOf(im *meta.Image) uuid.UUID {
	if im.Cluster() == nil {
		return uuid.UUID{}
	}
	return im.Cluster().ID
}

// sameRecords goes through both, which are in one order.
func sameRecords(want, got iter.Seq[meta.Record]) error {
	next, stop := iter.Pull(got)
	defer stop()
	for w := range want {
		g, ok := next()
		if !ok {
			return &DifferenceError{w.Key().String(), "there", "missing"}
		}
		if err := sameRecord(w, g); err != nil {
			return err
		}
	}
	if g, ok := next(); ok {
		return &DifferenceError{g.Key().String(), "not there", "there"}
	}
	return nil
}

func sameRecord(want, got meta.Record) error {
	switch c := want.Key().Compare(got.Key()); {
	case c < 0:
		return &DifferenceError{want.Key().String(), "there", "missing"}
	case c > 0:
		return &DifferenceError{got.Key().String(), "not there", "there"}
	}
	w, err := meta.EncodeRecord(want)
	if err != nil {
		return err
	}
	g, err := meta.EncodeRecord(got)
	if err != nil {
		return err
	}
	if bytes.Equal(w, g) {
		return nil
	}
	return &DifferenceError{want.Key().String(), text(want), text(got)}
}

// text shows a record as zkCli would.
func text(r meta.Record) string {
	data, err := meta.EncodeRecordJSON(r)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
