package config_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"github.com/shoalstore/shoal/internal/config"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]config.Bytes{
		"0": 0, "7": 7, "1024": 1024, "0B": 0, "12B": 12, "010": 10,
		"256MiB": 256 << 20, "256 MiB": 256 << 20, "256mib": 256 << 20, "1KiB": 1024, "3TiB": 3 << 40, "2GiB": 2 << 30,
		"10MB": 10e6, "1KB": 1000, "1kb": 1000, "5GB": 5e9, "4TB": 4e12,
		"1.5GiB": 3 << 29, "0.5KB": 500, "1.0B": 1, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := config.ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"": "not a size", "MiB": "not a size", ".": "not a size", "1.2.3": "not a size",
		"-1": "negative", "10 parsecs": `unknown unit "parsecs"`, "1M": "unknown unit", "1e6": "unknown unit", "0x10": "unknown unit",
		"1 2": "unknown unit", "10MiB ": "unknown unit", " 10MiB": "unknown unit",
		"0.3B": "whole number", "1.1KiB": "whole number",
		"9223372036854775808": "too large", "8388608TiB": "too large", strings.Repeat("9", 5000): "too large",
		"1" + strings.Repeat("x", 5000): "…",
	} {
		_, err := config.ParseBytes(text)
		if err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 200 {
			t.Errorf("%.20q: got %v, want an error that says %q", text, err, says)
		}
	}
}

func TestBytesPrintShort(t *testing.T) {
	for size, want := range map[config.Bytes]string{
		0: "0B", 1: "1B", 1000: "1KB", 1024: "1KiB", 1025: "1025B", 256 << 20: "256MiB", 16e6: "16MB", 10e6: "10MB",
		1 << 40: "1TiB", 1536: "1536B", 3 << 29: "1536MiB", -5: "-5B", math.MinInt64: "-8388608TiB",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d prints as %s, want %s", int64(size), got, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "3s": 3 * time.Second, "1h30m": 90 * time.Minute, "720h": 720 * time.Hour, "1.5s": 1500 * time.Millisecond, "250ms": 250 * time.Millisecond,
	} {
		if got, err := config.ParseDuration(text); err != nil || got.Std() != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"": "not a duration", "3": "not a duration", "3 s": "not a duration", "-3s": "negative", "1d": "not a duration", "999999999h": "not a duration",
	} {
		if _, err := config.ParseDuration(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want an error that says %q", text, err, says)
		}
	}
}

func TestDurationsPrintShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 20 * time.Second: "20s",
		time.Hour + time.Second: "1h0m1s", 100 * time.Second: "1m40s", 720 * time.Hour: "720h", 1500 * time.Microsecond: "1.5ms",
	} {
		if got := config.Duration(d).String(); got != want {
			t.Errorf("%s prints as %s, want %s", d, got, want)
		}
	}
}

// settings has both units, as records and configurations have them.
type settings struct {
	Size config.Bytes    `json:"size" cbor:"1,keyasint"`
	Wait config.Duration `json:"wait" cbor:"2,keyasint"`
}

func TestUnitsRoundTrip(t *testing.T) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		// Many of the sizes and times that people write, and any other.
		size := rapid.Int64Range(0, 5000).Draw(t, "n") * rapid.SampledFrom([]int64{1, 1000, 1e6, 1 << 10, 1 << 20, 1 << 40}).Draw(t, "unit")
		wait := rapid.Int64Range(0, 5000).Draw(t, "d") * rapid.SampledFrom([]int64{1, 1e3, 1e9, 60e9, 3600e9}).Draw(t, "time unit")
		if rapid.Bool().Draw(t, "any") {
			size, wait = rapid.Int64Min(0).Draw(t, "size"), rapid.Int64Min(0).Draw(t, "wait")
		}
		want := settings{config.Bytes(size), config.Duration(wait)}

		var got settings
		text, err := json.Marshal(want)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got != want {
			t.Fatalf("%+v becomes %s becomes %+v, %v", want, text, got, err)
		}
		got = settings{}
		if err := config.Decode("table.yaml", text, &got); err != nil || got != want {
			t.Fatalf("%s is read as %+v, %v", text, got, err)
		}

		plain, err := enc.Marshal(map[int]int64{1: size, 2: wait})
		if err != nil {
			t.Fatal(err)
		}
		binary, err := enc.Marshal(want)
		if err != nil || string(binary) != string(plain) {
			t.Fatalf("CBOR is %x, %v, not the integers' %x", binary, err, plain)
		}
		got = settings{}
		if err := cbor.Unmarshal(binary, &got); err != nil || got != want {
			t.Fatalf("%x is read as %+v, %v", binary, got, err)
		}
	})
}

func TestUnitsFromJSON(t *testing.T) {
	var got settings
	if err := json.Unmarshal([]byte(`{"size": 4096, "wait": 1500000000}`), &got); err != nil || got.Size != 4096 || got.Wait.Std() != 1500*time.Millisecond {
		t.Errorf("numbers: %+v, %v", got, err)
	}
	before := got
	if err := json.Unmarshal([]byte(`{"size": null, "wait": null}`), &got); err != nil || got != before {
		t.Errorf("null: %+v, %v", got, err)
	}
	for _, bad := range []string{`{"size": -1}`, `{"wait": -1}`, `{"size": 1.5}`, `{"size": true}`, `{"wait": "soon"}`, `{"size": {}}`, `{"wait": []}`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is accepted as %+v", bad, got)
		}
	}
}

func TestUnitsAsFlags(t *testing.T) {
	var flags struct {
		Size config.Bytes    `default:"1MiB"`
		Wait config.Duration `default:"3s"`
	}
	parser, err := kong.New(&flags)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"--size", "10MB"}); err != nil {
		t.Fatal(err)
	}
	if flags.Size != 10e6 || flags.Wait.Std() != 3*time.Second {
		t.Fatalf("got %+v", flags)
	}
	_, err = parser.Parse([]string{"--size=10 parsecs"})
	if err == nil || !strings.Contains(err.Error(), "--size") || !strings.Contains(err.Error(), "parsecs") {
		t.Fatalf("got %v", err)
	}
}

func FuzzUnits(f *testing.F) {
	for _, s := range []string{"0", "256MiB", "1.5GiB", "10 MB", "-1", "1h30m", "720h", "250ms", "9223372036854775807", "1.TiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := config.ParseBytes(s); err == nil {
			if again, err := config.ParseBytes(b.String()); err != nil || again != b || b < 0 {
				t.Errorf("%q is %d prints as %s is %d, %v", s, int64(b), b, int64(again), err)
			}
		}
		if d, err := config.ParseDuration(s); err == nil {
			if again, err := config.ParseDuration(d.String()); err != nil || again != d || d < 0 {
				t.Errorf("%q is %d prints as %s is %d, %v", s, int64(d), d, int64(again), err)
			}
		}
	})
}
