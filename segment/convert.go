package segment

import (
	"math"
	"strconv"
	"time"

	"github.com/parquet-go/parquet-go"
)

// minTimestamp and maxTimestamp, in milliseconds, are the years 0 to 9999.
// Engines count in microseconds or print four digits: a value beyond makes some
// refuse the whole file, so none is written.
var (
	minTimestamp = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxTimestamp = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
)

const dayMillis = 24 * 60 * 60 * 1000

func validTimestamp(ms int64) bool { return minTimestamp <= ms && ms <= maxTimestamp }

// kind is what a JSON value is.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindInteger // a number without fraction and exponent
	kindDecimal // any other number
	kindString
	kindArray
	kindObject
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "an integer", "a decimal number", "a string", "an array", "an object"}[k]
}

// parseInteger reads a JSON integer exactly; ok is false beyond int64.
func parseInteger(b []byte) (v int64, ok bool) {
	negative := b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) > 19 {
		return 0, false
	}
	var u uint64 // 19 digits fit
	for _, c := range b {
		u = u*10 + uint64(c-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case !negative && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}

// parseDate reads "2006-01-02" as days since 1970-01-01.
func parseDate(b []byte) (days int64, ok bool) {
	if len(b) != len("2006-01-02") || b[4] != '-' || b[7] != '-' {
		return 0, false
	}
	year, ok1 := twoDigits(b[0:])
	cent, ok2 := twoDigits(b[2:])
	month, ok3 := twoDigits(b[5:])
	day, ok4 := twoDigits(b[8:])
	if !ok1 || !ok2 || !ok3 || !ok4 || month < 1 || month > 12 {
		return 0, false
	}
	t := time.Date(year*100+cent, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if t.Day() != day { // the 31st of June would be the 1st of July
		return 0, false
	}
	return floorDiv(t.UnixMilli(), dayMillis), true
}

func twoDigits(b []byte) (int, bool) {
	hi, lo := b[0]-'0', b[1]-'0'
	return int(hi)*10 + int(lo), hi <= 9 && lo <= 9
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// parseTimestamp reads RFC 3339 as milliseconds since the epoch, rounded down.
// It is strict where package time is not: two digits everywhere, a point before
// the fraction, an offset below a day, and capital T and Z.
func parseTimestamp(b []byte) (ms int64, ok bool) {
	const seconds = len("2006-01-02T15:04:05")
	if len(b) <= seconds || b[10] != 'T' || b[13] != ':' || b[16] != ':' {
		return 0, false
	}
	days, ok := parseDate(b[:10])
	hour, ok1 := twoDigits(b[11:])
	minute, ok2 := twoDigits(b[14:])
	second, ok3 := twoDigits(b[17:])
	if !ok || !ok1 || !ok2 || !ok3 || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	rest := b[seconds:]
	fraction := 0
	if rest[0] == '.' {
		n := digits(rest, 1)
		if n == 1 {
			return 0, false
		}
		for i := range 3 {
			fraction *= 10
			if i+1 < n {
				fraction += int(rest[i+1] - '0')
			}
		}
		rest = rest[n:]
	}
	offset, ok := parseOffset(rest)
	ms = days*dayMillis + int64((hour*60+minute-offset)*60+second)*1000 + int64(fraction)
	return ms, ok && validTimestamp(ms)
}

// parseOffset reads Z or +hh:mm or -hh:mm, in minutes.
func parseOffset(b []byte) (minutes int, ok bool) {
	if len(b) == 1 && b[0] == 'Z' {
		return 0, true
	}
	if len(b) != len("+00:00") || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, false
	}
	hour, ok1 := twoDigits(b[1:])
	minute, ok2 := twoDigits(b[4:])
	if b[0] == '-' {
		return -(hour*60 + minute), ok1 && ok2 && hour <= 23 && minute <= 59
	}
	return hour*60 + minute, ok1 && ok2 && hour <= 23 && minute <= 59
}

// convert turns a JSON value into that of a column of type t. raw is the
// value's text; of a string, what is between its quotes, with escapes resolved.
// A problem, if there is one, is worded to follow "column x at byte n: ".
func convert(t ColumnType, k kind, raw []byte) (v parquet.Value, problem string) {
	switch t {
	case TypeBool:
		if k == kindBool {
			return parquet.BooleanValue(raw[0] == 't'), ""
		}
	case TypeInt32, TypeInt64:
		if k == kindInteger {
			return convertInteger(t, raw)
		}
	case TypeFloat64:
		if k == kindInteger || k == kindDecimal {
			f, err := strconv.ParseFloat(string(raw), 64)
			if err != nil {
				return v, "the number is out of range of float64"
			}
			return parquet.DoubleValue(f), ""
		}
	case TypeString:
		if k == kindString {
			return parquet.ByteArrayValue(raw), ""
		}
	case TypeDate:
		if k == kindString {
			days, ok := parseDate(raw)
			if !ok {
				return v, "the text is not a date like 2006-01-02"
			}
			return parquet.Int32Value(int32(days)), ""
		}
	case TypeTimestamp:
		switch k {
		case kindString:
			ms, ok := parseTimestamp(raw)
			if !ok {
				return v, "the text is not a time of RFC 3339"
			}
			return parquet.Int64Value(ms), ""
		case kindInteger:
			ms, ok := parseInteger(raw)
			if !ok || !validTimestamp(ms) {
				return v, "the number of milliseconds is beyond the years 0 to 9999"
			}
			return parquet.Int64Value(ms), ""
		}
	}
	return v, "want " + string(t) + ", found " + k.String()
}

func convertInteger(t ColumnType, raw []byte) (v parquet.Value, problem string) {
	n, ok := parseInteger(raw)
	switch {
	case !ok || t == TypeInt32 && n != int64(int32(n)):
		return v, "the number is out of range of " + string(t)
	case t == TypeInt32:
		return parquet.Int32Value(int32(n)), ""
	}
	return parquet.Int64Value(n), ""
}
