package cli

import (
	"context"
	"fmt"

	"github.com/shoalstore/shoal/deepstore"
	"github.com/shoalstore/shoal/zkmeta"
)

func (c doctorCommand) runS3(ctx context.Context, a *app) error {
	report, err := deepstore.ProbeS3(ctx, c.Address, c.S3.Config())
	if err != nil {
		if ctx.Err() == nil {
			err = usageError{err} // nobody was asked yet
		}
		return err
	}
	if a.json {
		err = a.writeJSON(report)
	} else {
		err = a.printS3Report(report)
	}
	switch {
	case err != nil:
		return err
	case !report.Reachable():
		return fmt.Errorf("%s cannot be reached", report.Endpoint)
	case len(report.Problems) > 0:
		return no("")
	}
	return nil
}

func (a *app) printS3Report(r *deepstore.S3Report) error {
	style := "in the host"
	if r.PathStyle {
		style = "in the path"
	}
	fmt.Fprintf(a.Out, "%s at %s, region %s, bucket %s\n\n", r.Address, r.Endpoint, r.Region, style)
	t := newTable(a.Out, "STEP", "RESULT")
	for _, s := range r.Steps {
		t.row(s.Name, s3Result(s))
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	if r.PutP50Ms > 0 {
		fmt.Fprintf(a.Out, "a small object takes %.0f ms, and up to %.0f\n", r.PutP50Ms, r.PutMaxMs)
	}
	for _, f := range r.Problems {
		a.printFinding("wrong", zkmeta.Finding{Problem: f.Problem, Do: f.Do})
	}
	for _, f := range r.Notes {
		a.printFinding("note", zkmeta.Finding{Problem: f.Problem, Do: f.Do})
	}
	if len(r.Problems) == 0 {
		fmt.Fprintln(a.Out, "nothing is wrong")
	}
	return nil
}

func s3Result(s deepstore.S3Step) string {
	switch {
	case !s.Tried:
		return "not tried"
	case s.Error != "":
		return "failed"
	}
	return "done"
}
