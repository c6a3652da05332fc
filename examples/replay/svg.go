package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
)

// Measures of the picture, in its own units; a browser scales it.
const (
	picWidth, picHeight = 1200, 725
	left, right         = 115, 1165 // of the plot
	top, bottom         = 150, 650
	oneSecond           = bottom - 36 // where the logarithmic scale begins; below it is "no wait"
)

// The colours are told apart by the colour-blind too (Okabe and Ito).
const (
	fifoColour = "#d55e00"
	fairColour = "#0072b2"
)

// picture draws waiting times by user, a column for each, those with few jobs on the left.
type picture struct {
	bytes.Buffer
	w             *workload
	before, after *result
	longest       int64 // the wait at the top end of the scale
}

// draw returns the picture as SVG.
func draw(w *workload, servers int, before, after *result) []byte {
	p := &picture{w: w, before: before, after: after, longest: 60}
	for u := range w.names {
		p.longest = max(p.longest, before.waits[u].median(), after.waits[u].median())
	}
	p.longest *= 2
	light, all := w.light(), len(w.order)

	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, Helvetica, Arial, sans-serif" font-size="15" fill="#222">`+"\n",
		picWidth, picHeight)
	fmt.Fprintf(p, "<title>Waiting time by user</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", picWidth, picHeight)
	p.text(left, 42, `font-size="25" font-weight="600"`, "How long each user's jobs wait: first in, first out against a fair queue")
	p.text(left, 70, `fill="#555"`, subject(w, servers))
	p.legend()
	p.region(0, light, fmt.Sprintf("%s with fewer than %d jobs", plural(light, "light user"), lightJobs))
	p.region(light, all, fmt.Sprintf("%s with %d jobs or more", plural(all-light, "user"), lightJobs))
	p.axes()
	p.points()
	p.medians(light)
	p.heaviest()
	p.WriteString("</svg>\n")
	return p.Bytes()
}

// x is the left edge of the column of the i-th user.
func (p *picture) x(i int) float64 {
	return left + float64(i)*(right-left)/float64(len(p.w.order))
}

func (p *picture) y(wait int64) float64 {
	if wait == 0 {
		return (oneSecond + bottom) / 2
	}
	return oneSecond - math.Log(float64(wait))/math.Log(float64(p.longest))*(oneSecond-top)
}

func (p *picture) text(x, y float64, style, s string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" %s>`, x, y, style)
	_ = xml.EscapeText(p, []byte(s)) // a bytes.Buffer takes everything
	p.WriteString("</text>\n")
}

func (p *picture) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
}

func (p *picture) legend() {
	y := 103.0
	p.circle(left+7, y-5, 6)
	p.text(left+21, y, "", "FIFO")
	p.diamond(left+79, y-5, 6.5)
	p.text(left+93, y, "", "fair queue")
	p.text(left+185, y, `fill="#555"`, "(each user's median wait)")
	for _, change := range []struct {
		x           float64
		style, name string
	}{{left + 422, shorter, "shorter"}, {left + 512, longer, "longer with the fair queue"}} {
		p.line(change.x, y-14, change.x, y+4, change.style+` stroke-width="2.2"`)
		p.text(change.x+10, y, "", change.name)
	}
	p.line(left+766, y-5, left+802, y-5, dashes+` stroke="#555"`)
	p.text(left+812, y, "", "median of light users' jobs")
}

const dashes = `stroke-width="2.5" stroke-dasharray="9 5"`

const (
	shorter = `stroke="` + fairColour + `" stroke-opacity="0.4"`
	longer  = `stroke="` + fifoColour + `" stroke-opacity="0.5"`
)

