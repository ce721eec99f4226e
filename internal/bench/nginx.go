package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// nginx is a server to compare with: one process that sends one file by sendfile,
// as the kernel's page cache has it.
type nginx struct {
	cmd   *exec.Cmd
	proc  *process.Process
	ended chan error
	url   string
}

// Everything that it would write goes into its directory.
const nginxConf = `daemon off;
master_process off;
pid %[1]s/pid;
error_log %[1]s/error.log;
events {}
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  sendfile_max_chunk 0;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  server {
    listen %[2]s;
    root %[3]s;
  }
}
`

// startNginx serves a file, or says errNoNginx.
func startNginx(ctx context.Context, dir, file string) (*nginx, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errNoNginx
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, addr, filepath.Dir(file)), 0o644); err != nil {
		return nil, err
	}
	n := &nginx{cmd: exec.CommandContext(ctx, path, "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", conf), ended: make(chan error, 1)}
	n.cmd.Stderr = os.Stderr
	n.url = "http://" + addr + "/" + filepath.Base(file)
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { n.ended <- n.cmd.Wait() }()
	if n.proc, err = process.NewProcessWithContext(ctx, int32(n.cmd.Process.Pid)); err == nil {
		err = n.wait(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("nginx: %w", err), n.stop())
	}
	return n, nil
}

// wait waits until it answers.
func (n *nginx) wait(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		res, err := http.Head(n.url)
		if err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("HEAD %s: %s", n.url, res.Status)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-n.ended:
			n.ended <- err
			return fmt.Errorf("it ended: %w", err)
		case <-tick.C:
		}
	}
}

// cpu is its processor time, in steps of the kernel's tick.
func (n *nginx) cpu(ctx context.Context) (time.Duration, error) {
	return processorTime(ctx, n.proc)
}

// processorTime is what another process has taken so far.
func processorTime(ctx context.Context, p *process.Process) (time.Duration, error) {
	t, err := p.TimesWithContext(ctx)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", p.Pid, err)
	}
	return time.Duration((t.User + t.System) * float64(time.Second)), nil
}

func (n *nginx) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-n.ended
	return nil
}
