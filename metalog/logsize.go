package metalog

import "sort"

// bytesFrom is how many bytes of frames the log holds from offset on: all of them from
// an offset before its start, none from one past its end.
func (l *Log) bytesFrom(offset int64) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.files) - 1; i >= 0; i-- {
		f := l.files[i]
		if f.start.Offset <= offset {
			return n + f.bytesFrom(int(offset-f.start.Offset))
		}
		n += f.bytesFrom(0)
	}
	return n
}

// offsetBefore is the largest offset with at least n bytes of frames after it; the
// log's start, when it does not hold as much.
func (l *Log) offsetBefore(n int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n <= 0 {
		return l.end.Offset
	}
	for i := len(l.files) - 1; i >= 0; i-- {
		f := l.files[i]
		if all := f.bytesFrom(0); all < n {
			n -= all
			continue
		}
		// The first batch from which on there are fewer; the one before it is the last
		// from which on there are enough.
		k := sort.Search(len(f.pos), func(k int) bool { return f.bytesFrom(k) < n })
		return f.start.Offset + int64(k) - 1
	}
	return l.files[0].start.Offset
}

// bytesFrom is the size of the file's frames from its i-th on.
func (f *logFile) bytesFrom(i int) int64 {
	if i >= len(f.pos) {
		return 0
	}
	return f.size - f.pos[i]
}
