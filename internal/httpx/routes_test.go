package httpx_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/httpx"
)

func TestUnroutedPathsAreProblems(t *testing.T) {
	handle := func(h httpx.HandlerFunc) http.HandlerFunc { return httpx.Handler(zerolog.Nop(), h).ServeHTTP }
	r := chi.NewRouter()
	httpx.Unrouted(r, handle)
	fine := handle(func(w http.ResponseWriter, _ *http.Request) error { return nil })
	r.Get("/things/{id}", fine)
	r.Group(func(r chi.Router) { r.Delete("/things/{id}", fine) })
	for _, c := range []struct {
		method, path string
		status       int
		allow, code  string
	}{
		{"GET", "/things/1", 200, "", ""},
		{"POST", "/things/1", 405, "GET, DELETE", "METHOD_NOT_ALLOWED"},
		{"PATCH", "/things/1", 405, "GET, DELETE", "METHOD_NOT_ALLOWED"},
		{"GET", "/nothing", 404, "", "NOT_FOUND"},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Header().Get("Allow") != c.allow || !strings.Contains(w.Body.String(), c.code) {
			t.Errorf("%s %s: %d, Allow %q, %s", c.method, c.path, w.Code, w.Header().Get("Allow"), w.Body)
		}
		if c.code != "" && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %s", c.method, c.path, w.Header().Get("Content-Type"))
		}
	}
}
