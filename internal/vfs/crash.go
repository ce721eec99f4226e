package vfs

import (
	"errors"
	"fmt"
	"iter"
	"math/rand"
	"sync"
)

// ErrPowerCut is what every operation gets after the power cut that
// CrashPoints made.
var ErrPowerCut = errors.New("vfs: power cut")

// Crash is one outcome of a run of CrashPoints.
type Crash struct {
	// N counts the durable operations from 1; the power went before the N-th
	// took effect. In the last outcomes it is one more than the run had.
	N int
	// Op is that operation, zero when the run came to its end.
	Op Op
	// Done says that the run came to its end and the power went after it:
	// what the work promised must be on Disk.
	Done bool
	// Kept says what the disk kept of what was not fsynced: nothing, all, or a
	// random part, torn.
	Kept string
	// Disk is what a start after the power cut finds. It is the caller's own.
	Disk *Mem
	// Err is what the work returned.
	Err error
}

func (c Crash) String() string {
	if c.Done {
		return fmt.Sprintf("after the end, kept %s", c.Kept)
	}
	return fmt.Sprintf("before durable operation %d (%s), kept %s", c.N, c.Op, c.Kept)
}

// randomParts is how many random parts of the unsynced state are tried at each
// crash, besides nothing and all of it.
const randomParts = 3

// CrashPoints runs work on clones of start, again and again: the power goes
// just before its first, its second, … durable operation (Kind.Durable), until
// a run reaches its end; then it goes after the end. For each of these moments
// it yields several disks that a restart could find. The loop's body reopens
// them and checks:
//
//	for crash := range vfs.CrashPoints(disk, func(fs vfs.FS) error {
//		return doWork(fs)
//	}) {
//		t.Run(crash.String(), func(t *testing.T) { reopenAndCheck(t, crash.Disk) })
//	}
//
// After the cut the work gets ErrPowerCut from every operation and must come
// back; work may use goroutines, but must have waited for them.
func CrashPoints(start *Mem, work func(FS) error) iter.Seq[Crash] {
	return func(yield func(Crash) bool) {
		for n := 1; ; n++ {
			outcomes, done := crashAt(start, work, n)
			for _, c := range outcomes {
				if !yield(c) {
					return
				}
			}
			if done {
				return
			}
		}
	}
}

// crashAt is one run, with the power going before durable operation n.
func crashAt(start *Mem, work func(FS) error, n int) (outcomes []Crash, done bool) {
	disk := start.Clone()
	var (
		mu    sync.Mutex
		count int
		at    Op
		disks []*Mem // set once the power is gone
	)
	err := work(WithFaults(disk, func(op Op) error {
		mu.Lock()
		defer mu.Unlock()
		if disks == nil && op.Kind.Durable() {
			if count++; count == n {
				at, disks = op, crashDisks(disk, n)
			}
		}
		if disks != nil {
			return ErrPowerCut
		}
		return nil
	}))
	mu.Lock()
	defer mu.Unlock()
	done = disks == nil
	if done {
		disks = crashDisks(disk, n)
	}
	for i, d := range disks {
		kept := fmt.Sprintf("part %d", i-1)
		switch i {
		case 0:
			kept = "nothing"
		case 1:
			kept = "all"
		}
		outcomes = append(outcomes, Crash{N: n, Op: at, Done: done, Kept: kept, Disk: d, Err: err})
	}
	return outcomes, done
}

func crashDisks(m *Mem, n int) []*Mem {
	disks := []*Mem{m.CrashClone(nil), m.Clone()}
	for i := range randomParts {
		disks = append(disks, m.CrashClone(rand.New(rand.NewSource(int64(n*randomParts+i)))))
	}
	return disks
}
