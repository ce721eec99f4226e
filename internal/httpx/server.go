package httpx

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// ErrNotLoopback refuses a listen address that others could reach.
var ErrNotLoopback = errors.New("httpx: not a loopback address")

// Listen listens on a TCP address. Without a host (":7070") it is 127.0.0.1.
// Any host but a loopback address or "localhost" is ErrNotLoopback unless
// allowBeyondLoopback is set: nobody opens a port to the world by a default.
func Listen(addr string, allowBeyondLoopback bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("httpx: listen: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if !allowBeyondLoopback && !isLoopback(host) {
		return nil, fmt.Errorf("%w: %s", ErrNotLoopback, addr)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("httpx: %w", err)
	}
	return ln, nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(host, "localhost")
	}
	return ip.IsLoopback()
}

// drainMax is how long requests in flight may still take once Serve stops.
const drainMax = 10 * time.Second

// Serve answers the requests on ln until ctx ends, then drains: no new
// connection, requests in flight get 10 s, then their contexts end and their
// connections are closed. It closes ln, waits for all handlers, and returns nil
// after a stop by ctx, however the draining went. A handler must therefore come
// back when its context ends.
//
// There is no WriteTimeout, which would cut honest long downloads, and no
// ReadTimeout, which would cut a slow handler; Handler and RollingDeadline cut
// those who stall.
func Serve(ctx context.Context, log zerolog.Logger, ln net.Listener, h http.Handler) error {
	return serve(ctx, log, ln, h, drainMax)
}

func serve(ctx context.Context, log zerolog.Logger, ln net.Listener, h http.Handler, drain time.Duration) error {
	// Requests outlive ctx by the draining, and not longer.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var handlers sync.RWMutex // held for reading by each that runs
	defer func() {
		handlers.Lock() // server.Close does not wait for them
		handlers.Unlock()
	}()
	server := &http.Server{
		Handler:           holding(&handlers, h),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          stdlog.New(serverLog{log}, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		cancel()
		return errors.Join(fmt.Errorf("httpx: serve %s: %w", ln.Addr(), err), server.Close())
	case <-ctx.Done():
	}
	timeout, stop := context.WithTimeout(requests, drain)
	defer stop()
	if err := server.Shutdown(timeout); err != nil {
		log.Warn().Err(err).Str("addr", ln.Addr().String()).Msg("requests did not end in time, closing their connections")
		cancel()
		server.Close()
	}
	<-failed
	return nil
}

// holding holds running for reading while h runs. (A WaitGroup would not do: a
// last request may still arrive while the wait begins.)
func holding(running *sync.RWMutex, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.RLock()
		defer running.RUnlock()
		h.ServeHTTP(w, r)
	})
}

// serverLog is where net/http's own messages go: clients that break off,
// mostly, which is nobody's concern.
type serverLog struct{ log zerolog.Logger }

func (s serverLog) Write(b []byte) (int, error) {
	s.log.Debug().Str("from", "net/http").Msg(strings.TrimSpace(string(b)))
	return len(b), nil
}
