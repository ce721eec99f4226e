package devicetest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/shoalstore/shoal/internal/vfs"
	"github.com/shoalstore/shoal/metalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestLog is the behaviour of the log on local files, with one file and with many.
func TestLog(t *testing.T) {
	for name, fileBytes := range map[string]int64{"one file": 0, "a file per batch": 1} {
		t.Run(name, func(t *testing.T) {
			Run(t, Harness{New: func(t *testing.T) metalog.Device {
				l, err := metalog.OpenLog(vfs.NewMem(), metalog.LogOptions{FileBytes: fileBytes})
				if err != nil {
					t.Fatal(err)
				}
				return l
			}})
		})
	}
}
