// Command bench measures Shoal on the machine that it runs on and writes the
// tables of docs/benchmarks.md. run.sh, which is `make bench`, calls it.
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
// who can do that; many at once), link.go with loss.go (the same over bad links),
// upload.go (to S3, beside the SDK's own). machine.go and table.go describe
// and print. Parts that must have a process to themselves run in child.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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

	linkRate  int64         // of the link that is cut, bytes a second
	cutEvery  time.Duration // its connections
	lossBytes int64         // of the segment that comes with packets lost
}

var (
	fullSizes = sizes{
		rounds: 5, ingestBytes: 420e6, memoryBytes: 512 << 20,
		lightCommits: 300, backlogCommits: 120, liveCommits: 300, segmentBytes: 1 << 30,
		crowd: 50, crowdBytes: 32 << 20,
		linkRate: 25e6, cutEvery: 10 * time.Second, lossBytes: 128 << 20,
	}
	smokeSizes = sizes{
		rounds: 1, ingestBytes: 20e6, memoryBytes: 48 << 20,
		lightCommits: 12, backlogCommits: 6, liveCommits: 12, segmentBytes: 24 << 20,
		crowd: 5, crowdBytes: 5 << 20,
		linkRate: 25e6, cutEvery: 300 * time.Millisecond, lossBytes: 8 << 20,
	}
)

func main() {
	if done, err := playChild(); done {
		exit(err)
	}
	var (
		doc       = flag.String("doc", "", "`file` to write the tables into, each between its markers, of which all parts are measured; empty: standard output only")
		smoke     = flag.Bool("smoke", false, "tiny sizes: whether it runs, not how fast")
		only      = flag.String("only", "", "one `part`: ingest, memory, cluster, download, links or upload; or all of one table: job or moving")
		profile   = flag.String("cpuprofile", "", "`file` for a processor profile: of the first ingest round, or with -only download of the receiver")
		data      = flag.String("data", "../shared/data", "`directory` with flights.ndjson.gz")
		s3gateway = flag.String("s3gateway", "", "the `program` of internal/s3gateway; empty: no upload")
		s3bench   = flag.String("s3bench", "", "the `program` of internal/s3bench; empty: no upload")
	)
	flag.Parse()
	b := &bench{sizes: fullSizes, only: *only, profile: *profile, programs: programs{*s3gateway, *s3bench}}
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
	only     string
	profile  string
	programs programs
	dir      string // scratch, on the disk that is measured
	rows     rowSet
	table    table // the one that is being measured
}

// part is something that is measured by itself.
type part struct {
	name string
	run  func(context.Context) error
}

func (b *bench) run(ctx context.Context, data, doc string) (err error) {
	if b.dir, err = os.MkdirTemp("", "shoal-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	known := false
	for _, t := range []struct {
		name  string
		parts []part
	}{
		{jobTable, []part{{"ingest", b.measureIngest}, {"memory", b.measureMemory}, {"cluster", b.measureCluster}}},
		{movingTable, []part{{"download", b.measureDownload}, {"links", b.measureLinks}, {"upload", b.measureUpload}}},
	} {
		parts := wanted(t.parts, t.name, b.only)
		if len(parts) == 0 {
			continue
		}
		known = true
		b.table = table{name: t.name, smoke: b.sizes == smokeSizes}
		if t.name == jobTable {
			if b.rows, err = loadRows(data); err != nil {
				return err
			}
			b.table.rows = b.rows.String()
		}
		if err := b.measure(ctx, parts); err != nil {
			return err
		}
		b.table.write(os.Stdout)
		if doc != "" && len(parts) == len(t.parts) {
			if err := b.table.writeInto(doc); err != nil {
				return err
			}
		}
	}
	if !known {
		return fmt.Errorf("there is no part %q", b.only)
	}
	return nil
}

// wanted are the parts of a table that -only leaves.
func wanted(parts []part, table, only string) []part {
	if only == "" || only == table {
		return parts
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.name != only })
}

// measure runs the parts one after another, so that none is in another's way.
func (b *bench) measure(ctx context.Context, parts []part) (err error) {
	began := time.Now()
	if b.table.machine, err = describeMachine(ctx, b.dir); err != nil {
		return err
	}
	for _, part := range parts {
		b.table.load = loadNow()
		fmt.Fprintf(os.Stderr, "%s (load %.1f) …\n", part.name, b.table.load)
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	b.table.took = time.Since(began)
	return nil
}
