package httpx

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestBoolParam(t *testing.T) {
	for query, want := range map[string]bool{"": false, "?a=1": false, "?b=false": false, "?b=0": false, "?b=true": true, "?b=1": true} {
		if got, err := BoolParam(httptest.NewRequest(http.MethodGet, "/x"+query, nil), "b"); err != nil || got != want {
			t.Errorf("%q: %v, %v", query, got, err)
		}
	}
	for _, query := range []string{"?b=", "?b=yes", "?b=2", "?b=%0a"} {
		_, err := BoolParam(httptest.NewRequest(http.MethodGet, "/x"+query, nil), "b")
		wantRefused(t, query, err)
	}
}

func TestCheckParams(t *testing.T) {
	for _, query := range []string{"", "?a=1", "?b=", "?b=x&a=", "?a"} {
		if err := CheckParams(httptest.NewRequest(http.MethodGet, "/x"+query, nil), "a", "b"); err != nil {
			t.Errorf("%q: %v", query, err)
		}
	}
	for query, says := range map[string]string{
		"?c=1":       `no parameter "c" here, only a, b`,
		"?A=1":       `no parameter "A"`,
		"?a=1&a=2":   "a is given 2 times",
		"?b=%zz":     "cannot be read",
		"?b=1;c":     "cannot be read",
		"?b=1&%0a=1": `no parameter`,
	} {
		err := CheckParams(httptest.NewRequest(http.MethodGet, "/x"+query, nil), "a", "b")
		wantRefused(t, query, err)
		if err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v", query, err)
		}
	}
	wantRefused(t, "without any", CheckParams(httptest.NewRequest(http.MethodGet, "/x?c", nil)))
}

func wantRefused(t *testing.T, query string, err error) {
	t.Helper()
	if refused := (*Error)(nil); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest || refused.Code != CodeInvalidRequest {
		t.Errorf("%q: %v", query, err)
	}
}
