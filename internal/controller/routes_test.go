package controller

import (
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/snapshots"
)

// Who asks in a wrong way hears of all right ones, whichever router answers them.
func TestAllowOfTheSnapshotsNamesBothRouters(t *testing.T) {
	c, err := Open(Config{ID: "c", Data: t.TempDir(), Listen: "127.0.0.1:0"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := newLocalLog(c)
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	l.keep()
	defer l.close()
	for path, want := range map[string]string{
		snapshots.Path: "GET, HEAD, POST",
		snapshots.Path + "/00000000000000000001-0000000001": "GET, HEAD",
	} {
		w := httptest.NewRecorder()
		c.routes().ServeHTTP(w, httptest.NewRequest("PUT", path, nil))
		if allow := w.Header().Get("Allow"); w.Code != 405 || allow != want {
			t.Errorf("PUT %s: %d, Allow %q", path, w.Code, allow)
		}
	}
}
