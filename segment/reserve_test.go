package segment

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/shoalstore/shoal/internal/vfs"
)

func TestReservationsLeaveTheReserveFree(t *testing.T) {
	space := vfs.WithSpace(vfs.NewMem(), 1<<20)
	s := openTestStore(t, space)
	free, err := space.Free()
	if err != nil {
		t.Fatal(err)
	}
	s.SetReserve(free - 1000)
	mustFail := func(bytes int64) *NoSpaceError {
		t.Helper()
		_, err := s.Reserve(bytes)
		noSpace, ok := errors.AsType[*NoSpaceError](err)
		if !ok || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		return noSpace
	}
	mustReserve := func(bytes int64) func() {
		t.Helper()
		release, err := s.Reserve(bytes)
		if err != nil {
			t.Fatal(err)
		}
		return release
	}

	mustFail(1001)
	first := mustReserve(600)
	e := mustFail(401)
	if want := (NoSpaceError{FileSystem: space.String(), Want: 401, Free: free, Reserved: 600, Reserve: free - 1000}); *e != want {
		t.Errorf("got %+v, want %+v", *e, want)
	}
	if !strings.Contains(e.Error(), space.String()) {
		t.Errorf("does not name the file system: %v", e)
	}
	second := mustReserve(400)
	mustFail(1)
	first()
	first() // once more gives nothing back
	mustFail(601)
	mustReserve(600)()
	second()
	mustReserve(1000)()

	if _, err := s.Reserve(-1); err == nil {
		t.Error("a negative size was reserved")
	}
	// Space that others took shows at the next question.
	space.Add(-500)
	mustFail(501)
	mustReserve(500)()
}
