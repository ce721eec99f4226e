package httpx_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/httpx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answer is what a handler gives to one request, and what it logs.
func answer(h httpx.HandlerFunc, r *http.Request) (*httptest.ResponseRecorder, string) {
	var log bytes.Buffer
	w := httptest.NewRecorder()
	httpx.Handler(zerolog.New(&log), h).ServeHTTP(w, r)
	return w, log.String()
}

func returns(err error) httpx.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("ETag", `"of the success"`)
		w.Header().Set("Content-Disposition", `attachment; filename="of-the-success.parquet"`)
		return err
	}
}

func TestErrorsAreProblems(t *testing.T) {
	secret := errors.New("the disk at slot 3 says no")
	for _, c := range []struct {
		name   string
		err    error
		status int
		body   string
		logged string // part of the log line
	}{
		{"an Error", httpx.Errorf(404, "SNAPSHOT_NOT_FOUND", "no snapshot %q", "5-1"), 404,
			`{"type":"about:blank","title":"Not Found","status":404,"code":"SNAPSHOT_NOT_FOUND","detail":"no snapshot \"5-1\""}`, `"level":"debug"`},
		{"its cause is not told", fmt.Errorf("wrapped: %w", httpx.Errorf(503, "NOT_AVAILABLE", "later").With(secret)), 503,
			`{"type":"about:blank","title":"Service Unavailable","status":503,"code":"NOT_AVAILABLE","detail":"later"}`, `"level":"warn","error":"503 NOT_AVAILABLE: later: the disk`},
		{"any other error", secret, 500,
			`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"INTERNAL","detail":"internal error; the server's log says more"}`, `"level":"error","error":"500 INTERNAL: internal error; the server's log says more: the disk`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, log := answer(returns(c.err), httptest.NewRequest("GET", "/x", nil))
			if w.Code != c.status || w.Body.String() != c.body+"\n" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("ETag") != "" || h.Get("Content-Disposition") != "" || h.Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
				t.Errorf("headers %v", h)
			}
			if !strings.Contains(log, c.logged) || !strings.Contains(log, `"path":"/x"`) {
				t.Errorf("logged %s, want %s", log, c.logged)
			}
		})
	}
}

func TestErrorKeepsItsParts(t *testing.T) {
	base := httpx.Errorf(503, "BUSY", "too many sends")
	cause := io.ErrUnexpectedEOF
	full := base.With(cause).WithHeader("Retry-After", "2")
	if base.Cause != nil || base.Header != nil {
		t.Fatal("With changed the original, which may be shared")
	}
	if !errors.Is(full, cause) || full.Error() != "503 BUSY: too many sends: unexpected EOF" {
		t.Fatalf("got %v", full)
	}
	w, _ := answer(returns(full), httptest.NewRequest("GET", "/", nil))
	if w.Header().Get("Retry-After") != "2" {
		t.Fatalf("headers %v", w.Header())
	}
}

func TestSuccessIsPassedThrough(t *testing.T) {
	w, log := answer(func(w http.ResponseWriter, r *http.Request) error {
		return httpx.WriteJSON(w, 201, map[string]string{"a": "<b>"})
	}, httptest.NewRequest("POST", "/", nil))
	if w.Code != 201 || w.Body.String() != `{"a":"<b>"}`+"\n" || w.Header().Get("Content-Type") != "application/json" || log != "" {
		t.Fatalf("got %d %s %v, logged %s", w.Code, w.Body, w.Header(), log)
	}
}

func TestWhatCannotBeEncodedIsAnErrorBeforeTheHeader(t *testing.T) {
	w, _ := answer(func(w http.ResponseWriter, r *http.Request) error {
		return httpx.WriteJSON(w, 200, make(chan int))
	}, httptest.NewRequest("GET", "/", nil))
	if w.Code != 500 {
		t.Fatalf("got %d", w.Code)
	}
}

