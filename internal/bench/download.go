package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/shoalstore/shoal/internal/httpx"
	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// side is one of those that are compared: it gets the segment to where it puts
// it, and returns when it is there, fsynced if that is a disk.
type side struct {
	name string
	get  func(ctx context.Context) error
	// clear removes what get left; it is not measured.
	clear func() error

	rates []float64 // MB/s, by round
	// Processor seconds for each GB, of the server and of whoever receives.
	served, received []float64
}

// errNoCurl leaves curl's row out, visibly.
var errNoCurl = errors.New("curl is not installed")

func (b *bench) measureDownload(ctx context.Context) (err error) {
	held, err := makeSegment(filepath.Join(b.dir, "served"), b.segmentBytes)
	if err != nil {
		return err
	}
	srv, err := startServer(ctx, serveJob{Store: filepath.Join(b.dir, "served")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	verified, plain, curl, null, err := b.sides(srv.url, held)
	if err != nil {
		return err
	}
	sides := []*side{verified, plain, curl, null}
	if _, err := exec.LookPath("curl"); err != nil {
		sides = []*side{verified, plain, null}
	}
	if b.only == "download" && b.profile != "" {
		stop, err := startProfile(b.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	// Interleaved, and each round begun by another: what the machine does
	// meanwhile hits all alike.
	for round := range b.rounds {
		for i := range sides {
			if err := sides[(round+i)%len(sides)].once(ctx, srv.url, held.SizeBytes); err != nil {
				return err
			}
		}
	}
	b.tellDownload(verified, plain, curl, null)
	return nil
}

// once gets the segment once, and keeps the two figures.
func (s *side) once(ctx context.Context, server string, size int64) error {
	before, err := serverCPU(ctx, server)
	if err != nil {
		return err
	}
	began, ours := time.Now(), cpuTime()+childrenTime()
	if err := s.get(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	took, received := time.Since(began), cpuTime()+childrenTime()-ours
	after, err := serverCPU(ctx, server)
	if err != nil {
		return err
	}
	gb := float64(size) / 1e9
	s.rates = append(s.rates, gb*1e3/took.Seconds())
	s.served, s.received = append(s.served, (after-before).Seconds()/gb), append(s.received, received.Seconds()/gb)
	return s.clear()
}

func serverCPU(ctx context.Context, server string) (d time.Duration, err error) {
	var c httpx.Client
	defer c.Close()
	return d, c.GetJSON(ctx, server+"/cpu", &d)
}

// sides are the four ways to get the segment.
func (b *bench) sides(server string, held segment.Held) (verified, plain, curl, null *side, err error) {
	url, dir := server+"/segment", filepath.Join(b.dir, "fetched")
	fsys, err := vfs.OS(dir)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	file := filepath.Join(dir, "file")
	remove := func() error { return os.Remove(file) }
	downloader := peerdl.NewDownloader(peerdl.Config{})
	verified = &side{name: "verified", get: func(ctx context.Context) error {
		res, err := downloader.Download(ctx, peerdl.Request{
			Digest: held.Digest, Size: held.SizeBytes, Sources: []peerdl.Source{{URL: url}}, FS: fsys, Part: "file.part",
		})
		if err != nil {
			return err
		}
		return res.File.Close() // it is fsynced
	}, clear: func() error { return peerdl.Forget(fsys, "file.part") }}
	plain = &side{name: "plain copy", get: func(ctx context.Context) error { return plainCopy(ctx, url, file) }, clear: remove}
	curl = &side{name: "curl", get: func(ctx context.Context) error {
		if err := exec.CommandContext(ctx, "curl", "-sS", "--fail", "-o", file, url).Run(); err != nil {
			return err
		}
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	}, clear: remove}
	null = &side{name: "to nowhere", get: func(ctx context.Context) error { return fetch(ctx, url, io.Discard) }, clear: func() error { return nil }}
	return verified, plain, curl, null, nil
}

// plainCopy is what somebody writes who wants a file from a URL.
func plainCopy(ctx context.Context, url, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	// Hiding ReadFrom keeps io.Copy to the buffer, which is faster here than the
	// 32 KiB that net/http and *os.File settle on by themselves.
	return errors.Join(fetch(ctx, url, struct{ io.Writer }{f}), f.Sync(), f.Close())
}

func fetch(ctx context.Context, url string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{resp.Body}, make([]byte, 256<<10))
	return err
}

func (b *bench) tellDownload(verified, plain, curl, null *side) {
	size := fmt.Sprintf("%.2f GB from the page cache over loopback, fsync included, median of %d interleaved rounds", float64(b.segmentBytes)/1e9, b.rounds)
	rate := func(s *side) string {
		return fmt.Sprintf("%.0f MB/s (%.0f…%.0f)", median(s.rates), least(s.rates), most(s.rates))
	}
	cost := func(s *side) string {
		return fmt.Sprintf("%.2f s of processor time for each GB", median(s.received))
	}
	b.table.add("verified download of a segment to disk", "**"+rate(verified)+"**", "", cost(verified)+"; "+size)
	b.table.add("unverified Go copy to disk", rate(plain), "", cost(plain)+"; one GET, 256 KiB buffer, fsync at the end")
	if len(curl.rates) == 0 {
		b.table.add("`curl -o`", "left out", "≥ 1.5 ×: **not measured**", errNoCurl.Error())
	} else {
		b.table.add("`curl -o`", rate(curl), "", cost(curl)+"; fsync of the file after it")
		ratio := median(verified.rates) / median(curl.rates)
		b.table.add("verified ÷ curl", fmt.Sprintf("**%.2f**", ratio), aim(ratio >= 1.5, "≥ 1.5"), "of the medians")
	}
	ratio := median(verified.rates) / median(plain.rates)
	b.table.add("verified ÷ unverified Go copy", fmt.Sprintf("**%.2f**", ratio), aim(ratio >= 0.75, "≥ 0.75"), "of the medians")
	b.table.add("processor time of the server for each GB", fmt.Sprintf("**%.2f s** whole, %.2f s in pieces", median(null.served), median(verified.served)), "",
		fmt.Sprintf("in a process of its own; one GET to a reader that keeps nothing (%.0f MB/s), and ranges of 4 MiB to the verified download", median(null.rates)))
}
