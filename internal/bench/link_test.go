package main

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// A link that is cut ends what is open, and carries what comes afterwards.
func TestALinkIsCutAndCarriesOn(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // an echo
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	link, err := startCutLink(t.Context(), ln.Addr().String(), 1<<30, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	const words = "these come back"
	talk := func() net.Conn {
		c, err := net.Dial("tcp", link.ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(words))
		if _, err := io.WriteString(c, words); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, []byte(words)) {
			t.Fatalf("%q came back: %v", got, err)
		}
		return c
	}
	first, second := talk(), talk()
	link.cut()
	for _, c := range []net.Conn{first, second} {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes came after the cut", n)
		}
		c.Close()
	}
	talk().Close()
	link.stop()
	if link.cuts != 1 || link.ended != 2 || link.sent != int64(3*len(words)) {
		t.Errorf("%d cuts of %d connections, %d bytes, want 1 of 2, %d", link.cuts, link.ended, link.sent, 3*len(words))
	}
}
