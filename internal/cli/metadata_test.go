package cli

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/meta/metatest"
	"github.com/shoalstore/shoal/metalog"
	"github.com/shoalstore/shoal/zkmeta"
	"github.com/shoalstore/shoal/zkmeta/zktest"
)

// embeddedDirectory is that of an embedded controller with a short history.
func embeddedDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	fsys, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := metalog.OpenLog(fsys, metalog.LogOptions{Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	history := metatest.NewLog(t)
	history.AddNode(t, "n1", "zone")
	for _, b := range history.Batches {
		if err := log.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(log.Close(), metalog.RaiseEpoch(fsys, history.Image.Epoch())); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMetadataMovesAndTheDoctorLooks(t *testing.T) {
	// Sessions may be long, so that calls may be slow: the machine may be busy.
	server := zktest.Start(t, zktest.WithTickTime(3*time.Second))
	t.Setenv("SHOAL_ZOOKEEPER_TIMEOUT", "1m")
	dir, address := embeddedDirectory(t), "zookeeper://"+server.Addr()+"/shoal"
	run := func(status int, says string, args ...string) string {
		t.Helper()
		got, out, errs := shoalIn(t, "", args...)
		if got != status || !strings.Contains(out+errs, says) {
			t.Errorf("%q: status %d, want %d and %q\n%s%s", args, got, status, says, out, errs)
		}
		return out
	}
	migrate := func(status int, says, from, to string, more ...string) string {
		t.Helper()
		return run(status, says, append([]string{"metadata", "migrate", "--from", from, "--to", to}, more...)...)
	}
	run(ExitNo, "shoal metadata init", "doctor", address)
	migrate(ExitUsage, "embedded:DIR", address, address)
	migrate(ExitUsage, "begins with zookeeper://", "embedded:"+dir, dir)
	migrate(ExitUsage, "root znode", "embedded:"+dir, "zookeeper://"+server.Addr())
	migrate(ExitFailed, "absent", "embedded:"+filepath.Join(t.TempDir(), "absent"), address)
	migrate(ExitFailed, "no cluster at /shoal", address, "embedded:"+t.TempDir())

	migrate(ExitOK, "undo: stop all controllers", "embedded:"+dir, address)
	var m struct {
		ClusterID string
		Already   bool
	}
	if err := json.Unmarshal([]byte(migrate(ExitOK, "", "embedded:"+dir, address, "-o", "json")), &m); err != nil || !m.Already || m.ClusterID != metatest.ID("cluster").String() {
		t.Errorf("%+v, %v", m, err)
	}
	run(ExitOK, "nothing is wrong", "doctor", address)
	var report zkmeta.Report
	if err := json.Unmarshal([]byte(run(ExitOK, "", "doctor", address, "-o", "json")), &report); err != nil || report.Tree.Standing != "whole" {
		t.Errorf("%+v, %v", report, err)
	}
	migrate(ExitOK, "undo: stop the controller", address, "embedded:"+dir)
	run(ExitNo, "moved away", "doctor", address)
	migrate(ExitFailed, "moved away", address, "embedded:"+t.TempDir())
}

func TestDoctorFindsNobody(t *testing.T) {
	nobody := strings.TrimPrefix(httpxtest.Refusing(t), "http://")
	status, out, errs := shoalIn(t, "", "doctor", "zookeeper://"+nobody+"/shoal")
	if status != ExitFailed || !strings.Contains(out, nobody+": it cannot be reached") || errs == "" {
		t.Errorf("status %d, %q, %q", status, out, errs)
	}
	for _, command := range []string{"doctor", "metadata init"} {
		args := append(strings.Fields(command), "--zookeeper-timeout=1ms", "zookeeper://"+nobody+"/shoal")
		if status, _, errs := shoalIn(t, "", args...); status != ExitUsage || !strings.Contains(errs, "timeout is 1ms") {
			t.Errorf("%s: status %d, %q", command, status, errs)
		}
	}
	if status, _, errs := shoalIn(t, "", "doctor", "kafka://h/x"); status != ExitUsage || !strings.Contains(errs, "zookeeper://") {
		t.Errorf("status %d, %q", status, errs)
	}
}
