package zkmeta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// dialer connects to one server.
type dialer struct {
	tls     *tls.Config // nil: plain
	lookup  func(ctx context.Context, host string) ([]string, error)
	timeout time.Duration // for one attempt, up to the first answer

	mu   sync.Mutex
	turn map[string]int // which address of a name comes first
}

func newDialer(config *tls.Config, timeout time.Duration) *dialer {
	return &dialer{tls: config, lookup: net.DefaultResolver.LookupHost, timeout: timeout, turn: make(map[string]int)}
}

// dial resolves the name anew, so that a server may move, and tries its addresses
// in turn. Each dial begins with another one: a name can stand for a whole
// ensemble, and the one that froze still accepts connections.
func (d *dialer) dial(ctx context.Context, server string) (*wire, error) {
	deadline := time.Now().Add(d.timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	addrs, err := d.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", server, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("look up %s: no address", server)
	}
	var faults []error
	for i, first := 0, d.first(host); i < len(addrs); i++ {
		addr := net.JoinHostPort(addrs[(first+i)%len(addrs)], port)
		conn, err := d.dialAddress(ctx, host, addr, len(addrs)-i)
		if err == nil {
			return newWire(conn, server, deadline), nil
		}
		faults = append(faults, fmt.Errorf("%s: %w", server, err))
	}
	return nil, errors.Join(faults...)
}

func (d *dialer) first(host string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.turn[host]
	d.turn[host] = n + 1
	return n
}

// dialAddress takes no more than its share of what is left of the time.
func (d *dialer) dialAddress(ctx context.Context, host, addr string, left int) (net.Conn, error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
	defer cancel()
	var plain net.Dialer
	conn, err := plain.DialContext(ctx, "tcp", addr)
	if err != nil || d.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, d.configFor(host))
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &handshakeError{addr, err}
	}
	return secure, nil
}

// handshakeError is of a server that takes connections, and with which there is no TLS.
type handshakeError struct {
	addr string
	err  error
}

func (e *handshakeError) Error() string { return fmt.Sprintf("TLS with %s: %v", e.addr, e.err) }
func (e *handshakeError) Unwrap() error { return e.err }

// configFor names the server, which tls.Client would not know: without a name it
// refuses, or, worse, is told not to verify.
func (d *dialer) configFor(host string) *tls.Config {
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	return config
}
