package httpxtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
)

// holderEnv makes the test binary a process that takes a port and waits.
const holderEnv = "SHOAL_TEST_PORT_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) == "" {
		os.Exit(m.Run())
	}
	port, err := FreePort()
	fmt.Println(port, err)
	io.Copy(io.Discard, os.Stdin)
}

// A port is its owner's while nobody listens on it, in this process and in others, and
// its server's whenever that comes.
func TestFreePortIsKept(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	wantTaken(t, port, true)
	ln, err := net.Listen("tcp4", Loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	GiveBack(port)
	GiveBack(port)
	wantTaken(t, port, false)
}

// What a process held that is killed is free again.
func TestFreePortOfAnotherProcess(t *testing.T) {
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"=1")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var port int
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscan(line, &port); err != nil || scanErr != nil {
		t.Fatalf("%q, %v", line, err)
	}
	wantTaken(t, port, true)
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	holder.Wait()
	wantTaken(t, port, false)
}

// wantTaken looks at what keeps a port, as FreePort does.
func wantTaken(t *testing.T, port int, taken bool) {
	t.Helper()
	keep, err := net.ListenPacket("udp4", Loopback(port))
	if err == nil {
		keep.Close()
	}
	if (err != nil) != taken {
		t.Errorf("port %d: %v, taken should be %v", port, err, taken)
	}
}
