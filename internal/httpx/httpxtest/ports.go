package httpxtest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Ports are from below the range that the kernel gives to outgoing connections and to
// listeners on port 0 (32768 up on Linux). Whoever calls a server that is down could
// otherwise be given the very port it calls, be connected to itself, and keep the server
// from coming back.
const portMin, portMax = 10000, 32000

// given are the ports that FreePort has handed out, with what keeps them.
var given = struct {
	sync.Mutex
	keep map[int]io.Closer
}{keep: map[int]io.Closer{}}

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on and that is the
// caller's until GiveBack, also while its server is down: nobody else who asks here gets
// it, in no process, because the UDP port of the same number is held meanwhile. The
// kernel gives that up when the process ends in whatever way.
func FreePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin)
		keep, err := net.ListenPacket("udp4", Loopback(port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if err := tryToListen(port); err != nil {
			if err := errors.Join(err, keep.Close()); !errors.Is(err, syscall.EADDRINUSE) {
				return 0, err
			}
			continue
		}
		given.keep[port] = keep
		return port, nil
	}
	return 0, fmt.Errorf("no free port of 127.0.0.1 from %d to %d", portMin, portMax-1)
}

func tryToListen(port int) error {
	ln, err := net.Listen("tcp4", Loopback(port))
	if err != nil {
		return err
	}
	return ln.Close()
}

// GiveBack lets a port of FreePort go. It may be called again.
func GiveBack(port int) {
	given.Lock()
	defer given.Unlock()
	if keep := given.keep[port]; keep != nil {
		keep.Close()
		delete(given.keep, port)
	}
}

// Loopback is the address of a port of 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
