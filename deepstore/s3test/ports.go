package s3test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/shoalstore/shoal/internal/vfs"
)

// Ports are from below the range that the kernel gives to outgoing connections
// and to listeners on port 0 (32768 up on Linux), so that nobody has taken the
// port of a gateway, or of a proxy, that is down for a moment.
const portMin, portMax = 10000, 12000

// given keeps two users from one port while nobody listens on it, also users in other
// processes: the tests of several packages run at a time. Who has a port has a file
// locked, which a process that is killed gives up.
var given = struct {
	sync.Mutex
	locks map[int]io.Closer
}{locks: map[int]io.Closer{}}

// freePort returns a port of 127.0.0.1 that nobody listens on.
func freePort() (int, error) {
	dir := filepath.Join(os.TempDir(), "shoal-tests-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	fsys, err := vfs.OS(dir)
	if err != nil {
		return 0, err
	}
	given.Lock()
	defer given.Unlock()
	for range 1000 {
		port := portMin + rand.IntN(portMax-portMin)
		if given.locks[port] != nil {
			continue
		}
		lock, err := fsys.Lock(strconv.Itoa(port))
		if errors.Is(err, vfs.ErrLocked) {
			continue
		}
		if err != nil {
			return 0, err
		}
		ln, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			lock.Close()
			continue
		}
		if err := ln.Close(); err != nil {
			return 0, errors.Join(err, lock.Close())
		}
		given.locks[port] = lock
		return port, nil
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func giveBack(port int) {
	given.Lock()
	defer given.Unlock()
	if lock := given.locks[port]; lock != nil {
		lock.Close()
		delete(given.locks, port)
	}
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
