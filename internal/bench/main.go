// Command bench measures Shoal on the machine that it runs on and writes the
// table of docs/benchmarks.md. run.sh, which is `make bench`, calls it.
//
// It owns what is measured and how, and the wording of the table. It changes
// nothing of what it measures: it uses the packages as a node does, and where a
// figure needs a look from outside (a commit's latency, a server's processor
// time) it stands outside, as a proxy or as another process. Benchmarks of one
// function are beside the function.
//
// Start reading at measure in this file; each part has a file: ingest.go (stream
// file to sealed segment, and a builder's memory), cluster.go with
// stopwatch.go (commits and roll-overs on three nodes), download.go with
// serve.go, nginx.go and crowd.go (a segment from nodes to a disk, beside others
// who can do that; many at once). machine.go and table.go describe
// and print. Parts that must have a process to themselves run in child.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

// sizes is how much is measured. Those of a smoke run prove that the parts
// work, and nothing else.
type sizes struct {
	rounds int // of each side of a comparison; odd, so that a median is a measurement

	ingestBytes int64 // of rows, at least
	memoryBytes int64 // of rows

	lightCommits   int // at lightRate
	backlogCommits int
	liveCommits    int

	segmentBytes int64 // of the downloaded segment
	crowd        int   // downloads at once
	crowdBytes   int64 // of each
}

var (
	fullSizes = sizes{
		rounds: 5, ingestBytes: 420e6, memoryBytes: 512 << 20,
		lightCommits: 300, backlogCommits: 120, liveCommits: 300, segmentBytes: 1 << 30,
		crowd: 50, crowdBytes: 32 << 20,
	}
	smokeSizes = sizes{
		rounds: 1, ingestBytes: 20e6, memoryBytes: 48 << 20,
		lightCommits: 12, backlogCommits: 6, liveCommits: 12, segmentBytes: 24 << 20,
		crowd: 5, crowdBytes: 5 << 20,
	}
)

func main() {
	if done, err := playChild(); done {
		exit(err)
	}
	var (
		doc     = flag.String("doc", "", "`file` to write the table into, between its markers; empty: standard output only")
		smoke   = flag.Bool("smoke", false, "tiny sizes: whether it runs, not how fast")
		only    = flag.String("only", "", "one `part`: ingest, memory, cluster or download")
		profile = flag.String("cpuprofile", "", "`file` for a processor profile: of the first ingest round, or with -only download of the receiver")
		data    = flag.String("data", "../shared/data", "`directory` with flights.ndjson.gz")
	)
	flag.Parse()
	b := &bench{sizes: fullSizes, only: *only, profile: *profile, began: time.Now()}
	if *smoke {
		b.sizes = smokeSizes
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := b.run(ctx, filepath.Join(*data, "flights.ndjson.gz"), *doc)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench is one run.
type bench struct {
	sizes
	only    string
	profile string
	began   time.Time
	dir     string // scratch, on the disk that is measured
	rows    rowSet
	table   table
}

func (b *bench) run(ctx context.Context, data, doc string) (err error) {
	if b.dir, err = os.MkdirTemp("", "shoal-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.rows, err = loadRows(data); err != nil {
		return err
	}
	if b.table.machine, err = describeMachine(ctx, b.dir); err != nil {
		return err
	}
	b.table.rows = b.rows.String()
	b.table.smoke = b.sizes == smokeSizes
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.table.took = time.Since(b.began)
	b.table.write(os.Stdout)
	if doc == "" {
		return nil
	}
	return b.table.writeInto(doc)
}

// measure runs the parts one after another, so that none is in another's way.
func (b *bench) measure(ctx context.Context) error {
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"ingest", b.measureIngest},
		{"memory", b.measureMemory},
		{"cluster", b.measureCluster},
		{"download", b.measureDownload},
	} {
		if b.only != "" && b.only != part.name {
			continue
		}
		b.table.load = loadNow()
		fmt.Fprintf(os.Stderr, "%s (load %.1f) …\n", part.name, b.table.load)
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}
