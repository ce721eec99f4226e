package up

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen is where a run shows itself: lines that stay, and on a terminal below
// them a block that is drawn over and over. It is for one goroutine.
type Screen struct {
	out io.Writer
	// size returns the columns and rows of the terminal; nil: it is none.
	size  func() (width, height int)
	block int // lines of the block on the screen
}

// PlainScreen writes lines only.
func PlainScreen(out io.Writer) *Screen { return &Screen{out: out} }

// TerminalScreen draws on the terminal that f is, or writes lines if it is none.
func TerminalScreen(f *os.File) *Screen {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return PlainScreen(f)
	}
	return &Screen{out: f, size: func() (int, int) {
		w, h, err := term.GetSize(fd)
		if err != nil || w < 1 || h < 1 {
			return 80, 24
		}
		return w, h
	}}
}

// Live reports whether there is a block.
func (s *Screen) Live() bool { return s.size != nil }

// Control sequences of terminals since the VT100.
const (
	escUp         = "\x1b[%dA"
	escClearBelow = "\x1b[J"
)

// Line writes a line that stays, above the block.
func (s *Screen) Line(format string, args ...any) {
	s.Text(fmt.Sprintf(format, args...) + "\n")
}

// Text writes text that stays, above the block, which comes back with the next
// Draw.
func (s *Screen) Text(text string) {
	s.Clear()
	io.WriteString(s.out, text)
}

// Clear takes the block off.
func (s *Screen) Clear() {
	if s.block > 0 {
		fmt.Fprintf(s.out, escUp+"\r"+escClearBelow, s.block)
		s.block = 0
	}
}

// Draw draws the block anew. Lines are cut to the width, since one that wraps
// would be two, and the block to the height, since what has scrolled away
// cannot be drawn over.
func (s *Screen) Draw(lines []string) {
	if !s.Live() {
		return
	}
	width, height := s.size()
	if most := max(height-2, 1); len(lines) > most {
		hidden := len(lines) - most + 1
		lines = append(lines[:most-1:most-1], fmt.Sprintf("… and %d more lines", hidden))
	}
	var b strings.Builder
	if s.block > 0 {
		fmt.Fprintf(&b, escUp+"\r"+escClearBelow, s.block)
	}
	for _, l := range lines {
		b.WriteString(cut(l, width-1))
		b.WriteByte('\n')
	}
	s.block = len(lines)
	io.WriteString(s.out, b.String())
}

// cut shortens a line to width runes, and drops what would move the cursor.
func cut(line string, width int) string {
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, line)
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	return string(runes[:max(width-1, 0)]) + "…"
}
