package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/host"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"
)

// machine is where and when something was measured.
type machine struct {
	processor, memory, kernel, fileSystem, disk string
	commit, when, load                          string
}

// describeMachine looks at the machine, and at the disk that dir is on.
func describeMachine(ctx context.Context, dir string) (m machine, err error) {
	m.processor = fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.GOARCH)
	if info, err := cpu.InfoWithContext(ctx); err == nil && len(info) > 0 {
		m.processor = fmt.Sprintf("%s, %d cores", strings.TrimSpace(info[0].ModelName), runtime.NumCPU())
	}
	if v, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		m.memory = fmt.Sprintf("%.0f GiB", float64(v.Total)/(1<<30))
	}
	if v, err := host.KernelVersionWithContext(ctx); err == nil {
		m.kernel = runtime.GOOS + " " + v
	}
	m.fileSystem = fileSystemOf(ctx, dir)
	if m.disk, err = measureDisk(dir); err != nil {
		return m, err
	}
	m.commit = commitNow(ctx)
	m.when = time.Now().UTC().Format("2006-01-02 15:04 UTC")
	if a, err := load.AvgWithContext(ctx); err == nil {
		m.load = fmt.Sprintf("%.1f, %.1f, %.1f (1, 5, 15 min)", a.Load1, a.Load5, a.Load15)
	}
	return m, nil
}

// fileSystemOf is the type of the file system that dir is on: of the mount
// point with the longest path above it.
func fileSystemOf(ctx context.Context, dir string) string {
	mounts, err := disk.PartitionsWithContext(ctx, true)
	if err != nil {
		return "unknown"
	}
	best, kind := -1, "unknown"
	for _, p := range mounts {
		rel, err := filepath.Rel(p.Mountpoint, dir)
		if err == nil && filepath.IsLocal(rel) && len(p.Mountpoint) > best {
			best, kind = len(p.Mountpoint), p.Fstype
		}
	}
	return kind
}

// measureDisk says what the disk does by itself, which no figure that ends with
// an fsync can be better than.
func measureDisk(dir string) (string, error) {
	f, err := os.Create(filepath.Join(dir, "disk"))
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var syncs []float64
	for range 200 {
		_, werr := f.Write(make([]byte, 4096))
		began := time.Now()
		if err := errors.Join(werr, f.Sync()); err != nil {
			return "", err
		}
		syncs = append(syncs, time.Since(began).Seconds()*1e3)
	}
	const blocks, block = 64, 4 << 20
	data := make([]byte, block)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	began := time.Now()
	for range blocks {
		if _, err := f.Write(data); err != nil {
			return "", err
		}
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	return fmt.Sprintf("fsync of 4 KiB p50 %.2f ms, p99 %.2f ms; 256 MiB written and fsynced at %.0f MB/s",
		percentile(syncs, 0.5), percentile(syncs, 0.99), blocks*block/1e6/time.Since(began).Seconds()), nil
}

// commitNow is the commit that the working directory is at.
func commitNow(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	at := strings.TrimSpace(string(out))
	if dirty, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output(); err == nil && len(dirty) > 0 {
		at += " with changes"
	}
	return at
}

// loadNow is the load of the last minute; what ran just before counts in it.
func loadNow() float64 {
	a, err := load.Avg()
	if err != nil {
		return 0
	}
	return a.Load1
}
