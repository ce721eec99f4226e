package metalog

import (
	"bytes"
	"errors"
	"testing"
)

func TestFramesComeBackOneByOne(t *testing.T) {
	payloads := [][]byte{{0}, []byte("hello"), bytes.Repeat([]byte{0}, 3000), bytes.Repeat([]byte{7}, MaxFramePayload)}
	var b []byte
	for _, p := range payloads {
		b = AppendFrame(b, p)
	}
	for i, want := range payloads {
		got, rest, err := NextFrame(b)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("frame %d: %d bytes, %v", i, len(got), err)
		}
		b = rest
	}
	if len(b) != 0 {
		t.Fatalf("%d bytes left", len(b))
	}
}

func TestEveryFlippedBitOfAFrameIsNoticedAndIsDamage(t *testing.T) {
	sound := AppendFrame(nil, []byte("a payload that says something"))
	for i := range len(sound) * 8 {
		bad := bytes.Clone(sound)
		bad[i/8] ^= 1 << (i % 8)
		_, _, err := NextFrame(bad)
		var frame *FrameError
		if !errors.As(err, &frame) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
		if tornTail(bad, 0) {
			t.Fatalf("bit %d flipped: taken for a torn tail", i)
		}
	}
}

func TestEveryCutOfTheLastFrameIsATornTail(t *testing.T) {
	first := AppendFrame(nil, []byte("first"))
	whole := AppendFrame(bytes.Clone(first), []byte("second, which is cut"))
	for n := len(first) + 1; n < len(whole); n++ {
		cut := whole[:n]
		if _, _, err := NextFrame(cut[len(first):]); !errors.Is(err, ErrFrameShort) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		if !tornTail(cut, len(first)) {
			t.Fatalf("cut to %d bytes: taken for damage", n)
		}
	}
}

func TestTornTailAndDamageAreToldApart(t *testing.T) {
	lead := AppendFrame(nil, bytes.Repeat([]byte{1}, 400))
	at := len(lead)
	frame := AppendFrame(nil, bytes.Repeat([]byte{2}, 2000))
	whole := append(bytes.Clone(lead), frame...)
	zeroed := func(from, to int) func([]byte) []byte {
		return func(b []byte) []byte { clear(b[from:min(to, len(b))]); return b }
	}
	next := AppendFrame(nil, []byte("next"))
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		torn   bool
	}{
		{"size grew, nothing was written", func(b []byte) []byte { return append(b[:at], make([]byte, 9000)...) }, true},
		{"size grew by less than a header", func(b []byte) []byte { return append(b[:at], 0, 0, 0) }, true},
		{"all sectors but the first", zeroed(512, len(whole)), true},
		{"one sector in the middle", zeroed(1024, 1536), true},
		{"the last part of a sector", zeroed(len(whole)/512*512, len(whole)), true},
		{"the frame's first part of a sector", zeroed(at, 512), true},
		{"zeros that are not a sector", zeroed(1025, 1536), false},
		{"an unwritten sector, and a frame after it", func(b []byte) []byte { return append(zeroed(1024, 1536)(b), next...) }, false},
		{"a flipped bit, and a frame after it", func(b []byte) []byte { b[at+100] ^= 1; return append(b, next...) }, false},
		{"a flipped bit in the last frame", func(b []byte) []byte { b[at+100] ^= 1; return b }, false},
		{"a length that runs past the end", func(b []byte) []byte { b[at+5] ^= 0x80; return b }, false},
		{"a frame that runs past the end", func(b []byte) []byte { return b[:len(b)-1] }, true},
		{"text", func(b []byte) []byte { return append(b[:at], "this was never a frame of any kind"...) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := c.change(bytes.Clone(whole))
			if _, _, err := NextFrame(data[at:]); err == nil {
				t.Fatal("the frame is good")
			}
			if got := tornTail(data, at); got != c.torn {
				t.Fatalf("torn tail: %v", got)
			}
		})
	}
}

func FuzzNextFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendFrame(nil, []byte("payload")))
	f.Add(AppendFrame(AppendFrame(nil, []byte("one")), []byte("two")))
	f.Add(make([]byte, 600))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, rest, err := NextFrame(b)
		if err == nil {
			if again := AppendFrame(nil, payload); !bytes.Equal(again, b[:len(b)-len(rest)]) {
				t.Fatalf("frame %x reads as %x", b, payload)
			}
			return
		}
		if len(rest) != len(b) || payload != nil {
			t.Fatal("an error, and something was taken")
		}
		if len(b) > 0 && tornTail(b, 0) && holdsFrame(b[1:]) {
			t.Fatal("a torn tail with a good frame in it")
		}
	})
}

func FuzzDecodeEntries(f *testing.F) {
	f.Add(framesOf(f, batchesOf(run{1, 2}, run{2, 1})...))
	f.Add(AppendFrame(nil, []byte("no batch")))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := DecodeEntries(b)
		if err != nil {
			return
		}
		var n int
		for _, e := range entries {
			n += len(e.Frame)
		}
		if n != len(b) {
			t.Fatalf("%d of %d bytes are in entries", n, len(b))
		}
	})
}
