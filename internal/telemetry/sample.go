package telemetry

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/net"
	"github.com/shirou/gopsutil/v4/process"
)

// sensors is what is read of the machine; a test has its own.
type sensors struct {
	cpus      func(context.Context) ([]cpu.TimesStat, error)
	disks     func(context.Context) (map[string]disk.IOCountersStat, error)
	nets      func(context.Context) ([]net.IOCountersStat, error)
	pids      func(context.Context) ([]int32, error)
	processOf func(ctx context.Context, pid int32) (processStat, error)
}

// processStat is what a process's row is made of.
type processStat struct {
	name     string
	cpuSec   float64 // user and system
	rssBytes uint64
	threads  int32
}

func machine() sensors {
	return sensors{
		cpus: func(ctx context.Context) ([]cpu.TimesStat, error) { return cpu.TimesWithContext(ctx, true) },
		disks: func(ctx context.Context) (map[string]disk.IOCountersStat, error) {
			return disk.IOCountersWithContext(ctx)
		},
		nets:      func(ctx context.Context) ([]net.IOCountersStat, error) { return net.IOCountersWithContext(ctx, true) },
		pids:      process.PidsWithContext,
		processOf: readProcess,
	}
}

// readProcess fails as a whole if any part cannot be read: the process may have
// gone in between, and half a row says nothing.
func readProcess(ctx context.Context, pid int32) (s processStat, err error) {
	p := process.Process{Pid: pid}
	if s.name, err = p.NameWithContext(ctx); err != nil {
		return s, err
	}
	times, err := p.TimesWithContext(ctx)
	if err != nil {
		return s, err
	}
	memory, err := p.MemoryInfoWithContext(ctx)
	if err != nil {
		return s, err
	}
	s.cpuSec, s.rssBytes = times.User+times.System, memory.RSS
	s.threads, err = p.NumThreadsWithContext(ctx)
	return s, err
}

// collector remembers one sample, to tell rates from counters.
type collector struct {
	host string
	read sensors

	at   time.Time
	cpu  map[string]cpu.TimesStat
	proc map[int32]processStat
}

func newCollector(host string, read sensors) *collector {
	return &collector{host: host, read: read}
}

// collect takes a sample. What cannot be read is not in it.
func (c *collector) collect(ctx context.Context, now time.Time) []Row {
	var rows []Row
	rows = c.cpus(ctx, now, rows)
	rows = c.disks(ctx, now, rows)
	rows = c.nets(ctx, now, rows)
	rows = c.processes(ctx, now, rows)
	c.at = now
	return rows
}

func (c *collector) cpus(ctx context.Context, now time.Time, rows []Row) []Row {
	stats, err := c.read.cpus(ctx)
	if err != nil {
		return rows
	}
	before := c.cpu
	c.cpu = make(map[string]cpu.TimesStat, len(stats))
	for _, s := range stats {
		row := newRow(c.host, KindCPU, s.CPU, now)
		if was, ok := before[s.CPU]; ok {
			cpuShares(&row, was, s)
		}
		c.cpu[s.CPU] = s
		rows = append(rows, row)
	}
	return rows
}

// cpuShares sets the percentages of the time between two readings. Idle time is
// known to go back a little on some kernels; a share is never outside 0 to 100.
func cpuShares(row *Row, was, is cpu.TimesStat) {
	total := busySec(is) - busySec(was) + is.Idle - was.Idle + is.Iowait - was.Iowait
	if total <= 0 {
		return
	}
	share := func(sec float64) *float64 { return percent(min(max(sec/total, 0), 1)) }
	row.BusyPercent = share(busySec(is) - busySec(was))
	row.UserPercent = share(is.User + is.Nice - was.User - was.Nice)
	row.SystemPercent = share(is.System + is.Irq + is.Softirq - was.System - was.Irq - was.Softirq)
	row.IOWaitPercent = share(is.Iowait - was.Iowait)
}

// busySec leaves out guest time, which user time contains.
func busySec(s cpu.TimesStat) float64 {
	return s.User + s.System + s.Nice + s.Irq + s.Softirq + s.Steal
}

func (c *collector) disks(ctx context.Context, now time.Time, rows []Row) []Row {
	stats, err := c.read.disks(ctx)
	if err != nil {
		return rows
	}
	first := len(rows)
	for name, s := range stats {
		row := newRow(c.host, KindDisk, name, now)
		row.ReadBytes, row.WriteBytes = counter(s.ReadBytes), counter(s.WriteBytes)
		row.ReadOps, row.WriteOps = counter(s.ReadCount), counter(s.WriteCount)
		rows = append(rows, row)
	}
	slices.SortFunc(rows[first:], func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

func (c *collector) nets(ctx context.Context, now time.Time, rows []Row) []Row {
	stats, err := c.read.nets(ctx)
	if err != nil {
		return rows
	}
	for _, s := range stats {
		row := newRow(c.host, KindNet, s.Name, now)
		row.RecvBytes, row.SentBytes = counter(s.BytesRecv), counter(s.BytesSent)
		row.RecvErrors, row.SentErrors = counter(s.Errin), counter(s.Errout)
		rows = append(rows, row)
	}
	return rows
}

func (c *collector) processes(ctx context.Context, now time.Time, rows []Row) []Row {
	pids, err := c.read.pids(ctx)
	if err != nil {
		return rows
	}
	before := c.proc
	c.proc = make(map[int32]processStat, len(pids))
	for _, pid := range pids {
		s, err := c.read.processOf(ctx, pid)
		if err != nil {
			continue
		}
		row := newRow(c.host, KindProcess, s.name, now)
		row.PID, row.Threads, row.RSSBytes = &pid, &s.threads, counter(s.rssBytes)
		// Less CPU time than before under a number: another process has it.
		if was, ok := before[pid]; ok && s.cpuSec >= was.cpuSec && now.After(c.at) {
			row.BusyPercent = percent((s.cpuSec - was.cpuSec) / now.Sub(c.at).Seconds())
		}
		c.proc[pid] = s
		rows = append(rows, row)
	}
	return rows
}

// percent turns a share into a percentage with two decimals.
func percent(share float64) *float64 {
	p := math.Round(share*1e4) / 100
	return &p
}

func counter(n uint64) *int64 {
	i := int64(min(n, math.MaxInt64))
	return &i
}
