package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shoalstore/shoal/internal/api"
)

type validationCommand struct {
	Show validationShow `cmd:"" default:"withargs" help:"What the last look at everything has found, and what is done about it (the default)."`
	Run  validationRun  `cmd:"" help:"Look at everything now, and ask for the uploads that wait."`
}

type validationShow struct {
	Limit int `help:"Show this many of each kind, at most 1000." default:"100" placeholder:"N"`
}

func (c validationShow) Run(ctx context.Context, a *app) error {
	var v api.ValidationView
	if err := a.control.Get(ctx, fmt.Sprintf("%s?limit=%d", api.PathValidation, c.Limit), &v); err != nil {
		return err
	}
	return a.printValidation(v, "")
}

type validationRun struct {
	DryRun bool `help:"Only say what would be asked for."`
	Limit  int  `help:"Show this many of each kind, at most 1000." default:"100" placeholder:"N"`
}

func (c validationRun) Run(ctx context.Context, a *app) error {
	var v api.ValidationView
	path := fmt.Sprintf("%s?dryRun=%t&limit=%d", api.PathValidationRun, c.DryRun, c.Limit)
	if err := a.control.Post(ctx, path, nil, &v); err != nil {
		return err
	}
	if c.DryRun {
		return a.printValidation(v, "would be asked for")
	}
	return a.printValidation(v, "is asked for")
}

// printValidation prints findings; asked, if it is not empty, is what a run did.
func (a *app) printValidation(v api.ValidationView, asked string) error {
	if a.json {
		return a.writeJSON(v)
	}
	if v.RanAt.IsZero() {
		fmt.Fprintln(a.Out, "nothing was looked at yet: the leader has just begun")
	} else {
		fmt.Fprintf(a.Out, "looked at everything %s, in %.3f s\n", a.ago(v.RanAt), v.Took)
	}
	fmt.Fprintf(a.Out, "uploads: %d of %d asked for at once, %d to come; since this leader began %d asked, %d failed, %d done\n",
		v.Pool.Running, v.Pool.Most, v.Pool.Waiting, v.Pool.Asked, v.Pool.Failed, v.Pool.Done)
	if len(v.Pool.FailingTables) > 0 {
		fmt.Fprintf(a.Out, "failing: %s\n", strings.Join(v.Pool.FailingTables, ", "))
	}
	fmt.Fprintf(a.Out, "deep stores: %d pages looked through, %d verified copies were gone\n", v.DeepStore.PagesListed, v.DeepStore.Lost)
	for _, t := range v.DeepStore.Tables {
		if t.LastError != "" {
			fmt.Fprintf(a.Out, "deep store of %s: %s\n", t.Table, t.LastError)
		}
	}
	a.printValidationSummary(v, asked)
	for _, print := range []func(api.ValidationView) error{a.printValidationTables, a.printValidationSegments, a.printValidationPartitions} {
		if err := print(v); err != nil {
			return err
		}
	}
	for _, ask := range v.Asks {
		fmt.Fprintf(a.Out, "%s of %s %s of %s\n", ask.Segment, ask.Table, asked, ask.Node)
	}
	if asked != "" {
		a.printValidationHeldBack(v)
	}
	return nil
}

// printValidationSummary says that nothing is wrong, if that is so of all that is shown;
// a look of a while ago knows nothing of what was committed since. What the look has
// found follows as lists.
func (a *app) printValidationSummary(v api.ValidationView, asked string) {
	found := len(v.Tables) + len(v.SingleCopy) + len(v.Awaiting) + len(v.NotConsuming) + len(v.Stopped)
	switch {
	case v.RanAt.IsZero() || found > 0:
	case v.Pool.Running+v.Pool.Waiting+len(v.Asks) > 0:
		fmt.Fprintln(a.Out, "that look has found nothing; but uploads are under way or to come, and until they are done their segments are not in the deep store")
	case len(v.Pool.FailingTables) > 0 || slices.ContainsFunc(v.DeepStore.Tables, func(t api.ValidationAudit) bool { return t.LastError != "" }):
		fmt.Fprintln(a.Out, "nothing waits, but the last use of a deep store has failed, see above")
	case asked == "":
		fmt.Fprintln(a.Out, "nothing was wrong then; `shoal validation run` looks now")
	default:
		fmt.Fprintln(a.Out, "nothing is wrong")
	}
}

