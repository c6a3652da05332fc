// States draws the picture of the states of a task in the documentation. From the root of the
// repository:
//
//	go run ./internal/diagrams/states > docs/states.svg
//
// Package storetest takes tasks along each arrow.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/fairq/fairq/task"
)

func main() {
	if _, err := os.Stdout.Write(draw()); err != nil {
		log.Fatal(err)
	}
}

// Before its put and after it has left, a task has no state of the package.
const (
	none task.State = 0
	gone task.State = 1 << 7
)

const (
	dark = "#1f2328"
	gray = "#59636e"
	line = "#d1d9e0"
	blue = "#2563eb"
)

// node is a state, drawn as a box around a point.
type node struct {
	state       task.State
	x, y        int
	color, note string
}

var nodes = []node{
	{task.Held, 110, 350, "#475569", "waits for others"},
	{task.Delayed, 430, 70, "#7c3aed", "waits for its time"},
	{task.Ready, 250, 210, blue, "can be taken"},
	{task.Taken, 610, 210, "#15803d", "with a consumer"},
	{task.Buried, 430, 350, "#c2410c", "failed for good"},
}

// arrow leads from one state to another. It is drawn along a path; the tip is 8 more.
type arrow struct {
	from, to task.State
	path     string
	labels   []label
}

type label struct {
	x, y         int
	anchor, text string
}

var arrows = []arrow{
	{from: none, to: task.Ready, path: "M91 210H172", labels: []label{{134, 202, "mid", "Put"}}},
	{
		from: none, to: task.Delayed, path: "M60 188V78A8 8 0 0 1 68 70H352",
		labels: []label{{208, 62, "mid", "Put with a Delay"}},
	},
	{
		from: none, to: task.Held, path: "M60 232V314",
		labels: []label{{70, 278, "note", "Put into a Group"}},
	},
	{
		from: task.Held, to: task.Ready, path: "M180 350H222A8 8 0 0 0 230 342V246",
		labels: []label{{220, 306, "end", "StartGroup"}},
	},
	{
		from: task.Delayed, to: task.Ready, path: "M388 98L276 178",
		labels: []label{{322, 132, "end", "the Delay is over"}},
	},
	{
		from: task.Ready, to: task.Taken, path: "M320 202H532",
		labels: []label{{430, 194, "mid", "Take"}},
	},
	{from: task.Taken, to: task.Ready, path: "M540 220H328", labels: []label{
		{430, 239, "mid", "Release, Snooze, Fail, Return;"},
		{430, 256, "mid", "the lease was lost;"},
		{430, 273, "mid", "the consumer was closed"},
	}},
	{
		from: task.Taken, to: task.Delayed, path: "M584 182L472 102",
		labels: []label{{538, 132, "note", "Release, Snooze, Fail with a delay"}},
	},
	{from: task.Taken, to: task.Buried, path: "M584 238L472 318", labels: []label{
		{538, 292, "note", "Bury, or it was"},
		{538, 309, "note", "the last attempt"},
	}},
	{
		from: task.Buried, to: task.Ready, path: "M388 322L276 242",
		labels: []label{{310, 300, "end", "Kick"}},
	},
	{from: task.Taken, to: gone, path: "M680 210H755", labels: []label{
		{719, 202, "mid", "Ack,"}, {719, 227, "mid", "Discard"},
	}},
}

type picture struct{ bytes.Buffer }

func (p *picture) add(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// text writes a line of text. The style is one of the classes in the head of the picture.
func (p *picture) text(x, y int, style, color, text string) {
	p.add(`<text x="%d" y="%d" class="%s" fill="%s">%s</text>`, x, y, style, color, text)
}

func draw() []byte {
	p := new(picture)
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 470" width="880" ` +
		`height="470" role="img" ` +
		`font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">`)
	p.add(`<title>The states of a task</title>`)
	p.add(`<desc>The states that a task can be in, and what leads from one to another.</desc>`)
	p.add(`<style>.state{font-size:15px;font-weight:600;text-anchor:middle}` +
		`.sub{font-size:11px;text-anchor:middle}.note{font-size:13px}` +
		`.mid{font-size:13px;text-anchor:middle}.end{font-size:13px;text-anchor:end}</style>`)
	p.add(`<rect x="1" y="1" width="878" height="468" rx="10" fill="#ffffff" stroke="%s"/>`, line)
	p.tip()
	for _, a := range arrows {
		p.arrow(a)
	}
	p.end(60, 210, 62, "new")
	p.end(800, 210, 74, "gone")
	for _, n := range nodes {
		p.add(`<rect x="%d" y="%d" width="140" height="56" rx="8" fill="%s"/>`, n.x-70, n.y-28, n.color)
		p.text(n.x, n.y, "state", "#ffffff", n.state.String())
		p.text(n.x, n.y+17, "sub", "#ffffff", n.note)
	}
	p.add(`<path d="M28 400H852" stroke="%s"/>`, line)
	p.text(28, 425, "note", gray, "To ready: behind what its key has queued, like new work;")
	p.text(28, 449, "note", gray, "by Return, or if the consumer was closed, first again, once.")
	p.text(486, 425, "note", gray, "From all states: Delete, and Bury with an id.")
	p.text(486, 449, "note", gray, "From all but taken: gone after TTL or Deadline.")
	p.add(`</svg>`)
	return p.Bytes()
}

// end draws where tasks come from and go to, which are not states.
func (p *picture) end(x, y, width int, name string) {
	p.add(`<rect x="%d" y="%d" width="%d" height="44" rx="22" fill="#ffffff" `+
		`stroke="%s" stroke-width="1.5" stroke-dasharray="4 3"/>`, x-width/2, y-22, width, gray)
	p.text(x, y+5, "state", gray, name)
}

func (p *picture) arrow(a arrow) {
	p.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" marker-end="url(#tip)"/>`, a.path,
		dark)
	for _, l := range a.labels {
		p.text(l.x, l.y, l.anchor, dark, l.text)
	}
}

// tip defines the tip of arrows.
func (p *picture) tip() {
	p.add(`<marker id="tip" orient="auto" markerUnits="userSpaceOnUse" markerWidth="9" `+
		`markerHeight="10" refY="5">`+
		`<path d="M0 0L9 5L0 10z" fill="%s"/></marker>`, dark)
}
