package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// lossJob serves and downloads in a process whose network is its own, and loses
// every twentieth packet.
type lossJob struct {
	Store, Dir string
	Size       int64
	Digest     segment.Digest
}

// lossResult is how that went.
type lossResult struct {
	By, Why     string // what loses the packets; or why nothing does
	Took, Clean time.Duration
	Stats       peerdl.Stats
}

func (j *lossJob) run(ctx context.Context) (r lossResult, err error) {
	if err := command(ctx, "ip link set lo up mtu 1500 gso_max_size 1500"); err != nil {
		if err := command(ctx, "ip link set lo up mtu 1500"); err != nil { // an older ip
			return lossResult{Why: err.Error()}, nil
		}
	}
	srv, err := startServer(ctx, serveJob{Store: j.Store})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	if _, r.Clean, err = j.download(ctx, srv.url, "clean"); err != nil {
		return r, err
	}
	if r.By, err = loseEveryTwentieth(ctx); err != nil {
		return lossResult{Why: err.Error()}, nil
	}
	r.Stats, r.Took, err = j.download(ctx, srv.url, "lossy")
	return r, err
}

func (j *lossJob) download(ctx context.Context, url, into string) (peerdl.Stats, time.Duration, error) {
	began := time.Now()
	stats, err := downloadOnce(ctx, url, filepath.Join(j.Dir, into), j.Size, j.Digest)
	return stats, time.Since(began), err
}

func loseEveryTwentieth(ctx context.Context) (by string, err error) {
	netem := command(ctx, "tc qdisc add dev lo root netem loss 5%")
	if netem == nil {
		return "netem", nil
	}
	filter := command(ctx, "iptables -A INPUT -m statistic --mode random --probability 0.05 -j DROP")
	if filter == nil {
		return "iptables, as the kernel has no netem", nil
	}
	return "", fmt.Errorf("%w; %w", netem, filter)
}

func command(ctx context.Context, line string) error {
	args := strings.Fields(line)
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, strings.Join(strings.Fields(string(out)), " "))
	}
	return nil
}

// A process of this kind is in a network of its own.
const alone = "unshare --net"

func (b *bench) measureLoss(ctx context.Context) error {
	const what = "verified download while 5 % of the packets are lost"
	leaveOut := func(why string) { b.table.add(what, "left out", "it ends: **not measured**", why) }
	if err := command(ctx, alone+" true"); err != nil {
		leaveOut("a network of its own cannot be had here, which takes Linux and root: " + err.Error())
		return nil
	}
	store := filepath.Join(b.dir, "loss-served")
	held, err := makeSegment(store, b.lossBytes)
	if err != nil {
		return err
	}
	cmd, err := newChild(ctx, job{Loss: &lossJob{Store: store, Dir: filepath.Join(b.dir, "loss"), Size: held.SizeBytes, Digest: held.Digest}})
	if err != nil {
		return err
	}
	var r lossResult
	if err := hear(within(ctx, alone, cmd), &r); err != nil {
		return fmt.Errorf("with packets lost: %w", err)
	}
	if r.Why != "" {
		leaveOut("nothing here can lose packets: " + r.Why)
		return nil
	}
	rate := func(d time.Duration) float64 { return float64(b.lossBytes) / 1e6 / d.Seconds() }
	b.table.add(what, fmt.Sprintf("ends, at **%.0f MB/s**, %s wasted", rate(r.Took), share(r.Stats)), aim(true, "it ends"),
		fmt.Sprintf("%d MiB from one source, packets of 1500 bytes over loopback, both ways, by %s; %.0f MB/s with none lost", b.lossBytes>>20, r.By, rate(r.Clean)))
	return nil
}

// within is cmd started by the words of a wrapper.
func within(ctx context.Context, wrapper string, cmd *exec.Cmd) *exec.Cmd {
	words := append(strings.Fields(wrapper), cmd.Args...)
	in := exec.CommandContext(ctx, words[0], words[1:]...)
	in.Env, in.Stderr = cmd.Env, cmd.Stderr
	return in
}
