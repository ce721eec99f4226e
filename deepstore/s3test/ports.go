package s3test

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are from below the range that the kernel gives to outgoing connections
// and to listeners on port 0 (32768 up on Linux), so that nobody has taken the
// port of a gateway, or of a proxy, that is down for a moment.
const portMin, portMax = 10000, 12000

// given keeps two users in this process from one port.
var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePort returns a port of 127.0.0.1 that nobody listens on.
func freePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin)
		if given.ports[port] {
			continue
		}
		ln, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			continue
		}
		if err := ln.Close(); err != nil {
			return 0, err
		}
		given.ports[port] = true
		return port, nil
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func giveBack(port int) {
	given.Lock()
	defer given.Unlock()
	delete(given.ports, port)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
