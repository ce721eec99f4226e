package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/peerdl"
)

// measureLinks downloads over links that are bad: one that cuts all connections
// again and again, and one that loses packets.
func (b *bench) measureLinks(ctx context.Context) error {
	return errors.Join(b.measureCuts(ctx), b.measureLoss(ctx))
}

// cutLink passes TCP on at a limited rate, and now and then ends every
// connection that is open.
type cutLink struct {
	to    string
	rate  *rate.Limiter
	ln    net.Listener
	loops sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool // the receivers' side
	cuts  int               // times that something was cut
	ended int               // connections that were
	sent  int64             // bytes of answers that have entered the link
	over  bool
}

// linkStep is how much is passed on at once.
const linkStep = 64 << 10

func startCutLink(ctx context.Context, to string, bytesPerSecond int64, every time.Duration) (*cutLink, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &cutLink{to: to, rate: rate.NewLimiter(rate.Limit(bytesPerSecond), linkStep), ln: ln, open: map[net.Conn]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	l.loops.Go(func() {
		defer cancel() // for those who wait for their share
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			l.loops.Go(func() { l.pass(ctx, in) })
		}
	})
	l.loops.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				l.cut()
			}
		}
	})
	return l, nil
}

// pass serves one connection until either side, or the link, ends it.
func (l *cutLink) pass(ctx context.Context, in net.Conn) {
	defer in.Close()
	if !l.enter(in) {
		return
	}
	defer l.leave(in)
	out, err := net.Dial("tcp", l.to)
	if err != nil {
		return // the receiver sees the end of its connection
	}
	defer out.Close()
	l.loops.Go(func() {
		_, _ = io.Copy(out, in) // requests; it ends when either is closed
		out.Close()
	})
	for buf := make([]byte, linkStep); ; {
		n, err := out.Read(buf)
		if err != nil || l.rate.WaitN(ctx, n) != nil {
			return
		}
		l.count(n)
		if _, err := in.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (l *cutLink) enter(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.open[c] = true
	}
	return !l.over
}

func (l *cutLink) leave(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

func (l *cutLink) count(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent += int64(n)
}

func (l *cutLink) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) > 0 {
		l.cuts++
	}
	for c := range l.open {
		l.ended++
		c.Close() // whoever passes it on sees that
	}
}

// stop ends the link, after which its figures stand.
func (l *cutLink) stop() {
	l.mu.Lock()
	l.over = true
	for c := range l.open {
		c.Close()
	}
	l.mu.Unlock()
	l.ln.Close()
	l.loops.Wait()
}

func (b *bench) measureCuts(ctx context.Context) (err error) {
	held, srv, err := serveNew(ctx, filepath.Join(b.dir, "cut-served"), b.segmentBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	link, err := startCutLink(ctx, srv.addr(), b.linkRate, b.cutEvery)
	if err != nil {
		return err
	}
	began := time.Now()
	stats, err := downloadOnce(ctx, "http://"+link.ln.Addr().String(), filepath.Join(b.dir, "cut"), b.segmentBytes, held.Digest)
	took := time.Since(began)
	link.stop()
	if err != nil {
		return fmt.Errorf("over a link that is cut: %w", err)
	}
	b.table.add(fmt.Sprintf("verified download over a link of %d MB/s that cuts every connection every %v", b.linkRate/1e6, b.cutEvery),
		fmt.Sprintf("ends in **%.1f s**, %s wasted", took.Seconds(), share(stats)), aim(true, "it ends"),
		fmt.Sprintf("%.2f GB, one source; %d cuts ended %d connections; with what they swallowed, %.2f MiB more than the segment went into the link; without them it takes %.1f s",
			float64(b.segmentBytes)/1e9, link.cuts, link.ended, float64(link.sent-b.segmentBytes)/(1<<20), float64(b.segmentBytes)/float64(b.linkRate)))
	return nil
}

// share is what of the bytes that came was not kept.
func share(s peerdl.Stats) string {
	return fmt.Sprintf("%.1f MiB (%.2f %%)", float64(s.WastedBytes)/(1<<20), 100*float64(s.WastedBytes)/float64(s.WastedBytes+s.FetchedBytes))
}

// downloadOnce is one verified download to a directory.
func downloadOnce(ctx context.Context, url, dir string, size int64, digest [32]byte) (peerdl.Stats, error) {
	fsys, err := vfs.OS(dir)
	if err != nil {
		return peerdl.Stats{}, err
	}
	res, err := peerdl.NewDownloader(peerdl.Config{}).Download(ctx, peerdl.Request{
		Digest: digest, Size: size, Sources: []peerdl.Source{{URL: url + "/segment"}}, FS: fsys, Part: "file.part",
	})
	if err != nil {
		return peerdl.Stats{}, err
	}
	return res.Stats, errors.Join(res.File.Close(), peerdl.Forget(fsys, "file.part"))
}
