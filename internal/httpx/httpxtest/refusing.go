// Package httpxtest has what tests of several packages need of HTTP. Start reading at
// Refusing.
package httpxtest

import (
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Refusing returns a URL on loopback at which every connection is refused until the
// test ends. The address of a server that was closed is free for the next server of
// another test, and then somebody answers there after all; this one is held by a
// socket that is bound and does not listen.
func Refusing(t testing.TB) (url string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.(*syscall.SockaddrInet4).Port))
}
