package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/api"
)

// What validation says in a sentence: that nothing is wrong only if nothing waits, and
// why a run has asked for nothing.
func TestValidationSays(t *testing.T) {
	pool := func(p api.ValidationPool) api.ValidationView {
		return api.ValidationView{RanAt: moment.Add(-50 * time.Second), Pool: p}
	}
	failing := func(segments ...api.ValidationSegment) api.ValidationView {
		v := pool(api.ValidationPool{Waiting: len(segments), FailingTables: []string{"flights"}})
		v.Awaiting = segments
		return v
	}
	storeError := pool(api.ValidationPool{})
	storeError.DeepStore.Tables = []api.ValidationAudit{{Table: "flights", LastError: "503"}}
	awaiting := api.ValidationSegment{Table: "flights", Segment: segmentName}
	later, soon, asked, other := awaiting, awaiting, awaiting, awaiting
	later.NextAt, soon.NextAt = moment.Add(time.Minute), moment.Add(20*time.Second)
	asked.AskedOf = "node-2"
	other.Table, other.NextAt = "other", moment.Add(time.Second)
	asks := failing(later)
	asks.Asks = []api.ValidationAsk{{Table: "flights", Segment: segmentName, Node: "node-1"}}

	for _, test := range []struct {
		name  string
		view  api.ValidationView
		asked string
		say   string
		not   string
	}{
		{"well, a while ago", pool(api.ValidationPool{}), "", "nothing was wrong then", "nothing is wrong"},
		{"well, now", pool(api.ValidationPool{}), "is asked for", "nothing is wrong", "then"},
		{"to come", pool(api.ValidationPool{Waiting: 3}), "", "under way or to come", "nothing was wrong"},
		{"under way", pool(api.ValidationPool{Running: 1}), "is asked for", "under way or to come", "nothing is wrong"},
		{"a store fails", storeError, "is asked for", "deep store has failed", "nothing is wrong"},
		{"a table fails, shown", failing(later), "", "failing: flights", "nothing"},
		{"a table fails, run", failing(later, other, soon), "is asked for", "nothing more is asked of flights: its last upload failed, next try in 20s or later", "is wrong"},
		{"a table fails, one is asked", failing(soon, asked), "is asked for", "now " + segmentName + " by node-2", "next try"},
		{"a table fails, due", failing(awaiting), "is asked for", "the next try comes by itself", "is wrong"},
		{"a table fails, and is asked", asks, "is asked for", "is asked for of node-1", "nothing more"},
		{"no look yet", api.ValidationView{}, "", "the leader has just begun", "wrong"},
	} {
		var out bytes.Buffer
		a := &app{IO: IO{Out: &out, now: func() time.Time { return moment }}}
		if err := a.printValidation(test.view, test.asked); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !strings.Contains(text, test.say) || strings.Contains(text, test.not) {
			t.Errorf("%s: %s", test.name, text)
		}
	}
}
