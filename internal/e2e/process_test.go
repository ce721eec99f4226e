package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// process is a controller or a node that can be killed, and started again on
// the same directory.
type process struct {
	t    *testing.T
	name string
	role role
	log  string   // file with the output of all its lives
	env  []string // beside the test's own environment
	url  string   // of this life

	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{} // closed when this life is over
	err    error         // how it ended; after exited
}

// begin starts a life, and returns why it ended if that was before it had an
// URL.
func (p *process) begin() error {
	p.t.Helper()
	if p.alive() {
		p.t.Fatalf("%s is running already", p.name)
	}
	spec, err := json.Marshal(p.role)
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(append(os.Environ(), p.env...), roleEnv+"="+string(spec))
	p.cmd.Stderr = out
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.stdin, p.exited = stdin, make(chan struct{})
	lines := bufio.NewReader(stdout)
	first, _ := lines.ReadString('\n')
	p.url = strings.TrimSpace(first)
	cmd, exited := p.cmd, p.exited
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		p.err = cmd.Wait()
		close(exited)
	}()
	if p.url == "" {
		<-p.exited
		return fmt.Errorf("%s: %w: %s", p.name, p.err, p.lastLine())
	}
	return nil
}

// start starts a life that must have an URL.
func (p *process) start() {
	p.t.Helper()
	if err := p.begin(); err != nil {
		p.t.Fatal(err)
	}
}

// refuses starts a life that must end by itself, with an error that says all of
// want.
func (p *process) refuses(want ...string) {
	p.t.Helper()
	if err := p.begin(); err == nil { // it may have to ask the controller first
		<-p.exited
	}
	said := p.lastLine()
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.ExitCode() != exitError {
		p.t.Errorf("%s ended with %v, want exit status %d", p.name, p.err, exitError)
	}
	for _, w := range want {
		if !strings.Contains(said, w) {
			p.t.Errorf("%s says %q; that should name %q", p.name, said, w)
		}
	}
}

// kill ends a life by SIGKILL.
func (p *process) kill() {
	p.t.Helper()
	if !p.alive() {
		p.t.Errorf("%s was to be killed, and is dead already: %v: %s", p.name, p.err, p.lastLine())
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Errorf("%s ended by itself before the kill: %v: %s", p.name, p.err, p.lastLine())
	}
}

// stop ends a life the way an operator does, and it must end well.
func (p *process) stop() {
	p.t.Helper()
	if !p.alive() {
		p.t.Errorf("%s was to be stopped, and is dead already: %v: %s", p.name, p.err, p.lastLine())
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.exited
	if p.err != nil {
		p.t.Errorf("%s did not stop well: %v: %s", p.name, p.err, p.lastLine())
	}
}

func (p *process) alive() bool {
	if p.exited == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// finish ends what still runs when the test is over, and shows the end of the
// log if it failed.
func (p *process) finish() {
	if p.alive() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	text, err := os.ReadFile(p.log)
	if err != nil && !os.IsNotExist(err) {
		p.t.Error(err)
	}
	// A race does not end a process, and a panic may be what ended one before a
	// kill was to.
	for _, never := range []string{"WARNING: DATA RACE", "\npanic: ", "handler panicked", "\nfatal error: "} {
		if bytes.Contains(text, []byte(never)) {
			p.t.Errorf("the log of %s has %q", p.name, never)
		}
	}
	if p.t.Failed() {
		p.t.Logf("the end of the log of %s:\n%s", p.name, p.tail(80))
	}
}

// lastLine is the last that the process said: its error, if it ended by one.
func (p *process) lastLine() string { return strings.TrimSpace(p.tail(1)) }

// tail is the end of the log.
func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.SplitAfter(bytes.TrimRight(text, "\n"), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], nil))
}
