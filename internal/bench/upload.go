package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/shoalstore/shoal/deepstore"
)

// programs are those of other modules that the upload is measured with: the S3
// server, and s3bench, which uploads a file once. Empty: not built.
type programs struct{ s3gateway, s3bench string }

// What the gateway is asked with.
const (
	uploadBucket = "shoal"
	uploadRegion = "us-east-1"
	uploadUser   = "shoal-bench"
)

// uploader is one of those that are compared, by its name in s3bench.
type uploader struct {
	side string

	rates     []float64 // MB/s, by round
	sent      []float64 // processor seconds for each GB, of the uploading process
	received  []float64 // the same of the gateway
	peakBytes int64     // of memory, the most of any round; 0: not known
}

// uploaded is what s3bench prints.
type uploaded struct {
	Took, CPU time.Duration
	PeakBytes int64
}

func (b *bench) measureUpload(ctx context.Context) (err error) {
	if b.programs.s3bench == "" || b.programs.s3gateway == "" {
		b.table.add("upload of a segment to S3", "left out", "", "internal/s3bench or internal/s3gateway, modules of their own, were not built")
		return nil
	}
	store := filepath.Join(b.dir, "uploaded")
	held, err := makeSegment(store, b.segmentBytes)
	if err != nil {
		return err
	}
	key, err := deepstore.DataKey(held.Name, held.Digest)
	if err != nil {
		return err
	}
	g, err := startGateway(ctx, b.programs.s3gateway, filepath.Join(b.dir, "s3"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	args := []string{
		"-endpoint", g.url, "-bucket", uploadBucket, "-region", uploadRegion,
		"-file", filepath.Join(store, filepath.FromSlash(held.File())), "-digest", held.Digest.String(),
		"-key", key,
	}
	ours, manager, bare := &uploader{side: "shoal"}, &uploader{side: "manager"}, &uploader{side: "bare"}
	all := []*uploader{ours, manager, bare}
	for round := range b.rounds {
		for i := range all {
			if err := b.level(held.SizeBytes); err != nil {
				return err
			}
			if err := all[(round+i)%len(all)].once(ctx, b.programs.s3bench, g, args, held.SizeBytes); err != nil {
				return err
			}
		}
	}
	b.tellUpload(ours, manager, bare)
	return nil
}

func (u *uploader) once(ctx context.Context, program string, g *gateway, args []string, size int64) error {
	before, err := g.cpu(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"-side", u.side}, args...)...)
	cmd.Env = append(os.Environ(), gatewayEnv()...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("s3bench -side %s: %w", u.side, err)
	}
	after, err := g.cpu(ctx)
	if err != nil {
		return err
	}
	var r uploaded
	if err := json.Unmarshal(out, &r); err != nil {
		return fmt.Errorf("s3bench -side %s: %w", u.side, err)
	}
	gb := float64(size) / 1e9
	u.rates, u.sent = append(u.rates, gb*1e3/r.Took.Seconds()), append(u.sent, r.CPU.Seconds()/gb)
	u.received = append(u.received, (after-before).Seconds()/gb)
	u.peakBytes = max(u.peakBytes, r.PeakBytes)
	return nil
}

func (b *bench) tellUpload(ours, manager, bare *uploader) {
	row := func(what string, u *uploader, how string) {
		memory := "not known"
		if u.peakBytes > 0 {
			memory = fmt.Sprintf("%d MiB", u.peakBytes>>20)
		}
		b.table.add(what, fmt.Sprintf("%.0f MB/s (%.0f…%.0f)", median(u.rates), least(u.rates), most(u.rates)), "",
			fmt.Sprintf("%.2f s of processor time for each GB, memory of the process %s; the gateway takes %.2f s; %s", median(u.sent), memory, median(u.received), how))
	}
	row("upload of a segment to S3", ours, fmt.Sprintf("`deepstore` Put: BLAKE3 and SHA-256 first, then parts of 8 MiB, four at once; %.2f GB, median of %d interleaved rounds", float64(b.segmentBytes)/1e9, b.rounds))
	row("transfer manager of the AWS SDK, as it comes", manager, "the same parts; CRC-32 of each, and the SHA-256 that signs it")
	row("transfer manager of the AWS SDK, no digests at all", bare, "the same parts, unsigned and without checksums")
	for _, c := range []struct {
		what  string
		other *uploader
	}{{"upload ÷ transfer manager as it comes", manager}, {"upload ÷ transfer manager without digests", bare}} {
		b.table.add(c.what, fmt.Sprintf("**%.2f**", median(ours.rates)/median(c.other.rates)), "", "of the medians")
	}
}

// gateway is internal/s3gateway: an S3 server that keeps its objects on the disk
// that is measured.
type gateway struct {
	cmd   *exec.Cmd
	proc  *process.Process
	stdin io.Closer
	url   string
}

func gatewayEnv() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + uploadUser, "AWS_SECRET_ACCESS_KEY=" + uploadUser + "-secret", "AWS_SESSION_TOKEN="}
}

func startGateway(ctx context.Context, program, dir string) (*gateway, error) {
	g := &gateway{cmd: exec.CommandContext(ctx, program, "-dir", dir, "-bucket", uploadBucket, "-region", uploadRegion)}
	g.cmd.Env = append(os.Environ(), gatewayEnv()...)
	g.cmd.Stderr = os.Stderr
	stdin, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	g.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n') // until it serves, or ends
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		return nil, errors.Join(fmt.Errorf("the S3 gateway said %q: %w", line, err), g.stop())
	}
	g.url = "http://" + addr
	if g.proc, err = process.NewProcessWithContext(ctx, int32(g.cmd.Process.Pid)); err != nil {
		return nil, errors.Join(err, g.stop())
	}
	return g, nil
}

// cpu is its processor time, in steps of the kernel's tick.
func (g *gateway) cpu(ctx context.Context) (time.Duration, error) { return processorTime(ctx, g.proc) }

// stop ends it, which takes the end of its input for the sign.
func (g *gateway) stop() error { return errors.Join(g.stdin.Close(), g.cmd.Wait()) }