// printValidationHeldBack says of each failing table why a run has asked nothing for it.
func (a *app) printValidationHeldBack(v api.ValidationView) {
	for _, table := range v.Pool.FailingTables {
		if slices.ContainsFunc(v.Asks, func(ask api.ValidationAsk) bool { return ask.Table == table }) {
			continue
		}
		next := "the next try comes by itself"
		var due time.Time
		for _, s := range v.Awaiting {
			if s.Table != table {
				continue
			}
			if s.AskedOf != "" {
				next = fmt.Sprintf("one is tried at a time, now %s by %s", s.Segment, s.AskedOf)
				due = time.Time{}
				break
			}
			if s.NextAt.After(a.now()) && (due.IsZero() || s.NextAt.Before(due)) {
				due = s.NextAt
			}
		}
		if !due.IsZero() {
			next = fmt.Sprintf("next try in %s or later", due.Sub(a.now()).Round(time.Second))
		}
		fmt.Fprintf(a.Out, "nothing more is asked of %s: its last upload failed, %s\n", table, next)
	}
}

func (a *app) printValidationTables(v api.ValidationView) error {
	if len(v.Tables) == 0 {
		return nil
	}
	fmt.Fprintf(a.Out, "\nas of that look, %s; what is done since is still in the lists:\n", a.ago(v.RanAt))
	t := newTable(a.Out, "TABLE", "SINGLE COPY", "SIZE", "OLDEST", "NOT IN DEEP STORE", "SIZE", "OLDEST")
	for _, x := range v.Tables {
		t.row(x.Table, count(x.SingleCopy.Segments), size(x.SingleCopy.Bytes), a.ago(x.SingleCopy.Oldest),
			count(x.Awaiting.Segments), size(x.Awaiting.Bytes), a.ago(x.Awaiting.Oldest))
	}
	return t.flush()
}

// printValidationSegments prints each segment once, those at risk first.
func (a *app) printValidationSegments(v api.ValidationView) error {
	if len(v.SingleCopy)+len(v.Awaiting) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	t := newTable(a.Out, "SEGMENT", "AT RISK", "COPIES", "SIZE", "COMMITTED", "HOLDERS", "ASKED", "LAST ERROR")
	seen := map[string]bool{}
	for _, list := range [][]api.ValidationSegment{v.SingleCopy, v.Awaiting} {
		for _, s := range list {
			if seen[s.Segment] {
				continue
			}
			seen[s.Segment] = true
			lastError := s.LastError
			if s.LastNode != "" {
				lastError = s.LastNode + ": " + lastError
			}
			t.row(s.Segment, yes(s.SingleCopy), fmt.Sprintf("%d of %d", s.CountedCopies, s.Replication), size(s.SizeBytes),
				a.ago(s.Committed), join(s.Holders), s.AskedOf, lastError)
		}
	}
	return t.flush()
}

func (a *app) printValidationPartitions(v api.ValidationView) error {
	if len(v.NotConsuming)+len(v.Stopped) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
	t := newTable(a.Out, "TABLE", "PARTITION", "SEGMENT", "DOES NOT CONSUME, AS")
	for _, p := range append(v.NotConsuming, v.Stopped...) {
		t.row(p.Table, p.Partition, p.Segment, p.Why)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if more := v.NotConsumingTotal + v.StoppedTotal - len(v.NotConsuming) - len(v.Stopped); more > 0 {
		fmt.Fprintf(a.Out, "and %d more\n", more)
	}
	return nil
}
