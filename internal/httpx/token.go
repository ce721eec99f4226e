package httpx

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// RequireToken lets only requests with the Bearer token change state: every
// method but GET and HEAD needs it. An empty token is no protection: all pass.
func RequireToken(token string) func(http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return func(next http.Handler) http.Handler {
		if token == "" {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead && !hasToken(r, want) {
				WriteError(w, Errorf(http.StatusUnauthorized, CodeUnauthorized,
					"%s needs the cluster token (Authorization: Bearer …)", r.Method).
					WithHeader("WWW-Authenticate", `Bearer realm="shoal"`))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// hasToken compares hashes, in constant time: neither content nor length shows
// in how long it takes.
func hasToken(r *http.Request, want [sha256.Size]byte) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
