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
	w := httptest.NewRecorder()
	c.routes().ServeHTTP(w, httptest.NewRequest("PUT", snapshots.Path, nil))
	if allow := w.Header().Get("Allow"); w.Code != 405 || allow != "GET, HEAD, POST" {
		t.Errorf("%d, Allow %q", w.Code, allow)
	}
}
