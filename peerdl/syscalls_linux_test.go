package peerdl

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel sends the file: the system calls of a server in a process of its own
// are counted, while it serves over a real connection. Through a middleware that
// wraps the writer not a byte goes that way, so this test would tell.
func TestServeSendsBySendfileSystemCalls(t *testing.T) {
	const size = 3<<20 + 5
	fsys := mustOS(t)
	b := newBlob(t, fsys, size)
	for _, test := range []struct {
		name  string
		job   serveJob
		query string
		want  int64 // bytes by sendfile
	}{
		// net/http writes the first 512 bytes itself, with the header.
		{"whole", serveJob{}, "", size - 512},
		{"a chunk", serveJob{}, "?position=5&maxBytes=2000000", 2_000_000 - 512},
		{"with a limit", serveJob{Rate: 64 << 20}, "", size - 512},
		{"with a small limit", serveJob{Rate: 2 << 20}, "?position=5&maxBytes=2000000", 2_000_000 - 512},
		{"behind a middleware that wraps the writer", serveJob{Wrap: true}, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.job.Dir = fsys.String()
			calls := traced(t, newChild(t, childJob{Serve: &test.job}), func(url string) error {
				resp, err := http.Get(url + test.query)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				n, err := io.Copy(io.Discard, resp.Body)
				if err == nil && n != resp.ContentLength {
					err = fmt.Errorf("%d bytes of %d", n, resp.ContentLength)
				}
				return err
			})
			sent := calls[unix.SYS_SENDFILE]
			t.Logf("sendfile: %d bytes in %d calls; write: %d bytes in %d calls",
				sent.bytes, sent.calls, calls[unix.SYS_WRITE].bytes, calls[unix.SYS_WRITE].calls)
			if sent.bytes != test.want {
				t.Errorf("%d bytes went by sendfile, want %d of %d", sent.bytes, test.want, b.Size())
			}
		})
	}
}

type callCount struct{ calls, bytes int64 }

// traced starts the child, does what is to be done with it, ends it, and returns
// the system calls that it made, all its threads together.
func traced(t *testing.T, c *child, do func(url string) error) map[uint64]callCount {
	t.Helper()
	type result struct {
		calls map[uint64]callCount
		err   error
	}
	done := make(chan result, 1)
	go func() {
		// The tracer is a thread, not a process.
		runtime.LockOSThread()
		c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
		if err := c.Start(); err != nil {
			done <- result{err: fmt.Errorf("start: %w", err)}
			return
		}
		calls, err := countCalls(c.Process.Pid)
		done <- result{calls, err}
	}()
	spoken := make(chan error, 1)
	go func() {
		var url string
		err := c.hear(&url)
		if err == nil {
			err = do(url)
		}
		c.stdin.Close()
		spoken <- err
	}()
	r := <-done
	if errors.Is(r.err, unix.EPERM) || errors.Is(r.err, unix.EIO) || errors.Is(r.err, unix.ENOSYS) {
		c.stdin.Close()
		t.Skipf("system calls cannot be counted here, ptrace says: %v", r.err)
	}
	if err := errors.Join(r.err, <-spoken); err != nil {
		t.Fatal(err)
	}
	return r.calls
}

// countCalls follows a process that was started to be traced, to its end.
func countCalls(pid int) (map[uint64]callCount, error) {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return nil, err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return nil, err
	}
	calls, entered := map[uint64]callCount{}, map[int]uint64{}
	for thread, signal := pid, 0; ; {
		// A thread that was killed meanwhile is not there to be set going.
		if err := unix.PtraceSyscall(thread, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, err
		}
		var err error
		for thread, ws = 0, 0; thread != pid && !ws.Stopped(); { // a thread that ended is not, either
			thread, err = unix.Wait4(-1, &ws, unix.WALL, nil)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return nil, err
			}
		}
		if !ws.Stopped() {
			return calls, nil // the process has ended
		}
		signal = 0
		switch s := ws.StopSignal(); {
		case s == unix.SIGTRAP|0x80:
			// The end of the process kills its other threads where they have stopped.
			if err := note(thread, calls, entered); err != nil && !errors.Is(err, unix.ESRCH) {
				return nil, err
			}
		case s != unix.SIGTRAP && s != unix.SIGSTOP: // these are of the tracing
			signal = int(s)
		}
	}
}

// syscallInfo is the kernel's struct ptrace_syscall_info.
type syscallInfo struct {
	op     uint8
	_      [3]uint8
	arch   uint32
	ip, sp uint64
	// At the entry the number of the call, at its exit what it returned.
	value uint64
	_     [6]uint64
}

const (
	infoEntry = 1
	infoExit  = 2
)

func note(thread int, calls map[uint64]callCount, entered map[int]uint64) error {
	var info syscallInfo
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return errno
	}
	switch info.op {
	case infoEntry:
		entered[thread] = info.value
	case infoExit:
		c := calls[entered[thread]]
		c.calls++
		c.bytes += max(int64(info.value), 0)
		calls[entered[thread]] = c
	}
	return nil
}
