package deepstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A request that gets no answer ends when its time is up, and is not tried again:
// that would take as long once more.
func TestS3RequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, sent := time.Now(), 0
		_, err := retry(t.Context(), timeFor(16<<20), func(ctx context.Context) (int, error) {
			sent++
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if took := time.Since(began); !errors.Is(err, errNoAnswer) || sent != 1 || took != 94*time.Second {
			t.Errorf("sent %d times, ended after %v: %v", sent, took, err)
		}
	})
}

// What may be better in a moment is tried three times within seconds.
func TestS3RequestsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, sent := time.Now(), 0
		broken := errors.New("connection reset")
		_, err := retry(t.Context(), time.Minute, func(context.Context) (int, error) {
			sent++
			return 0, broken
		})
		if took := time.Since(began); !errors.Is(err, broken) || sent != 3 || took < 500*time.Millisecond || took > time.Second {
			t.Errorf("sent %d times, ended after %v: %v", sent, took, err)
		}
	})
}

// stalled gives a byte each time that it is told to, and nothing else.
type stalled struct {
	ctx  context.Context
	give chan byte
}

func (s stalled) Read(p []byte) (int, error) {
	select {
	case p[0] = <-s.give:
		return 1, nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (stalled) Close() error { return nil }

// A body may take as long as it likes, and its reader too, but for a minute
// without a byte while one is waited for.
func TestS3BodiesThatStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		give := make(chan byte)
		r := &s3Reader{
			store: &s3Store{place: s3Place{bucket: "b"}}, key: "k", ctx: ctx, cancel: cancel, left: 10, body: stalled{ctx, give},
			idle: time.AfterFunc(time.Hour, func() { cancel(errNoAnswer) }),
		}
		r.idle.Stop()
		go func() {
			for range 3 {
				time.Sleep(idleMax - time.Second)
				give <- 'x'
			}
		}()
		for range 3 {
			if n, err := r.Read(make([]byte, 5)); n != 1 || err != nil {
				t.Fatalf("%d bytes, %v", n, err)
			}
		}
		time.Sleep(10 * idleMax) // the reader is busy with something else
		began := time.Now()
		if _, err := r.Read(make([]byte, 5)); !errors.Is(err, errNoAnswer) || time.Since(began) != idleMax {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, err := r.Read(make([]byte, 5)); !errors.Is(err, errNoAnswer) {
			t.Errorf("then: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
