// Package chart draws bars side by side, as a picture in SVG.
package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

// Measures of the picture, in its own units; a browser scales it.
const (
	picWidth   = 880
	margin     = 28
	panelTop   = 84
	barTop     = 44 // in a panel
	nameWidth  = 162
	valueWidth = 76 // right of the longest bar
	barHeight  = 24
	barStep    = 31
)

// The colours of the bars, which the colour-blind can distinguish too (Okabe and Ito).
var colours = []string{"#d55e00", "#8c959f", "#0072b2"}

const (
	dark = "#1f2328"
	gray = "#59636e"
)

// A Panel has a name, a note below it, and bars.
type Panel struct {
	Name, Note string
	Bars       []Bar
}

// A Bar has a length, and a text that says it. The lengths of a panel may have any unit.
type Bar struct {
	Name   string
	Length float64
	Text   string
}

// Draw returns a picture with the panels side by side, each with the same number of bars.
func Draw(title, note string, panels ...Panel) []byte {
	p := new(picture)
	height := panelTop + barTop + barStep*len(panels[0].Bars) + 16
	fmt.Fprintf(p,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
			`font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, `+
			`sans-serif" font-size="14">`+"\n"+
			`<rect x="1" y="1" width="%d" height="%d" rx="10" fill="#ffffff" stroke="#d1d9e0"/>`+"\n",
		picWidth, height, picWidth, height, picWidth-2, height-2)
	p.text(margin, 38, `font-size="21" font-weight="600"`, dark, title)
	p.text(margin, 62, "", gray, note)
	width := (picWidth - margin) / len(panels)
	for i := range panels {
		p.panel(margin+i*width, width-margin-nameWidth-valueWidth, &panels[i])
	}
	p.WriteString("</svg>\n")
	return p.Bytes()
}

type picture struct{ bytes.Buffer }

func (p *picture) text(x, y int, style, colour, s string) {
	fmt.Fprintf(p, `<text x="%d" y="%d" fill="%s" %s>`, x, y, colour, style)
	_ = xml.EscapeText(p, []byte(s)) // a bytes.Buffer takes everything
	p.WriteString("</text>\n")
}

// panel draws a panel, whose longest bar has the given width.
func (p *picture) panel(x, width int, panel *Panel) {
	p.text(x, panelTop+14, `font-size="16" font-weight="600"`, dark, panel.Name)
	p.text(x, panelTop+34, "", gray, panel.Note)
	longest := 1e-9
	for _, b := range panel.Bars {
		longest = max(longest, b.Length)
	}
	for i, b := range panel.Bars {
		top := panelTop + barTop + barStep*i
		length := max(2, int(float64(width)*b.Length/longest))
		fmt.Fprintf(p, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s"/>`+"\n",
			x+nameWidth, top, length, barHeight, colours[i%len(colours)])
		p.text(x, top+17, "", dark, b.Name)
		p.text(x+nameWidth+length+7, top+17, `font-weight="600"`, dark, b.Text)
	}
}
