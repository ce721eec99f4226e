// Package config reads configuration from outside: strict YAML or JSON files
// with human units, every fault reported at once with field and value.
//
// It owns the units (Bytes, Duration), the strict decoder (Decode) and the
// list of faults (Faults); what a setting means belongs to the package that
// has it. Start reading at decode.go.
package config

import "time"

// Bytes is a size; it prints and parses as "256MiB" (binary) or "10MB"
// (decimal) or a plain number of bytes.
type Bytes int64

// Duration is a time.Duration that prints and parses as "1h30m", in JSON too.
type Duration time.Duration
