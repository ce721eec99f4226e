package httpx

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

// Unrouted gives a router its answers for what it has no route for: a path that there is
// not, and a path that is not asked for in that way, with the methods that it has. handle
// makes an http.HandlerFunc of a HandlerFunc, as it does for the routes.
func Unrouted(r chi.Router, handle func(HandlerFunc) http.HandlerFunc) {
	r.NotFound(handle(func(http.ResponseWriter, *http.Request) error {
		return Errorf(http.StatusNotFound, "NOT_FOUND", "no such path")
	}))
	r.MethodNotAllowed(handle(func(_ http.ResponseWriter, req *http.Request) error {
		allow := allowed(r, req.URL.Path)
		return Errorf(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "this path answers to %s", allow).WithHeader("Allow", allow)
	}))
}

// allowed are the methods that a path has routes for.
func allowed(routes chi.Routes, path string) string {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), m, path) {
			methods = append(methods, m)
		}
	}
	return strings.Join(methods, ", ")
}
