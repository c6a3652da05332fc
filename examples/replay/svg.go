package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

// Measures of the picture, in its own units; a browser scales it.
const (
	picWidth   = 880
	margin     = 28
	panelTop   = 92 // of the first row of panels
	panelWidth = 398
	nameWidth  = 148 // of a panel, left of its bars
	longestBar = 180
	barHeight  = 24
	barStep    = 31
)

// The colours of the lines, which the colour-blind can distinguish too (Okabe and Ito).
var colours = []string{"#d55e00", "#8c959f", "#0072b2", "#56b4e9"}

const (
	dark = "#1f2328"
	gray = "#59636e"
)

// picture draws a panel for each group of users, with a bar for each line.
type picture struct{ bytes.Buffer }

// draw returns the picture as SVG.
func draw(w *workload, servers int, results []*result) []byte {
	p := new(picture)
	groups := w.groups()
	panelHeight := 70 + barStep*len(results)
	height := panelTop + (len(groups)+1)/2*panelHeight + 30
	fmt.Fprintf(p,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `+
			`font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, `+
			`sans-serif" font-size="14">`+"\n",
		picWidth, height, picWidth, height)
	p.WriteString("<title>Who waits how long</title>\n")
	fmt.Fprintf(p,
		`<rect x="1" y="1" width="%d" height="%d" rx="10" fill="#ffffff" stroke="#d1d9e0"/>`+"\n",
		picWidth-2, height-2)
	p.text(margin, 38, `font-size="21" font-weight="600"`, dark,
		"How long jobs wait for a server, in four queues")
	p.text(margin, 62, "", gray, subject(w, servers))
	for i, g := range groups {
		p.panel(margin+i%2*(panelWidth+margin), panelTop+i/2*panelHeight, &g, results)
	}
	p.text(margin, height-20, "", gray,
		"Fair by time is Options.ShareTime. The last queue knows all run times "+
			"beforehand, as no real one does.")
	p.WriteString("</svg>\n")
	return p.Bytes()
}

func (p *picture) text(x, y int, style, colour, s string) {
	fmt.Fprintf(p, `<text x="%d" y="%d" fill="%s" %s>`, x, y, colour, style)
	_ = xml.EscapeText(p, []byte(s)) // a bytes.Buffer takes everything
	p.WriteString("</text>\n")
}

// panel draws how long the jobs of a group wait. Its longest bar is as long as that of the others.
func (p *picture) panel(x, y int, g *group, results []*result) {
	waits, longest := make([]int64, len(results)), int64(1)
	for i, r := range results {
		waits[i] = r.wait(g.measure, g.users)
		longest = max(longest, waits[i])
	}
	p.text(x, y+14, `font-size="16" font-weight="600"`, dark, g.name)
	p.text(x, y+34, "", gray, g.size()+": "+g.measure.headline)
	for i, r := range results {
		top := y + 44 + barStep*i
		length := max(2, int(longestBar*waits[i]/longest))
		fmt.Fprintf(p, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s"/>`+"\n",
			x+nameWidth, top, length, barHeight, colours[i%len(colours)])
		p.text(x, top+17, "", dark, r.name)
		p.text(x+nameWidth+length+7, top+17, `font-weight="600"`, dark, human(waits[i]))
	}
}
