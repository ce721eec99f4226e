package zkmeta

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestElectionConfigReportsAllFaults(t *testing.T) {
	good := ElectionConfig{Controller: "c1", BootID: uuid.UUID{1}, SessionTimeout: time.Second}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	err := ElectionConfig{Controller: "http://c1"}.Validate()
	for _, want := range []string{"the controller's id", "boot id", "session timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not speak of the %s", err, want)
		}
	}
	for _, timeout := range []time.Duration{0, -time.Second} {
		bad := good
		bad.SessionTimeout = timeout
		if bad.Validate() == nil {
			t.Errorf("a session timeout of %s is taken", timeout)
		}
	}
}

// The shell asks between two steps as well.
func TestLeadingEndsWithoutAStep(t *testing.T) {
	s := newElectionScript()
	s.replay(standing + leading)
	deadline := s.e.Deadline()
	if deadline != testTimeout*2/3 {
		t.Fatalf("the deadline is %s", deadline)
	}
	if !s.e.Leading(deadline-1) || s.e.Leading(deadline) {
		t.Error("it does not lead exactly until its deadline")
	}
}

func TestControllersLookAtDifferentTimes(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 8 {
		every := ElectionConfig{BootID: uuid.UUID{byte(i)}, SessionTimeout: testTimeout}.lookEvery()
		if every < testTimeout || every > testTimeout*3/2 {
			t.Errorf("it looks every %s", every)
		}
		seen[every] = true
	}
	if len(seen) < 6 {
		t.Errorf("8 controllers look at %d different times", len(seen))
	}
}
