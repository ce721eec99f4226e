package cli

import (
	"context"
	"fmt"
	"strings"

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
	if len(v.Tables)+len(v.NotConsuming)+len(v.Stopped) == 0 {
		fmt.Fprintln(a.Out, "nothing is wrong")
	}
	for _, print := range []func(api.ValidationView) error{a.printValidationTables, a.printValidationSegments, a.printValidationPartitions} {
		if err := print(v); err != nil {
			return err
		}
	}
	for _, ask := range v.Asks {
		fmt.Fprintf(a.Out, "%s of %s %s of %s\n", ask.Segment, ask.Table, asked, ask.Node)
	}
	return nil
}

func (a *app) printValidationTables(v api.ValidationView) error {
	if len(v.Tables) == 0 {
		return nil
	}
	fmt.Fprintln(a.Out)
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
