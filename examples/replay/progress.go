package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// progress draws a bar on a terminal. A nil progress draws nothing.
type progress struct {
	w           io.Writer
	label       string
	done, total int
	percent     int // what the bar shows
}

// newProgress returns nil if w is no terminal: in a file or a pipe a bar is but noise.
func newProgress(w io.Writer, total int) *progress {
	if !isTerminal(w) {
		return nil
	}
	return &progress{w: w, total: total, percent: -1}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// step draws only when there is something new to be seen: drawing takes longer than simulating.
func (p *progress) step() {
	if p == nil {
		return
	}
	p.done++
	if percent := 100 * p.done / p.total; percent != p.percent {
		p.percent = percent
		full := percent * 40 / 100
		fmt.Fprintf(p.w, "\r[%s%s] %3d %%  %s\x1b[K", strings.Repeat("#", full), strings.Repeat(".", 40-full), percent, p.label)
	}
}

func (p *progress) say(label string) {
	if p != nil {
		p.label = label
	}
}

// clear wipes the bar away, so that only the results stay on the screen.
func (p *progress) clear() {
	if p != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
