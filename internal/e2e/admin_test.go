package e2e

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/shoalstore/shoal/internal/api"
	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/meta"
)

// TestTablesArePausedDrainedAndDeleted: each change is asked for once, and the
// controller is killed right after it has said yes. It goes on by itself.
func TestTablesArePausedDrainedAndDeleted(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, fleetOptions{})
	p := newProducer(t, f.streamRoot(), "events", 2)
	two := map[string]any{"replication": 2}
	f.createTable("events", two)
	p.add(150)
	f.awaitCommitted("events", 200)

	f.post("/tables/events/pauseConsumption", api.Pause{By: "e2e"}, nil)
	f.restartController()
	f.awaitTable("events", "both partitions PAUSED", func(v api.TableView) bool {
		return v.State == meta.TablePaused && v.Pause.By == "e2e" && v.PartitionStates[meta.PartitionPaused] == 2
	})
	var before api.TableView
	f.get("/tables/events", &before)
	p.add(250)
	f.refuses(http.MethodPost, "/tables/events/resumeConsumption?consumeFrom=yesterday", nil, api.CodeInvalidRequest)
	f.post("/tables/events/resumeConsumption", nil, nil)
	f.restartController()
	f.awaitCommitted("events", before.Rows+400)

	f.refuses(http.MethodPost, "/nodes/nobody/drain", nil, api.CodeNodeNotFound)
	drained := f.partitions("events")[0].Replicas[0]
	f.post("/nodes/"+drained+"/drain", nil, nil)
	f.restartController()
	f.await(drained+" to be drained", func() (bool, string) {
		views, err := f.nodeViews()
		if err != nil || len(views) != 3 {
			return false, asJSON(views, err)
		}
		v := views[slices.IndexFunc(views, func(v api.NodeView) bool { return v.ID == drained })]
		return v.State == meta.NodeDraining && v.Partitions == 0 && v.Consuming == 0, asJSON(v, nil)
	})
	for _, part := range f.partitions("events") {
		if len(part.Replicas) != 2 || part.State != meta.PartitionConsuming {
			t.Errorf("%+v", part)
		}
	}
	f.refuses(http.MethodDelete, "/nodes/"+drained, nil, meta.CodeNodeInUse)
	f.post("/nodes/"+drained+"/undrain", nil, nil)
	f.awaitNodes(3)

	f.refuses(http.MethodPut, "/tables/events", f.tableConfig("events", map[string]any{
		"stream": map[string]any{"type": "files", "path": "elsewhere"},
	}), api.CodeInvalidConfig)
	two["segment"] = map[string]any{"maxRows": 40}
	f.led(func() error {
		return f.client.Call(context.Background(), http.MethodPut, "/tables/events", f.tableConfig("events", two), nil)
	})
	p.add(200)
	f.awaitAll("events", p)
	var last api.TableView
	f.get("/tables/events", &last)
	if segments := f.committedSegments("events"); last.ConfigVersion != 2 || segments[len(segments)-1].Rows > 40 {
		t.Errorf("%+v, %+v", last, segments[len(segments)-1])
	}

	f.led(func() error {
		return f.client.Call(context.Background(), http.MethodDelete, "/tables/events", nil, nil)
	})
	f.restartController()
	f.await("the table to be gone", func() (bool, string) {
		err := f.fromController("/tables/events", nil)
		return hasCode(err, api.CodeTableNotFound), asJSON(nil, err)
	})
	f.createTable("events", two)
	f.awaitCommitted("events", 1000)
	f.awaitAll("events", p)
	f.checkHistory()
}

// restartController kills the controller and starts it again.
func (f *fleet) restartController() {
	f.t.Helper()
	f.controller.kill()
	f.controller.start()
}

func (f *fleet) awaitTable(table, what string, ok func(api.TableView) bool) {
	f.t.Helper()
	f.await(what, func() (bool, string) {
		var v api.TableView
		err := f.fromController("/tables/"+table, &v)
		return err == nil && ok(v), asJSON(v, err)
	})
}

// awaitAll waits until each row of the stream is in exactly one committed segment, and
// asks those that consume to end as often as it takes.
func (f *fleet) awaitAll(table string, p *producer) {
	f.t.Helper()
	f.await("all rows of "+table, func() (bool, string) {
		cov, err := f.coverage(table)
		ends := 0
		for _, c := range cov.Partitions {
			if c.Rows == p.ends()[c.Partition] && len(c.Holes) == 0 {
				ends++
			}
		}
		done := err == nil && cov.Complete && ends == len(p.ends())
		var v api.TableView
		if f.get("/tables/"+table, &v); !done && v.Ending == 0 {
			f.post("/tables/"+table+"/forceCommit", nil, nil)
		}
		return done, asJSON(cov, err)
	})
}

// refuses makes a call that has to be answered with this code.
func (f *fleet) refuses(method, path string, in any, code string) {
	f.t.Helper()
	var err error
	f.await("an answer", func() (bool, string) {
		err = f.client.Call(context.Background(), method, path, in, nil)
		return !hasCode(err, api.CodeNotLeader) && !hasCode(err, ""), asJSON(nil, err)
	})
	if !hasCode(err, code) {
		f.t.Errorf("%s %s: %v, want %s", method, path, err, code)
	}
}

// hasCode reports whether err is an answer with the code, or with "" whether it is
// no answer at all.
func hasCode(err error, code string) bool {
	var answer *httpx.Error
	if !errors.As(err, &answer) {
		return err != nil && code == ""
	}
	return answer.Code == code
}
