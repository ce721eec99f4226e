package schedule

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// BackOff is how long a try that failed is put off: Min after the first failure,
// twice as long after each further one, Max at most.
type BackOff struct{ Min, Max time.Duration }

// Next returns the wait after one of d.
func (b BackOff) Next(d time.Duration) time.Duration { return min(max(2*d, b.Min), b.Max) }

// Jitter shortens a wait by up to a half, so that what failed together is not tried
// again together. It draws from the seed alone: the same one gives the same wait.
func Jitter(d time.Duration, seed uint64) time.Duration {
	if d <= 1 {
		return d
	}
	return d - time.Duration(seed%uint64(d/2+1))
}

// Seed mixes what tells one try from another.
func Seed(id []byte, numbers ...int64) uint64 {
	h := fnv.New64a()
	h.Write(id) // never fails
	for _, n := range numbers {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	x := h.Sum64() // FNV alone leaves neighbours close together
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