func (p *picture) circle(x, y, size float64) {
	fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="#fff" fill-opacity="0.6" stroke="%s" stroke-width="1.6"/>`+"\n", x, y, size, fifoColour)
}

func (p *picture) diamond(x, y, size float64) {
	fmt.Fprintf(p, `<path d="M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz" fill="%s"/>`+"\n",
		x, y-size, size, size, -size, size, -size, -size, fairColour)
}

// region names the users from one to another and gives them a ground of their own.
func (p *picture) region(from, to int, name string) {
	if from == to {
		return
	}
	ground := "#f3f6fa"
	if from > 0 {
		ground = "#fbf7f1"
	}
	fmt.Fprintf(p, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", p.x(from), top-22, p.x(to)-p.x(from), bottom-top+22, ground)
	x, anchor := (p.x(from)+p.x(to))/2, "middle"
	if tooLong := p.x(to)-p.x(from) < 9*float64(len(name)); tooLong && from == 0 {
		x, anchor = left, "start"
	} else if tooLong {
		x, anchor = right, "end"
	}
	p.text(x, top-6, fmt.Sprintf(`text-anchor="%s" font-weight="600"`, anchor), name)
}

func (p *picture) axes() {
	for _, tick := range []struct {
		wait int64
		name string
	}{
		{0, "no wait"},
		{1, "1 second"},
		{10, "10 s"},
		{60, "1 minute"},
		{600, "10 min"},
		{3600, "1 hour"},
		{6 * 3600, "6 h"},
		{86400, "1 day"},
		{7 * 86400, "1 week"},
		{30 * 86400, "30 days"},
		{365 * 86400, "1 year"},
	} {
		if tick.wait <= p.longest {
			y := p.y(tick.wait)
			p.line(left, y, right, y, `stroke="#c9ced6" stroke-width="1"`)
			p.text(left-9, y+5, `text-anchor="end"`, tick.name)
		}
	}
	p.text(0, 0, fmt.Sprintf(`transform="translate(20 %d) rotate(-90)" text-anchor="middle" fill="#555"`, (top+bottom)/2),
		"waiting time (logarithmic)")
	// A tick stands where the users with this many jobs or more begin.
	clear := float64(left) - 1
	for jobs, i := 1, 0; i < len(p.w.order); jobs *= 10 {
		for i < len(p.w.order) && p.w.counts[p.w.order[i]] < jobs {
			i++
		}
		if x := p.x(i); i < len(p.w.order) && x > clear {
			p.line(x, bottom, x, bottom+7, `stroke="#555"`)
			p.text(x, bottom+24, `text-anchor="middle"`, thousands(jobs))
			clear = x + 45
		}
	}
	p.line(left, bottom, right, bottom, `stroke="#555"`)
	p.text((left+right)/2, bottom+52, `text-anchor="middle" fill="#555"`,
		"users, one column each, ordered by their number of jobs →")
}

func (p *picture) points() {
	column := p.x(1) - p.x(0)
	size := min(5, max(1.5, column*0.6))
	for i, u := range p.w.order {
		before, after := p.before.waits[u].median(), p.after.waits[u].median()
		x, style := p.x(i)+column/2, shorter
		if after > before {
			style = longer
		}
		p.WriteString("<g><title>") // browsers show it under the mouse
		_ = xml.EscapeText(p, fmt.Appendf(nil, "user %s: %s, median wait %s with FIFO, %s with the fair queue",
			p.w.names[u], plural(p.w.counts[u], "job"), human(before), human(after)))
		p.WriteString("</title>\n")
		p.line(x, p.y(before), x, p.y(after), style+fmt.Sprintf(` stroke-width="%.2f"`, min(2.2, column*0.4)))
		p.circle(x, p.y(before), size)
		p.diamond(x, p.y(after), size*1.15)
		p.WriteString("</g>\n")
	}
}

// halo keeps text readable on whatever it is written over.
const halo = `paint-order="stroke" stroke="#fff" stroke-width="4" stroke-linejoin="round" font-weight="600"`

// medians draws the median waits of all jobs of light users.
func (p *picture) medians(light int) {
	if light == 0 {
		return
	}
	before, after := p.before.waitsOf(p.w.order[:light]).median(), p.after.waitsOf(p.w.order[:light]).median()
	one := func(wait, other int64, colour, name string) {
		y, label := p.y(wait), p.y(wait)-9
		if wait < other || wait == other && colour == fairColour {
			label = y + 20 // so that two lines close together do not write over each other
		}
		p.line(p.x(0), y, p.x(light), y, dashes+fmt.Sprintf(` stroke="%s"`, colour))
		p.text(p.x(0)+8, label, halo+fmt.Sprintf(` fill="%s"`, colour), fmt.Sprintf("%s: median %s", name, human(wait)))
	}
	one(before, after, fifoColour, "FIFO")
	one(after, before, fairColour, "fair queue")
}

// heaviest points out the user with the most jobs, the column at the right.
func (p *picture) heaviest() {
	i := len(p.w.order) - 1
	u := p.w.order[i]
	before, after := p.before.waits[u].median(), p.after.waits[u].median()
	x, y := (p.x(i)+p.x(i+1))/2, float64(oneSecond)-60
	if low := max(p.y(before), p.y(after)) + 9; low < y-20 {
		p.line(x, low, x, y-20, `stroke="#222"`)
	}
	p.text(right-4, y, halo+` text-anchor="end"`, fmt.Sprintf("heaviest user: %s, %.0f %% of all",
		plural(p.w.counts[u], "job"), 100*float64(p.w.counts[u])/float64(len(p.w.jobs))))
	p.text(right-4, y+21, halo+` text-anchor="end"`, fmt.Sprintf("median wait: FIFO %s, fair queue %s", human(before), human(after)))
}
