package config

import "strings"

// WithoutSecrets is a URI, or what somebody takes for one, as it may be shown and
// logged: without what stands before an @, where credentials would be, and behind a
// question mark, where a signature would.
func WithoutSecrets(uri string) string {
	uri, query, asked := strings.Cut(uri, "?")
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		scheme, rest = "", uri
	} else {
		scheme += "://"
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 && !strings.HasPrefix(rest, "/") {
		rest = "…" + rest[at:]
	}
	if asked && query != "" {
		return scheme + rest + "?…"
	}
	return scheme + rest
}
