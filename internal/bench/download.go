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
	// cpu is what those who send it have taken of the processor so far.
	cpu func(ctx context.Context) (time.Duration, error)

	rates []float64 // MB/s, by round
	// Processor seconds for each GB, of the server and of whoever receives.
	served, received []float64
}

// sides are all of them. Those that need a program which is not here are nil.
type sides struct {
	verified, three, plain, curl, null, nginx, nginxNull *side
}

func (s *sides) all() (out []*side) {
	for _, x := range []*side{s.verified, s.three, s.plain, s.curl, s.null, s.nginx, s.nginxNull} {
		if x != nil {
			out = append(out, x)
		}
	}
	return out
}

// errNoCurl and errNoNginx leave rows out, visibly.
var (
	errNoCurl  = errors.New("curl is not installed")
	errNoNginx = errors.New("nginx is not installed, or curl is not")
)

// serversMax is how many servers the download from several sources has.
const serversMax = 3

func (b *bench) measureDownload(ctx context.Context) (err error) {
	store := filepath.Join(b.dir, "served")
	held, err := makeSegment(store, b.segmentBytes)
	if err != nil {
		return err
	}
	var urls []string
	for range serversMax { // of one store: nobody writes to it
		srv, err := startServer(ctx, serveJob{Store: store})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, srv.stop()) }()
		urls = append(urls, srv.url)
	}
	s, stop, err := b.sides(ctx, urls, filepath.Join(store, filepath.FromSlash(held.File())), held)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if b.only == "download" && b.profile != "" {
		stop, err := startProfile(b.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	// Interleaved, and each round begun by another: what the machine does
	// meanwhile hits all alike.
	all := s.all()
	for round := range b.rounds {
		for i := range all {
			if err := b.level(held.SizeBytes); err != nil {
				return err
			}
			if err := all[(round+i)%len(all)].once(ctx, held.SizeBytes); err != nil {
				return err
			}
		}
	}
	b.tellDownload(s)
	return b.measureCrowd(ctx)
}

// level writes a file of the segment's size and removes it, unmeasured. What a side
// finds is else what the one before it left: pages of a file that was just removed
// are at hand, while a virtual machine may have given those back to its host that
// nobody used for a second, and fetching them again costs as much as the download.
func (b *bench) level(size int64) (err error) {
	f, err := os.Create(filepath.Join(b.dir, "level"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block := make([]byte, 256<<10)
	for n := int64(0); n < size; n += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}

// once gets the segment once, and keeps the two figures.
func (s *side) once(ctx context.Context, size int64) error {
	before, err := s.cpu(ctx)
	if err != nil {
		return err
	}
	began, ours := time.Now(), cpuTime()+childrenTime()
	if err := s.get(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	took, received := time.Since(began), cpuTime()+childrenTime()-ours
	after, err := s.cpu(ctx)
	if err != nil {
		return err
	}
	gb := float64(size) / 1e9
	s.rates = append(s.rates, gb*1e3/took.Seconds())
	s.served, s.received = append(s.served, (after-before).Seconds()/gb), append(s.received, received.Seconds()/gb)
	return s.clear()
}

// serverCPU is the processor time of these servers together.
func serverCPU(urls ...string) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (sum time.Duration, err error) {
		var c httpx.Client
		defer c.Close()
		for _, u := range urls {
			var d time.Duration
			if err := c.GetJSON(ctx, u+"/cpu", &d); err != nil {
				return 0, err
			}
			sum += d
		}
		return sum, nil
	}
}

// sides are the ways to get the segment: from our servers, and from an nginx that
// sends the same file.
func (b *bench) sides(ctx context.Context, servers []string, file string, held segment.Held) (s *sides, stop func() error, err error) {
	url, dir := servers[0]+"/segment", filepath.Join(b.dir, "fetched")
	fsys, err := vfs.OS(dir)
	if err != nil {
		return nil, nil, err
	}
	got := filepath.Join(dir, "file")
	remove, nothing := func() error { return os.Remove(got) }, func() error { return nil }
	downloader := peerdl.NewDownloader(peerdl.Config{})
	verified := func(urls ...string) *side {
		var sources []peerdl.Source
		for _, u := range urls {
			sources = append(sources, peerdl.Source{URL: u + "/segment"})
		}
		return &side{name: fmt.Sprintf("verified from %d", len(urls)), cpu: serverCPU(urls...), get: func(ctx context.Context) error {
			res, err := downloader.Download(ctx, peerdl.Request{
				Digest: held.Digest, Size: held.SizeBytes, Sources: sources, FS: fsys, Part: "file.part",
			})
			if err != nil {
				return err
			}
			return res.File.Close() // it is fsynced
		}, clear: func() error { return peerdl.Forget(fsys, "file.part") }}
	}
	s = &sides{verified: verified(servers[0]), three: verified(servers...)}
	ours := serverCPU(servers[0])
	s.plain = &side{name: "plain copy", cpu: ours, get: func(ctx context.Context) error { return plainCopy(ctx, url, got) }, clear: remove}
	s.null = &side{name: "to nowhere", cpu: ours, get: func(ctx context.Context) error { return fetch(ctx, url, io.Discard) }, clear: nothing}
	if _, err := exec.LookPath("curl"); err != nil {
		return s, nothing, nil
	}
	s.curl = &side{name: "curl", cpu: ours, get: func(ctx context.Context) error { return curl(ctx, url, got) }, clear: remove}
	n, err := startNginx(ctx, filepath.Join(b.dir, "nginx"), file)
	if errors.Is(err, errNoNginx) {
		return s, nothing, nil
	}
	if err != nil {
		return nil, nil, err
	}
	s.nginx = &side{name: "nginx and curl", cpu: n.cpu, get: func(ctx context.Context) error { return curl(ctx, n.url, got) }, clear: remove}
	s.nginxNull = &side{name: "nginx to nowhere", cpu: n.cpu, get: func(ctx context.Context) error { return fetch(ctx, n.url, io.Discard) }, clear: nothing}
	return s, n.stop, nil
}

// curl ends with an fsync, as the others do.
func curl(ctx context.Context, url, file string) error {
	if err := exec.CommandContext(ctx, "curl", "-sS", "--fail", "-o", file, url).Run(); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
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

func (b *bench) tellDownload(s *sides) {
	size := fmt.Sprintf("%.2f GB from the page cache over loopback, fsync included, median of %d interleaved rounds", float64(b.segmentBytes)/1e9, b.rounds)
	rate := func(s *side) string {
		return fmt.Sprintf("%.0f MB/s (%.0f…%.0f)", median(s.rates), least(s.rates), most(s.rates))
	}
	cost := func(s *side) string {
		return fmt.Sprintf("%.2f s of processor time for each GB", median(s.received))
	}
	ratio := func(what string, over *side, want float64) {
		r := median(s.verified.rates) / median(over.rates)
		b.table.add(what, fmt.Sprintf("**%.2f**", r), aim(r >= want, fmt.Sprintf("≥ %g", want)), "of the medians, from one source")
	}
	b.table.add("verified download of a segment to disk, one source", "**"+rate(s.verified)+"**", "", cost(s.verified)+"; "+size)
	b.table.add("the same from three sources", "**"+rate(s.three)+"**", "", cost(s.three)+"; three processes on this machine serve it")
	b.table.add("unverified Go copy to disk", rate(s.plain), "", cost(s.plain)+"; one GET, 256 KiB buffer, fsync at the end")
	ratio("verified ÷ unverified Go copy", s.plain, 0.8)
	if s.curl == nil {
		b.table.add("`curl -o`", "left out", "", errNoCurl.Error())
	} else {
		b.table.add("`curl -o`", rate(s.curl), "", cost(s.curl)+"; from our server, fsync of the file after it")
		ratio("verified ÷ `curl`", s.curl, 1.5)
	}
	if s.nginx == nil {
		b.table.add("`nginx` with sendfile → `curl -o`", "left out", "≥ 1.5 ×: **not measured**", errNoNginx.Error())
	} else {
		b.table.add("`nginx` with sendfile → `curl -o`", rate(s.nginx), "", cost(s.nginx)+"; the same file, fsync after it")
		ratio("verified ÷ (`nginx` → `curl`)", s.nginx, 1.5)
	}
	b.table.add("processor time of the server for each GB", fmt.Sprintf("**%.2f s** whole, %.2f s in pieces", median(s.null.served), median(s.verified.served)), "",
		fmt.Sprintf("in a process of its own; one GET to a reader that keeps nothing (%.0f MB/s), and ranges to the verified download", median(s.null.rates)))
	if s.nginxNull != nil {
		r := median(s.null.served) / median(s.nginxNull.served)
		b.table.add("that ÷ `nginx`'s", fmt.Sprintf("**%.2f**", r), aim(r <= 1.2, "≤ 1.2"),
			fmt.Sprintf("whole, to the same reader; `nginx` takes %.2f s for each GB, at %.0f MB/s", median(s.nginxNull.served), median(s.nginxNull.rates)))
	}
}
