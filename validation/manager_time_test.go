package validation_test

import (
	"testing"
	"time"

	"github.com/shoalstore/shoal/meta"
	"github.com/shoalstore/shoal/validation"
)

// A node whose line has a quarter of a MiB a second has the time to upload a large
// segment, before another one begins to as well and shares the line with it.
func TestALargeSegmentHasTheTimeOfAThinLine(t *testing.T) {
	const size = 256 << 20
	o := newOffice(t, roomy)
	c := o.Commit(t, meta.PartitionKey{Table: o.table("t", 1, deep), Partition: 0}, 10)
	c.Info.SizeBytes = size
	o.Do(t, meta.CommitSegment(c))
	o.copy(c.Key, o.others(c.Key)[0])
	node := o.segment(c.Key).Committer
	o.step(o.survey())
	o.later(timing.Patience, "ask "+node+" for t__0__0")
	o.says(validation.Answer{}, nil)
	o.later(timing.Least+size>>18*time.Second-time.Second, "poll "+node+" for t__0__0")
	if asked := o.says(validation.Answer{}, nil); asked != "" {
		t.Error(asked)
	}
	o.later(timing.Poll, "poll "+node+" for t__0__0")
	o.says(validation.Answer{}, nil)
	o.later(timing.Table.Min, "ask "+o.others(c.Key)[0]+" for t__0__0")
}
