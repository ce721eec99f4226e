package zktest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below the range that the kernel gives to outgoing
// connections (32768 up on Linux) and to listeners on port 0: such a port stays
// free while its server is down, and Restart or Heal finds it again.
const portMin, portMax = 15000, 32000

// handedOut keeps two callers in this process from getting one port. Another
// process may still take it in between; whoever starts a server tries again.
var handedOut = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePort returns a port of 127.0.0.1 that nobody listens on.
func freePort() (int, error) {
	handedOut.Lock()
	defer handedOut.Unlock()
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin)
		if handedOut.ports[port] {
			continue
		}
		ln, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			continue
		}
		ln.Close()
		handedOut.ports[port] = true
		return port, nil
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func giveBack(port int) {
	handedOut.Lock()
	defer handedOut.Unlock()
	delete(handedOut.ports, port)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
