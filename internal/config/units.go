// Package config reads configuration from outside: strict YAML or JSON files
// with human units, every fault reported at once with field and value.
//
// It owns the units (Bytes, Duration), the strict decoder (Decode) and the
// list of faults (Faults); what a setting means belongs to the package that
// has it. Start reading at decode.go.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size; it prints and parses as "256MiB" (binary) or "10MB"
// (decimal) or a plain number of bytes. In JSON it is that text, and read from
// a number too; in CBOR it is an integer.
type Bytes int64

// Duration is a time.Duration that prints and parses as "1h30m". In JSON it is
// that text, and read from a number of nanoseconds too; in CBOR it is an
// integer, nanoseconds.
type Duration time.Duration

var (
	errTooLarge = errors.New("too large")
	errNegative = errors.New("must not be negative")
)

// byteUnits are the units of Bytes; where two print a size equally short, the
// earlier does.
var byteUnits = []struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
}

// ParseBytes reads a size: a number, then at once or after spaces a unit (TiB,
// GiB, MiB, KiB, TB, GB, MB, KB, B; none is B) in any case. A fraction ("1.5GiB")
// is taken if it comes to whole bytes; nothing is rounded.
func ParseBytes(s string) (Bytes, error) {
	if strings.HasPrefix(s, "-") {
		return 0, errNegative
	}
	digits, unit := s, ""
	if i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }); i >= 0 {
		digits, unit = s[:i], strings.TrimLeft(s[i:], " ")
	}
	size, ok := byteUnit(unit)
	if !ok {
		return 0, fmt.Errorf("unknown unit %q: use KiB, MiB, GiB, TiB, KB, MB, GB, TB or B", clip(unit))
	}
	if len(digits) > 40 {
		return 0, errTooLarge
	}
	number, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, errors.New(`not a size such as "256MiB"`)
	}
	number.Mul(number, new(big.Rat).SetInt64(size))
	switch {
	case !number.IsInt():
		return 0, errors.New("not a whole number of bytes")
	case !number.Num().IsInt64():
		return 0, errTooLarge
	}
	return Bytes(number.Num().Int64()), nil
}

func byteUnit(name string) (size int64, ok bool) {
	if name == "" {
		return 1, true
	}
	for _, u := range byteUnits {
		if strings.EqualFold(u.name, name) {
			return u.size, true
		}
	}
	return 0, false
}

// String prints the size exactly, in the unit that makes the smallest number.
func (b Bytes) String() string {
	best, unit := int64(b), "B"
	for _, u := range byteUnits {
		if q := int64(b) / u.size; b != 0 && int64(b)%u.size == 0 && abs(q) < abs(best) {
			best, unit = q, u.name
		}
	}
	return strconv.FormatInt(best, 10) + unit
}

func abs(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// MarshalText is String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText is ParseBytes; flags and the decoder come here.
func (b *Bytes) UnmarshalText(text []byte) error {
	n, err := ParseBytes(string(text))
	if err != nil {
		return err
	}
	*b = n
	return nil
}

// UnmarshalJSON takes the text form or a whole number of bytes.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	return unmarshalJSON(data, b.UnmarshalText, (*int64)(b))
}

// ParseDuration reads what time.ParseDuration does, except for negative ones.
func ParseDuration(s string) (Duration, error) {
	if strings.HasPrefix(s, "-") {
		return 0, errNegative
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New(`not a duration such as "1h30m", "10s" or "250ms"`)
	}
	return Duration(d), nil
}

// String prints the duration as time.Duration does, without the zero minutes
// and seconds at its end.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Std is the duration for the standard library.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDuration; flags and the decoder come here.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// UnmarshalJSON takes the text form or a whole number of nanoseconds.
func (d *Duration) UnmarshalJSON(data []byte) error {
	return unmarshalJSON(data, d.UnmarshalText, (*int64)(d))
}

func unmarshalJSON(data []byte, text func([]byte) error, number *int64) error {
	switch {
	case bytes.Equal(data, []byte("null")):
		return nil
	case len(data) > 0 && data[0] == '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		return text([]byte(s))
	}
	var n int64
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	if n < 0 {
		return errNegative
	}
	*number = n
	return nil
}
