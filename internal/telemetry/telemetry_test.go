package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"
	"github.com/shirou/gopsutil/v4/net"
	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestColumnsAreTheFieldsOfARow(t *testing.T) {
	typ := reflect.TypeFor[Row]()
	columns := Columns()
	if len(columns) != typ.NumField() {
		t.Fatalf("%d columns, %d fields", len(columns), typ.NumField())
	}
	types := map[reflect.Type]segment.ColumnType{
		reflect.TypeFor[string]():   segment.TypeString,
		reflect.TypeFor[*int32]():   segment.TypeInt32,
		reflect.TypeFor[*int64]():   segment.TypeInt64,
		reflect.TypeFor[*float64](): segment.TypeFloat64,
	}
	for i, c := range columns {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want := types[f.Type]
		if name == TimestampField {
			want = segment.TypeTimestamp
		}
		if c.Name != name || c.Type != want {
			t.Errorf("column %d is %s %s, the row has %s %s", i, c.Name, c.Type, name, want)
		}
	}
}

// fake is a machine with one thing of each kind, of which process 2 vanishes
// while it is read, and process 3 changes hands.
func fake() sensors {
	n := 0.0
	return sensors{
		cpus: func(context.Context) ([]cpu.TimesStat, error) {
			n++
			return []cpu.TimesStat{{CPU: "cpu0", User: n * 0.25, System: n * 0.25, Idle: n * 0.5}}, nil
		},
		disks: func(context.Context) (map[string]disk.IOCountersStat, error) {
			return map[string]disk.IOCountersStat{"sdb": {ReadBytes: 1}, "sda": {WriteBytes: 2}}, nil
		},
		nets: func(context.Context) ([]net.IOCountersStat, error) {
			return []net.IOCountersStat{{Name: "eth0", BytesRecv: 3, Errout: 4}}, nil
		},
		pids: func(context.Context) ([]int32, error) { return []int32{1, 2, 3}, nil },
		processOf: func(_ context.Context, pid int32) (processStat, error) {
			switch pid {
			case 2:
				return processStat{}, fs.ErrNotExist
			case 3:
				return processStat{name: "other", cpuSec: 10 - n}, nil
			}
			return processStat{name: "init", cpuSec: n * 1.5, rssBytes: 4096, threads: 7}, nil
		},
	}
}

func TestARowForEachThing(t *testing.T) {
	c := newCollector("h", fake())
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.FixedZone("", 3600))
	c.collect(t.Context(), at)
	var got []string
	for _, row := range c.collect(t.Context(), at.Add(time.Second)) {
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(text))
	}
	want := []string{
		`{"time":"2026-01-02T02:04:06.678Z","key":"h/cpu","host":"h","kind":"cpu","name":"cpu0","busyPercent":50,"userPercent":25,"systemPercent":25,"iowaitPercent":0}`,
		`{"time":"2026-01-02T02:04:06.678Z","key":"h/disk","host":"h","kind":"disk","name":"sda","readBytes":0,"writeBytes":2,"readOps":0,"writeOps":0}`,
		`{"time":"2026-01-02T02:04:06.678Z","key":"h/disk","host":"h","kind":"disk","name":"sdb","readBytes":1,"writeBytes":0,"readOps":0,"writeOps":0}`,
		`{"time":"2026-01-02T02:04:06.678Z","key":"h/net","host":"h","kind":"net","name":"eth0","recvBytes":3,"sentBytes":0,"recvErrors":0,"sentErrors":4}`,
		`{"time":"2026-01-02T02:04:06.678Z","key":"h/process","host":"h","kind":"process","name":"init","pid":1,"busyPercent":150,"rssBytes":4096,"threads":7}`,
		`{"time":"2026-01-02T02:04:06.678Z","key":"h/process","host":"h","kind":"process","name":"other","pid":3,"rssBytes":0,"threads":0}`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatCannotBeReadIsLeftOut(t *testing.T) {
	denied := errors.New("permission denied")
	s := fake()
	s.cpus = func(context.Context) ([]cpu.TimesStat, error) { return nil, denied }
	s.disks = func(context.Context) (map[string]disk.IOCountersStat, error) { return nil, denied }
	s.pids = func(context.Context) ([]int32, error) { return nil, denied }
	rows := newCollector("h", s).collect(t.Context(), time.Now())
	if len(rows) != 1 || rows[0].Kind != KindNet {
		t.Fatalf("got %v", rows)
	}
}

func TestRunEmitsOneSampleEachPeriodUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		rows := 0
		err := run(ctx, time.Second, newCollector("h", fake()), func([]byte) error { rows++; return nil })
		if err != nil || rows != 4*6 {
			t.Fatalf("%d rows, %v; want four samples of six", rows, err)
		}
	})
}

func TestRunEndsWhenEmitFails(t *testing.T) {
	full := errors.New("disk full")
	err := run(t.Context(), time.Hour, newCollector("h", fake()), func([]byte) error { return full })
	if !errors.Is(err, full) {
		t.Fatal(err)
	}
}

func TestThisMachineHasRows(t *testing.T) {
	enough := errors.New("enough")
	err := Run(t.Context(), time.Hour, func(row []byte) error {
		var r Row
		if err := json.Unmarshal(row, &r); err != nil {
			return err
		}
		if r.Kind == KindProcess {
			return enough // the last kind of a sample; this test is a process
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
}
