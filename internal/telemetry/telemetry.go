// Package telemetry turns this machine's state into rows, so that a newcomer
// who has no data at hand sees live ones: one JSON object for each CPU, disk,
// network interface and process, each second.
//
// It owns the shape of those rows (row.go) and nothing of where they go: Run
// hands each to a function. What it reads is in sample.go. Start reading here.
package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Run emits the rows of a sample at once, and then of one each period, until
// ctx ends (it returns nil) or emit fails (it returns that error). emit may keep
// the row; it is one line without its end.
//
// What cannot be read at the moment, such as a process that has gone, is left
// out; nothing of the machine makes Run fail.
func Run(ctx context.Context, every time.Duration, emit func(row []byte) error) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("telemetry: host name: %w", err)
	}
	return run(ctx, every, newCollector(host, machine()), emit)
}

func run(ctx context.Context, every time.Duration, c *collector, emit func(row []byte) error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for _, row := range c.collect(ctx, time.Now()) {
			if ctx.Err() != nil {
				return nil
			}
			text, err := json.Marshal(row)
			if err != nil {
				return fmt.Errorf("telemetry: %w", err)
			}
			if err := emit(text); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
