package zktest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttr puts a server into a process group of its own, and has the kernel
// kill it when the thread that started it ends: a test that panics or is killed
// runs no clean-up.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped waits until every thread of a child that got SIGSTOP stands: the
// signal reaches one thread, which stops the others, and the kernel tells the
// parent when the last of them has. WNOWAIT: pausing twice is no wait for ever.
// ECHILD: it ended instead.
func awaitStopped(pid int) error {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
