package sim

import (
	"sort"

	"github.com/shoalstore/shoal/stream"
)

// topic is the stream: a producer appends to its partitions, at offsets that rise
// and have gaps, and the front may be trimmed.
type topic struct {
	w          *world
	epoch      string
	partitions []*topicPartition
	down       bool // no broker answers
}

type topicPartition struct {
	rows     []row
	earliest int64 // below it, rows are gone for readers
	end      int64 // the next offset
}

// row is a row without its bytes: what it says follows from where it is.
type row struct {
	offset int64
	bytes  int64
}

func newTopic(w *world, partitions int) *topic {
	t := &topic{w: w, epoch: "sim-1"}
	for range partitions {
		t.partitions = append(t.partitions, &topicPartition{})
	}
	return t
}

// produce appends n rows to a partition. Offsets without rows lie between them, and for a
// while at the end, as those of transactions do in Kafka: who has read so far stands behind
// them.
func (t *topic) produce(partition, n int, gaps float64) {
	p := t.partitions[partition]
	for range n {
		if t.w.chance(gaps) {
			p.end += 1 + t.w.rnd.Int63n(3)
			t.w.count.faults["gap in the offsets"]++
		}
		p.rows = append(p.rows, row{offset: p.end, bytes: 50 + t.w.rnd.Int63n(200)})
		p.end++
	}
	if t.w.chance(gaps) {
		p.end += 1 + t.w.rnd.Int63n(3)
		t.w.count.faults["gap at the end of the stream"]++
	}
}

// from is the index of the first row at or past offset.
func (p *topicPartition) from(offset int64) int {
	return sort.Search(len(p.rows), func(i int) bool { return p.rows[i].offset >= offset })
}

// read returns up to n rows from offset on, and the next-fetch position.
func (p *topicPartition) read(offset int64, n int) (rows []row, next int64) {
	i := p.from(offset)
	rows = p.rows[i:min(i+n, len(p.rows))]
	if i+n >= len(p.rows) {
		return rows, p.end
	}
	return rows, rows[len(rows)-1].offset + 1
}

// between are the rows of [start, end), whatever was trimmed since.
func (p *topicPartition) between(start, end int64) []row { return p.rows[p.from(start):p.from(end)] }

// list is what the stream says of its partitions.
func (t *topic) list() (all []stream.Partition) {
	for i, p := range t.partitions {
		all = append(all, stream.Partition{Partition: int32(i), Epoch: t.epoch, Earliest: p.earliest, End: p.end})
	}
	return all
}
