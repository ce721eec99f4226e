package node

import (
	"fmt"
	"maps"
	"slices"

	"github.com/shoalstore/shoal/commit"
	"github.com/shoalstore/shoal/segment"
)

// pumpRows bounds how many rows are appended before other events are looked at.
const pumpRows = 2000

// pump carries the rows that wait to the builders that take them. It reports
// whether there may be more to do at once.
func (c *consumer) pump() (more bool) {
	c.lookAtFeeds()
	for _, r := range slices.Clone(c.machine.Reading()) {
		more = c.carry(r) || more
	}
	return more
}

// lookAtFeeds tells the machine how the feeds stand.
func (c *consumer) lookAtFeeds() {
	for _, id := range slices.Sorted(maps.Keys(c.feeds)) {
		c.lookAt(id)
	}
}

// lookAt tells how one stands, and reports whether anything came of it.
func (c *consumer) lookAt(id FeedID) bool {
	f := c.feeds[id]
	if f == nil {
		return false // closed over what the one before did
	}
	moved := f.standing()
	moved.Feed = id
	return c.step(moved)
}

// carry offers a run the rows at the front of its feed, appends those that it
// takes, and says how the feed stands then. It reports whether there may be more
// to do: for this run, or for the one that has the feed now.
func (c *consumer) carry(r Reading) bool {
	f := c.feeds[r.Feed]
	if f == nil {
		return false // closed over what the run before did
	}
	rows := f.peek()
	if len(rows) == 0 {
		return false
	}
	n, err := c.offer(r, rows[:min(len(rows), pumpRows)])
	f.drop(n)
	if err != nil {
		c.n.noteFatal(err)
		c.step(BuilderFailed{Segment: r.Segment, Run: r.Run, Err: fmt.Errorf("append to the segment's file: %w", err)})
	}
	return c.lookAt(r.Feed) || n > 0
}

// offer offers rows one by one. It returns how many are done with.
func (c *consumer) offer(r Reading, rows []segment.Row) (done int, err error) {
	now, builder := c.now(), c.runs[r.Segment].builder
	for i := range rows {
		row := &rows[i]
		switch c.machine.Offer(now, r, row.Offset, row.RawBytes()) {
		case commit.LeaveRow:
			return i, nil
		case commit.AppendRow:
			if err := builder.Append(row); err != nil {
				return i, err
			}
		}
	}
	return len(rows), nil
}
