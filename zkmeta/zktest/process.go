package zktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shoalstore/shoal/internal/httpx/httpxtest"
)

// stopMax is how long Stop waits for a server to end by itself.
const stopMax = 10 * time.Second

// errPortTaken ends a start whose port somebody took in between.
var errPortTaken = errors.New("a port was taken by somebody else")

// Process is one ZooKeeper server. It can be killed and started again, with the
// same files and ports. Its methods may be called from several goroutines.
type Process struct {
	cfg  Config
	dir  string
	self member

	mu     sync.Mutex
	run    *run // nil: never started
	closed bool // the ports are no longer ours
}

// run is one life of a server.
type run struct {
	pid   int
	asked bool          // we ended it; otherwise it died
	ended chan struct{} // closed at its end
	err   error         // how it ended; read after ended
}

// Open runs one standalone server and waits until it serves or ctx ends, a
// minute at most. The caller owns the process and must Close it.
func Open(ctx context.Context, cfg Config) (*Process, error) {
	g, err := OpenGroup(ctx, cfg, 1)
	if err != nil {
		return nil, err
	}
	return g.Processes[0], nil
}

// Addr is where clients connect, as host:port.
func (p *Process) Addr() string { return httpxtest.Loopback(p.self.client) }

// ID is the number of the server in its ensemble, 1 up.
func (p *Process) ID() int { return p.self.id }

// DataDir holds the server's snapshots and transaction logs.
func (p *Process) DataDir() string { return filepath.Join(p.dir, "data") }

// Log is the file with everything that the server printed in all its lives.
func (p *Process) Log() string { return filepath.Join(p.dir, "server.log") }

// PID is the process id, 0 while the server is down.
func (p *Process) PID() int {
	if r := p.current(); r != nil && !r.isOver() {
		return r.pid
	}
	return 0
}

// Launch starts a server that is down and does not wait until it serves: in an
// ensemble that may need others.
func (p *Process) Launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return fmt.Errorf("server %d is closed", p.self.id)
	case p.run != nil && !p.run.isOver():
		return fmt.Errorf("server %d is already running", p.self.id)
	}
	log, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("java", p.cfg.command(p.dir)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	r := &run{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel kills the server when the thread that started it ends, so that
		// thread waits for it and does nothing else.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			r.err = cmd.Wait()
			close(r.ended)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting ZooKeeper: %w", err)
	}
	r.pid = cmd.Process.Pid
	p.run = r
	return nil
}

// Restart starts a server that is down and waits until it serves.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	return p.WaitServing(ctx)
}

// Kill ends the server with SIGKILL, as a power cut of its process, and waits.
// Killing a server that is down does nothing.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, 0) }

// Stop ends the server with SIGTERM and waits, 10 s at most; then it kills.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM, stopMax) }

// Pause freezes the server (SIGSTOP): its connections stay open and the kernel
// accepts new ones, but nothing answers. It returns when the last thread stands
// still (Linux; elsewhere when the signal is sent).
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r := p.current()
	if err := awaitStopped(r.pid); err != nil {
		return fmt.Errorf("server %d (pid %d) does not stand still: %w", p.self.id, r.pid, err)
	}
	return nil
}

// Resume ends a pause (SIGCONT).
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Close kills the server if it is up, and gives its ports back. It returns an
// error with the end of the log if the server had died by itself before.
func (p *Process) Close() error {
	died := p.died()
	err := p.Kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.self.release()
	}
	return errors.Join(died, err)
}

// died returns why a server that nobody ended is down, nil otherwise.
func (p *Process) died() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run
	if r == nil || r.asked || !r.isOver() {
		return nil
	}
	tail := p.Tail(40)
	if strings.Contains(tail, "java.net.BindException") {
		return fmt.Errorf("server %d (%s): %w\n%s", p.self.id, p.Addr(), errPortTaken, tail)
	}
	return fmt.Errorf("server %d (%s) died by itself (%v); its log ends:\n%s", p.self.id, p.Addr(), r.err, tail)
}

// Tail returns the last lines of the log, or why there are none.
func (p *Process) Tail(lines int) string {
	b, err := os.ReadFile(p.Log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (r *run) isOver() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// end sends a signal that ends the server, and SIGKILL after a grace.
func (p *Process) end(sig syscall.Signal, grace time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.run
	if r == nil || r.isOver() {
		return nil
	}
	r.asked = true
	if err := r.kill(sig); err != nil {
		return err
	}
	if sig != syscall.SIGKILL {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-r.ended:
			return nil
		case <-timer.C:
		}
		if err := r.kill(syscall.SIGKILL); err != nil {
			return err
		}
	}
	<-r.ended
	return nil
}

func (p *Process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.isOver() {
		return fmt.Errorf("server %d is down: no %v", p.self.id, sig)
	}
	return p.run.kill(sig)
}

// kill signals the whole process group. One that has just ended is no error.
func (r *run) kill(sig syscall.Signal) error {
	if err := syscall.Kill(-r.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%v to ZooKeeper (pid %d): %w", sig, r.pid, err)
	}
	return nil
}
