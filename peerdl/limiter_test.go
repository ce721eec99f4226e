package peerdl

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/shoalstore/shoal/internal/vfs"
)

func TestLimiter(t *testing.T) {
	b := newBlob(t, vfs.NewMem(), 100)
	l := NewLimiter(1)
	opts := Options{Limiter: l}
	release, ok := l.acquire()
	if !ok {
		t.Fatal("the first was refused")
	}
	w := serve(b, opts, "GET", "/blob")
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "TOO_MANY_SENDS") {
		t.Errorf("over the cap: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := serve(b, opts, "HEAD", "/blob"); w.Code != 200 {
		t.Errorf("HEAD sends nothing, but got %d", w.Code)
	}
	release()
	for range 3 { // each gives its slot back
		if w := serve(b, opts, "GET", "/blob?position=0"); w.Code != 206 {
			t.Errorf("under the cap: %d", w.Code)
		}
	}
}

// reader is a connection to somebody who takes so many bytes a second, and
// nothing any more once it is cut off.
type reader struct {
	httptest.ResponseRecorder
	perSecond int64
	took      int64
}

func newReader(perSecond int64) *reader {
	return &reader{ResponseRecorder: *httptest.NewRecorder(), perSecond: perSecond}
}

func (r *reader) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(io.Discard, src)
	time.Sleep(time.Duration(n) * time.Second / time.Duration(r.perSecond))
	r.took += n
	return n, err
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Counter.GetValue()
}

func ask(t *testing.T, w http.ResponseWriter, b *blob, opts Options) error {
	t.Helper()
	return Serve(w, httptest.NewRequest("GET", "/", nil), b, opts)
}

// A slow reader keeps its slot for as long as it likes, unless somebody else has
// been refused one for its sake.
func TestSlowReadersGiveWay(t *testing.T) {
	for _, test := range []struct {
		name      string
		perSecond int64
		others    bool // ask in vain
		rate      *Rate
		cut       bool
	}{
		{"a slow one alone", 9 << 10, false, nil, false},
		{"a slow one whom others wait for", 9 << 10, true, nil, true},
		{"one that is just fast enough", paceMin + 1<<10, true, nil, false},
		{"one that is just too slow", paceMin - 1<<10, true, nil, true},
		{"a fast one that our own budget holds up", 100 << 20, true, NewRate(8 << 10), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBlob(t, vfs.NewMem(), 16<<20)
				opts := Options{Limiter: NewLimiter(1), Metrics: NewMetrics(nil), Rate: test.rate}
				slow, ended := newReader(test.perSecond), make(chan struct{})
				began := time.Now()
				var err error
				go func() {
					err = ask(t, slow, b, opts)
					close(ended)
				}()
				synctest.Wait()
				for over := false; test.others && !over; {
					select {
					case <-ended:
						over = true
					case <-time.After(10 * time.Second):
						if ask(t, httptest.NewRecorder(), b, Options{Limiter: opts.Limiter}) == nil {
							over = true
						}
					}
				}
				<-ended
				if err != nil {
					t.Errorf("a reader's slowness is told as %v", err)
				}
				cut := slow.took < b.Size()
				if cut != test.cut || counted(t, opts.Metrics.cut) != map[bool]float64{true: 1}[cut] {
					t.Errorf("cut %v after %s and %d bytes, want %v", cut, time.Since(began), slow.took, test.cut)
				}
				if took := time.Since(began); cut && took > 3*paceWindow {
					t.Errorf("others waited %s", took)
				}
				if release, ok := opts.Limiter.acquire(); !ok {
					t.Error("the slot is not free")
				} else {
					release()
				}
			})
		})
	}
}

// Every slot is taken by a reader that drips; somebody who asks again and again,
// as peers do, gets one all the same.
func TestDrippingReadersDoNotBlockAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 16
		b := newBlob(t, vfs.NewMem(), 64<<20)
		opts := Options{Limiter: NewLimiter(slots)}
		var all sync.WaitGroup
		for range slots {
			all.Go(func() {
				if err := ask(t, newReader(10<<10), b, opts); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began, refused := time.Now(), 0
		for ask(t, newReader(100<<20), b, opts) != nil {
			refused++
			time.Sleep(time.Second)
		}
		if waited := time.Since(began); refused == 0 || waited > 3*paceWindow {
			t.Errorf("served after %s and %d refusals", waited, refused)
		}
		all.Wait()
	})
}
