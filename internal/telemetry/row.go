package telemetry

import (
	"time"

	"github.com/shoalstore/shoal/segment"
)

// The kinds of rows.
const (
	KindCPU     = "cpu"
	KindDisk    = "disk"
	KindNet     = "net"
	KindProcess = "process"
)

// TimestampField is the column that is a row's time, KeyField the one to spread
// rows over partitions by: host and kind, so that the rows of a kind stay in order.
const (
	TimestampField = "time"
	KeyField       = "key"
)

// Row is one thing at one moment. A field that has no meaning for its kind, or
// is not known yet, is null in the columns and absent in the JSON.
type Row struct {
	Time string `json:"time"` // RFC 3339 in UTC, milliseconds
	Key  string `json:"key"`  // "<host>/<kind>"
	Host string `json:"host"`
	Kind string `json:"kind"`
	// Name is the CPU's, device's, interface's or program's.
	Name string `json:"name"`
	PID  *int32 `json:"pid,omitempty"` // process

	// BusyPercent is the share of one CPU since the last sample: not idle
	// (cpu), or used by the process, which may be above 100.
	BusyPercent   *float64 `json:"busyPercent,omitempty"`
	UserPercent   *float64 `json:"userPercent,omitempty"`   // cpu
	SystemPercent *float64 `json:"systemPercent,omitempty"` // cpu
	IOWaitPercent *float64 `json:"iowaitPercent,omitempty"` // cpu

	// Counters since the machine, or the interface, came up.
	ReadBytes  *int64 `json:"readBytes,omitempty"`  // disk
	WriteBytes *int64 `json:"writeBytes,omitempty"` // disk
	ReadOps    *int64 `json:"readOps,omitempty"`    // disk
	WriteOps   *int64 `json:"writeOps,omitempty"`   // disk
	RecvBytes  *int64 `json:"recvBytes,omitempty"`  // net
	SentBytes  *int64 `json:"sentBytes,omitempty"`  // net
	RecvErrors *int64 `json:"recvErrors,omitempty"` // net
	SentErrors *int64 `json:"sentErrors,omitempty"` // net

	RSSBytes *int64 `json:"rssBytes,omitempty"` // process
	Threads  *int32 `json:"threads,omitempty"`  // process
}

// Columns declares the columns of the rows. They are fixed, not inferred from
// what this machine happens to have at the start.
func Columns() []segment.Column {
	return []segment.Column{
		{Name: "time", Type: segment.TypeTimestamp},
		{Name: "key", Type: segment.TypeString},
		{Name: "host", Type: segment.TypeString},
		{Name: "kind", Type: segment.TypeString},
		{Name: "name", Type: segment.TypeString},
		{Name: "pid", Type: segment.TypeInt32},
		{Name: "busyPercent", Type: segment.TypeFloat64},
		{Name: "userPercent", Type: segment.TypeFloat64},
		{Name: "systemPercent", Type: segment.TypeFloat64},
		{Name: "iowaitPercent", Type: segment.TypeFloat64},
		{Name: "readBytes", Type: segment.TypeInt64},
		{Name: "writeBytes", Type: segment.TypeInt64},
		{Name: "readOps", Type: segment.TypeInt64},
		{Name: "writeOps", Type: segment.TypeInt64},
		{Name: "recvBytes", Type: segment.TypeInt64},
		{Name: "sentBytes", Type: segment.TypeInt64},
		{Name: "recvErrors", Type: segment.TypeInt64},
		{Name: "sentErrors", Type: segment.TypeInt64},
		{Name: "rssBytes", Type: segment.TypeInt64},
		{Name: "threads", Type: segment.TypeInt32},
	}
}

const timeLayout = "2006-01-02T15:04:05.000Z07:00"

func newRow(host, kind, name string, now time.Time) Row {
	return Row{Time: now.UTC().Format(timeLayout), Key: host + "/" + kind, Host: host, Kind: kind, Name: name}
}