// TestErrorAfterTheHeaderCutsTheConnection: half an answer must not look like
// a whole one.
func TestErrorAfterTheHeaderCutsTheConnection(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("disk gone") },
		"panic": func() error { panic("invariant broken") },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			server := httptest.NewServer(httpx.Handler(zerolog.New(&log), func(w http.ResponseWriter, r *http.Request) error {
				io.WriteString(w, strings.Repeat("half", 5000)) // without Content-Length
				return fail()
			}))
			client := server.Client()
			res, err := client.Get(server.URL)
			if err == nil {
				_, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if err == nil {
				t.Error("the answer looks complete")
			}
			server.Close()
			if !strings.Contains(log.String(), `"level":"error"`) {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}

func TestPanicBeforeTheHeaderIsA500(t *testing.T) {
	w, log := answer(func(http.ResponseWriter, *http.Request) error { panic("invariant broken") }, httptest.NewRequest("GET", "/x", nil))
	if w.Code != 500 || strings.Contains(w.Body.String(), "invariant") {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if !strings.Contains(log, "invariant broken") || !strings.Contains(log, "stack") {
		t.Fatalf("logged %s", log)
	}
}

func TestReadJSON(t *testing.T) {
	type inner struct {
		N int `json:"n"`
	}
	type body struct {
		Name  string `json:"name"`
		Inner inner  `json:"inner"`
	}
	for _, c := range []struct {
		name, body string
		status     int
		code, says string
	}{
		{"fits", `{"name": "x", "inner": {"n": 3}}`, 0, "", ""},
		{"unknown fields are ignored", `{"name": "x", "inner": {"n": 3, "later": 1}, "newer": {}}`, 0, "", ""},
		{"empty", "", 400, "INVALID_REQUEST", "empty"},
		{"blank", " \n", 400, "INVALID_REQUEST", "empty"},
		{"cut", `{"name": "x"`, 400, "INVALID_REQUEST", "unexpected end of JSON input"},
		{"two values", `{} {}`, 400, "INVALID_REQUEST", "byte 4"},
		{"wrong type", `{"inner": {"n": "many"}}`, 400, "INVALID_REQUEST", "field inner.n cannot be string"},
		{"not an object", `[]`, 400, "INVALID_REQUEST", "cannot unmarshal array"},
		{"too large", `{"name": "` + strings.Repeat("x", 100) + `"}`, 413, "BODY_TOO_LARGE", "100 bytes"},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s chunked %v", c.name, chunked), func(t *testing.T) {
				r := httptest.NewRequest("POST", "/", strings.NewReader(c.body))
				if chunked {
					r.ContentLength = -1
				}
				var got body
				err := httpx.ReadJSON(r, 100, &got)
				if c.status == 0 {
					must(t, err)
					if got != (body{"x", inner{3}}) {
						t.Fatalf("got %+v", got)
					}
					return
				}
				e, ok := errors.AsType[*httpx.Error](err)
				if !ok || e.Status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.says) {
					t.Fatalf("got %v", err)
				}
			})
		}
	}
}

func TestBodyOfExactlyTheLimit(t *testing.T) {
	r := httptest.NewRequest("POST", "/", strings.NewReader("0123456789"))
	data, err := httpx.ReadBody(r, 10)
	must(t, err)
	if string(data) != "0123456789" {
		t.Fatalf("got %q", data)
	}
}

func TestRequireToken(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) })
	ask := func(h http.Handler, method, authorization string) int {
		r := httptest.NewRequest(method, "/", nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == 401 {
			var p struct{ Code string }
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code != "UNAUTHORIZED" || w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("401 with %s, %v", w.Body, w.Header())
			}
		}
		return w.Code
	}
	guarded := httpx.RequireToken("sesame")(ok)
	for _, c := range []struct {
		method, authorization string
		want                  int
	}{
		{"GET", "", 204}, {"HEAD", "", 204},
		{"POST", "", 401}, {"PUT", "", 401}, {"DELETE", "", 401}, {"PATCH", "", 401}, {"OPTIONS", "", 401}, {"get", "", 401},
		{"POST", "Bearer sesame", 204}, {"POST", "bearer sesame", 204}, {"DELETE", "Bearer sesame", 204},
		{"POST", "Bearer sesam", 401}, {"POST", "Bearer sesame2", 401}, {"POST", "Bearer", 401}, {"POST", "Bearer ", 401},
		{"POST", "Basic sesame", 401}, {"POST", "sesame", 401},
	} {
		if got := ask(guarded, c.method, c.authorization); got != c.want {
			t.Errorf("%s with %q: got %d, want %d", c.method, c.authorization, got, c.want)
		}
	}
	if got := ask(httpx.RequireToken("")(ok), "POST", ""); got != 204 {
		t.Errorf("without a token configured: %d", got)
	}
}
