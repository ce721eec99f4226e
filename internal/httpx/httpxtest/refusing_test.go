package httpxtest

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

func TestRefusingRefusesAndStaysOurs(t *testing.T) {
	at := strings.TrimPrefix(Refusing(t), "http://")
	if conn, err := net.Dial("tcp4", at); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, %v", conn, err)
	}
	if l, err := net.Listen("tcp4", at); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen: %v, %v", l, err)
	}
}
