package e2e

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoalstore/shoal/stream"
)

// producer appends rows to the partition files of a files stream. What it has
// written is the truth that a proof compares with.
type producer struct {
	t     *testing.T
	dir   string
	files []*os.File
	next  []int64 // rows written, by partition
	made  atomic.Int64
	// columns are what a table declares of the rows, and a proof compares.
	columns []column
}

// column is one that a table declares.
type column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// usualColumns are those of row's rows.
var usualColumns = []column{{"id", "int64"}, {"text", "string"}}

// jsonFormat is a table's format with those columns.
func jsonFormat(columns []column) map[string]any {
	return map[string]any{"type": "json", "columns": columns}
}

// newProducer makes the stream <root>/<name> with that many empty partitions.
func newProducer(t *testing.T, root, name string, partitions int) *producer {
	t.Helper()
	p := &producer{t: t, dir: filepath.Join(root, name), next: make([]int64, partitions), columns: usualColumns}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range partitions {
		f, err := os.OpenFile(p.file(int32(i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		p.files = append(p.files, f)
	}
	return p
}

func (p *producer) file(partition int32) string {
	return filepath.Join(p.dir, stream.FileName(partition))
}

// row is the i-th row of a partition: one JSON object, now and then with a long
// text, and now and then none.
func (p *producer) row(partition int32, i int64) []byte {
	if i%101 == 100 {
		return fmt.Appendf(nil, "row %d of %d is not JSON", i, partition)
	}
	text := strings.Repeat("abcdefgh ", int(i*7919%23))
	return fmt.Appendf(nil, `{"id":%d,"text":"%d: %s"}`, i, partition, text)
}

// add appends n rows to each partition.
func (p *producer) add(n int) {
	p.t.Helper()
	for i := range p.files {
		var b bytes.Buffer
		for range n {
			b.Write(p.row(int32(i), p.next[i]))
			b.WriteByte('\n')
			p.next[i]++
		}
		p.write(int32(i), b.Bytes())
	}
	p.made.Add(int64(n * len(p.files)))
}

// raw appends bytes as they are, as one row.
func (p *producer) raw(partition int32, row []byte) {
	p.t.Helper()
	p.write(partition, append(row, '\n'))
	p.next[partition]++
	p.made.Add(1)
}

func (p *producer) write(partition int32, b []byte) {
	p.t.Helper()
	if _, err := p.files[partition].Write(b); err != nil {
		p.t.Errorf("producer: %v", err)
	}
}

// keepAdding appends a few rows to random partitions after each pause, some of
// them in two halves, until stop is called; stop waits for it.
func (p *producer) keepAdding(seed int64, pause time.Duration) (stop func()) {
	rnd, over := rand.New(rand.NewSource(seed)), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			partition := int32(rnd.Intn(len(p.files)))
			for range 1 + rnd.Intn(6) {
				row := append(p.row(partition, p.next[partition]), '\n')
				if cut := rnd.Intn(4 * len(row)); cut < len(row) {
					p.write(partition, row[:cut])
					row = row[cut:]
				}
				p.write(partition, row)
				p.next[partition]++
				p.made.Add(1)
			}
		}
	})
	return func() { close(over); work.Wait() }
}

// ends are the ends of the partitions. The producer must be at rest.
func (p *producer) ends() map[int32]int64 {
	ends := map[int32]int64{}
	for i, n := range p.next {
		ends[int32(i)] = n
	}
	return ends
}

// lines are the rows of a partition as its file has them.
func (p *producer) lines(partition int32) [][]byte {
	p.t.Helper()
	text, err := os.ReadFile(p.file(partition))
	if err != nil {
		p.t.Fatal(err)
	}
	if len(text) == 0 {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}
