package peerdl

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/shoalstore/shoal/internal/vfs"
)

// lossJob serves and downloads in a network of its own, of which every twentieth
// packet is lost.
type lossJob struct{ Size int }

// lossResult is how that went.
type lossResult struct {
	// By is what loses the packets; empty: nothing here can, and Why says why.
	By, Why string
	Stats   Stats
}

func (j *lossJob) run() {
	by, err := loseEveryTwentieth()
	if err != nil {
		say(lossResult{Why: err.Error()})
		return
	}
	b, err := makeBlob(vfs.NewMem(), j.Size)
	if err != nil {
		panic(err)
	}
	srv := httptest.NewServer(b.handler(Options{}))
	defer srv.Close()
	d := NewDownloader(Config{Client: &http.Client{Transport: NewTransport()}, Log: zerolog.Nop()})
	res, err := d.Download(context.Background(), b.request(vfs.NewMem(), Source{URL: srv.URL + "/blob"}))
	if err != nil {
		panic(err)
	}
	say(lossResult{By: by, Stats: res.Stats})
}

// loseEveryTwentieth sets the loopback of this network up, with packets of the
// usual size.
func loseEveryTwentieth() (by string, err error) {
	run := func(command string) error {
		args := strings.Fields(command)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := run("ip link set lo up mtu 1500 gso_max_size 1500"); err != nil {
		if err := run("ip link set lo up mtu 1500"); err != nil { // an older ip
			return "", err
		}
	}
	netem := run("tc qdisc add dev lo root netem loss 5%")
	if netem == nil {
		return "netem", nil
	}
	filter := run("iptables -A INPUT -m statistic --mode random --probability 0.05 -j DROP")
	if filter == nil {
		return "iptables", nil
	}
	return "", fmt.Errorf("%w; %w", netem, filter)
}

// A network that loses every twentieth packet makes a download slow, no more.
func TestEveryTwentiethPacketIsLost(t *testing.T) {
	const size = 3*piece + 100
	c := newChild(t, childJob{Loss: &lossJob{Size: size}})
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := c.Start(); err != nil {
		t.Skipf("a network of its own cannot be had here, which takes root: %v", err)
	}
	t.Cleanup(func() {
		c.stdin.Close()
		c.Wait()
	})
	var r lossResult
	if err := c.hear(&r); err != nil {
		t.Fatal(err)
	}
	if r.By == "" {
		t.Skipf("nothing here can lose packets: %s", r.Why)
	}
	t.Logf("5 %% lost by %s: %+v", r.By, r.Stats)
	if r.Stats.FetchedBytes != size {
		t.Errorf("stats %+v", r.Stats)
	}
}
