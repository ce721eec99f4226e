package httpx

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestBoolParam(t *testing.T) {
	for query, want := range map[string]bool{"": false, "?a=1": false, "?b=false": false, "?b=0": false, "?b=true": true, "?b=1": true} {
		if got, err := BoolParam(httptest.NewRequest(http.MethodGet, "/x"+query, nil), "b"); err != nil || got != want {
			t.Errorf("%q: %v, %v", query, got, err)
		}
	}
	for _, query := range []string{"?b=", "?b=yes", "?b=2", "?b=%0a", "?b=%zz", "?b=1;c", "?b=true&b=false"} {
		_, err := BoolParam(httptest.NewRequest(http.MethodGet, "/x"+query, nil), "b")
		if refused := (*Error)(nil); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
			t.Errorf("%q: %v", query, err)
		}
	}
}
