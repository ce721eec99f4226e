package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/peerdl"
	"github.com/shoalstore/shoal/segment"
)

// crowdJob downloads one segment many times at once, in a process that does
// nothing else.
type crowdJob struct {
	URL    string
	Digest segment.Digest
	Size   int64
	Dir    string
	Times  int
}

// crowdResult is what it took.
type crowdResult struct {
	PeakBytes int64 // of memory, 0: not known
	Took      time.Duration
}

func (j *crowdJob) run(ctx context.Context) (r crowdResult, err error) {
	fsys, err := vfs.OS(j.Dir)
	if err != nil {
		return r, err
	}
	d := peerdl.NewDownloader(peerdl.Config{})
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i := range j.Times {
		group.Go(func() error {
			part := fmt.Sprintf("%d.part", i)
			res, err := d.Download(ctx, peerdl.Request{
				Digest: j.Digest, Size: j.Size, Sources: []peerdl.Source{{URL: j.URL}}, FS: fsys, Part: part,
			})
			if err != nil {
				return err
			}
			return errors.Join(res.File.Close(), peerdl.Forget(fsys, part))
		})
	}
	err = group.Wait()
	return crowdResult{PeakBytes: peakMemory(), Took: time.Since(began)}, err
}

// peakMemory is the most that this process had in memory. The kernel's figure in
// getrusage would count its parent's in.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}

func (b *bench) measureCrowd(ctx context.Context) (err error) {
	held, srv, err := serveNew(ctx, filepath.Join(b.dir, "crowd-served"), b.crowdBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	var r crowdResult
	crowd := job{Crowd: &crowdJob{
		URL: srv.url + "/segment", Digest: held.Digest, Size: held.SizeBytes, Dir: filepath.Join(b.dir, "crowd"), Times: b.crowd,
	}}
	if err := runChild(ctx, crowd, &r); err != nil {
		return err
	}
	what := fmt.Sprintf("memory of a process with %d downloads at once", b.crowd)
	how := fmt.Sprintf("VmHWM; %d MiB each, from one source with 32 slots, in %.1f s", b.crowdBytes>>20, r.Took.Seconds())
	if r.PeakBytes == 0 {
		b.table.add(what, "left out", "< 256 MiB: **not measured**", "this system does not tell it (VmHWM)")
		return nil
	}
	b.table.add(what, fmt.Sprintf("**%d MiB**", r.PeakBytes>>20), aim(r.PeakBytes < 256<<20, "< 256 MiB"), how)
	return nil
}
