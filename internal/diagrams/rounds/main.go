// Rounds draws the picture of rounds in the documentation. From the root of the repository:
//
//	go run ./internal/diagrams/rounds > docs/rounds.svg
//
// A [fairq.Queue] computes everything in it except the order of arrival.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/fairq/fairq"
)

// arrivals has the keys of the items, in order of arrival.
const arrivals = "AAAACABAB"

var colors = map[rune]string{'A': "#2563eb", 'B': "#c2410c", 'C': "#15803d"}

type item struct {
	key     rune
	arrival int
}

func main() {
	if _, err := os.Stdout.Write(draw()); err != nil {
		log.Fatal(err)
	}
}

// arrive returns the items in order of arrival, which is the order of a FIFO.
func arrive() (items []item) {
	for i, key := range arrivals {
		items = append(items, item{key, i + 1})
	}
	return items
}

// serve queues items and returns them in the order in which the queue delivers them.
func serve(items []item) (served []item) {
	var q fairq.Queue[rune, item]
	for _, it := range items {
		q.Push(it.key, it)
	}
	for {
		_, it, ok := q.Pop()
		if !ok {
			return served
		}
		served = append(served, it)
	}
}

// split cuts the served items into rounds. A key is served once in a round, so a round begins
// where a key comes again.
func split(served []item) (rounds [][]item) {
	in := map[rune]bool{}
	for _, it := range served {
		if len(rounds) == 0 || in[it.key] {
			rounds = append(rounds, nil)
			clear(in)
		}
		in[it.key] = true
		rounds[len(rounds)-1] = append(rounds[len(rounds)-1], it)
	}
	return rounds
}

type picture struct{ bytes.Buffer }

func (p *picture) add(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// text writes a line of text. The style is one of the classes in the head of the picture.
func (p *picture) text(x, y int, style, color, format string, args ...any) {
	p.add(`<text x="%d" y="%d" class="%s" fill="%s">%s</text>`, x, y, style, color,
		fmt.Sprintf(format, args...))
}

// item draws an item around a point.
func (p *picture) item(x, y int, it item) {
	p.add(`<rect x="%d" y="%d" width="34" height="30" rx="6" fill="%s"/>`, x-17, y-15, colors[it.key])
	p.text(x, y+5, "item", "#ffffff", "%c%d", it.key, it.arrival)
}

const (
	dark = "#1f2328"
	gray = "#59636e"
	line = "#d1d9e0"
	band = "#f3f5f7"
)

func draw() []byte {
	items := arrive()
	served := serve(items)
	p := new(picture)
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 470" width="880" ` +
		`height="470" role="img" ` +
		`font-family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif">`)
	p.add(`<title>How rounds are served</title>`)
	p.add(`<desc>The items of three keys as they arrive, the rounds they are put into, and the ` +
		`order in which a FIFO and fairq serve them.</desc>`)
	p.add(`<style>.item{font-size:14px;font-weight:600;text-anchor:middle}` +
		`.head{font-size:17px;font-weight:600}.note{font-size:13px}` +
		`.mid{font-size:13px;text-anchor:middle}.key{font-size:16px;font-weight:700}` +
		`.mark{font-size:12px;font-weight:600;text-anchor:middle}</style>`)
	p.add(`<rect x="1" y="1" width="878" height="468" rx="10" fill="#ffffff" stroke="%s"/>`, line)
	p.queues(items)
	p.rounds(split(served))
	p.add(`<path d="M28 258H852" stroke="%s"/>`, line)
	p.text(28, 288, "head", dark, "What leaves")
	for i := range items {
		p.text(place(i), 288, "mid", gray, "%d.", i+1)
	}
	p.leaving(318, "FIFO", "in order of arrival", items)
	p.leaving(400, "fairq", "round by round", served)
	p.add(`</svg>`)
	return p.Bytes()
}

// queues draws a line for each key, and the items in it from left to right as they arrive.
func (p *picture) queues(items []item) {
	p.text(28, 38, "head", dark, "What arrives")
	p.text(28, 58, "note", gray, "the number is the place in the order of arrival")
	for i, key := range "ABC" {
		y := 98 + 44*i
		p.text(30, y+6, "key", colors[key], "%c", key)
		p.add(`<rect x="50" y="%d" width="%d" height="38" rx="6" fill="%s"/>`, y-19, 38*len(items)+4,
			band)
	}
	for i, it := range items {
		p.item(71+38*i, 98+44*int(it.key-'A'), it)
	}
	x := 52 + 38*len(items)
	p.add(`<path d="M52 226H%d" stroke="%s" stroke-width="1.5"/><path d="M%d `+
		`221l8 5l-8 5z" fill="%s"/>`, x-8, gray, x-8, gray)
	p.text(52, 246, "note", gray, "time")
}

// rounds draws a column for each round.
func (p *picture) rounds(rounds [][]item) {
	p.text(458, 38, "head", dark, "Rounds: one item of each key")
	p.text(458, 58, "note", gray, "round by round, top to bottom: in each by order of arrival")
	for i, round := range rounds {
		x := 458 + 67*i
		p.add(`<rect x="%d" y="79" width="57" height="126" rx="6" fill="%s"/>`, x, band)
		for j, it := range round {
			p.item(x+28, 98+44*j, it)
		}
		p.text(x+28, 228, "mid", gray, "round %d", i+1)
	}
}

func place(i int) int { return 215 + 74*i }

// leaving draws a line of items in the order in which they leave, and marks the last one of each
// key.
func (p *picture) leaving(y int, name, how string, items []item) {
	p.add(`<rect x="150" y="%d" width="702" height="40" rx="6" fill="%s"/>`, y-20, band)
	p.text(28, y, "key", dark, "%s", name)
	p.text(28, y+17, "note", gray, "%s", how)
	last := map[rune]int{}
	for i, it := range items {
		p.item(place(i), y, it)
		last[it.key] = i
	}
	for _, key := range "ABC" {
		x := place(last[key])
		p.add(`<path d="M%d %dl5 7h-10z" fill="%s"/>`, x, y+22, colors[key])
		p.text(x, y+42, "mark", colors[key], "%c is done", key)
	}
}
