package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/cmdline"
	"github.com/shoalstore/shoal/zkmeta"
)

type doctorCommand struct {
	Zookeeper cmdline.ZooKeeper `embed:"" prefix:"zookeeper-"`
	S3        cmdline.S3        `embed:"" prefix:"s3-"`

	Address string `arg:"" help:"zookeeper://host:port,host:port/root: each server is asked by itself. s3://bucket/prefix: what a deep store needs is tried, on objects that are removed again." placeholder:"ADDRESS"`
}

// Run exits with 1 if something is wrong, and with 3 if nobody is there.
func (c doctorCommand) Run(ctx context.Context, a *app) error {
	scheme, _, _ := strings.Cut(c.Address, ":")
	switch scheme {
	case "s3":
		return c.runS3(ctx, a)
	case "zookeeper":
		return c.runZooKeeper(ctx, a)
	}
	return usageError{fmt.Errorf("%q: want zookeeper://host:port,host:port/root or s3://bucket/prefix", c.Address)}
}

func (c doctorCommand) runZooKeeper(ctx context.Context, a *app) error {
	at, err := zkmeta.ParseAddress(c.Address)
	if err != nil {
		return usageError{err}
	}
	access, err := c.Zookeeper.Access()
	if err != nil {
		return usageError{err}
	}
	report, err := zkmeta.Probe(ctx, zkmeta.ProbeConfig{Address: at, Access: access, Logger: zerolog.Nop()})
	if err != nil {
		if ctx.Err() == nil {
			err = usageError{err} // no server was asked yet
		}
		return err
	}
	if a.json {
		err = a.writeJSON(report)
	} else {
		err = a.printReport(report)
	}
	switch {
	case err != nil:
		return err
	case !report.Reachable():
		return errors.New("no server can be reached")
	case len(report.Problems) > 0:
		return no("")
	}
	return nil
}

func (a *app) printReport(r *zkmeta.Report) error {
	t := newTable(a.Out, "SERVER", "REACHABLE", "SESSION", "VERSION", "MODE", "CLOCK", "WRITE P50", "P99", "LARGEST")
	for _, s := range r.Servers {
		p50, p99, largest, clock := "", "", "", ""
		if s.Writes > 0 {
			p50, p99 = fmt.Sprintf("%.1f ms", s.WriteP50Ms), fmt.Sprintf("%.1f ms", s.WriteP99Ms)
		}
		if s.LargestWrite > 0 {
			largest = size(int64(s.LargestWrite))
		}
		if s.ClockAheadMs != nil {
			clock = fmt.Sprintf("%+.1f ms", *s.ClockAheadMs)
		}
		t.row(s.Server, yes(s.Reachable), yes(s.Session), s.Version, s.Mode, clock, p50, p99, largest)
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "\n%s\n", describeTree(r.Tree))
	for _, f := range r.Problems {
		a.printFinding("wrong", f)
	}
	for _, f := range r.Notes {
		a.printFinding("note", f)
	}
	if len(r.Problems) == 0 {
		fmt.Fprintln(a.Out, "nothing is wrong")
	}
	return nil
}

func describeTree(t zkmeta.TreeReport) string {
	switch t.Standing {
	case "unknown":
		return fmt.Sprintf("tree %s: not known", t.Root)
	case "none":
		if t.Present {
			return fmt.Sprintf("tree %s: there, and empty", t.Root)
		}
		return fmt.Sprintf("tree %s: not there; writes were tried beside the way to it", t.Root)
	case "whole":
		candidates := "no candidate"
		if len(t.Candidates) > 0 {
			candidates = "candidates " + strings.Join(t.Candidates, ", ")
		}
		return fmt.Sprintf("tree %s: cluster %s, format version %d, epoch %d, next batch %d, %s in the tail, %s",
			t.Root, t.ClusterID, t.FormatVersion, t.Epoch, t.NextOffset, count(int64(t.Entries)), candidates)
	}
	return fmt.Sprintf("tree %s: %s", t.Root, t.Standing)
}

func (a *app) printFinding(kind string, f zkmeta.Finding) {
	of := ""
	if f.Server != "" {
		of = f.Server + ": "
	}
	fmt.Fprintf(a.Out, "%s: %s%s\n    do: %s\n", kind, of, f.Problem, f.Do)
}
