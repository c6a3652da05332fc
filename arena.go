package fairq

import "math/bits"

// Items and keys live in rows: places addressed by a 32-bit number and recycled. Row 0 is never handed out, so that 0
// means "none" wherever a row is named.
const (
	chunkBits = 11
	chunkRows = 1 << chunkBits
	chunkMask = chunkRows - 1
	firstRows = 16 // what chunk 0 begins with, so that a small queue is small
)

// A column holds one field of all rows, in chunks. Growing it never moves what is there, except inside chunk 0, which
// doubles until it is as long as the others: no call copies more than chunkRows rows.
type column[T any] [][]T

func (c column[T]) at(row uint32) *T { return &c[row>>chunkBits][row&chunkMask] }

// has tells whether row can be addressed.
func (c column[T]) has(row uint32) bool {
	return int(row>>chunkBits) < len(c) && int(row&chunkMask) < len(c[row>>chunkBits])
}

// reach makes row addressable.
func (c *column[T]) reach(row uint32) {
	if c.has(row) {
		return
	}
	chunk, size := int(row>>chunkBits), chunkRows
	if chunk == 0 {
		size = max(firstRows, 1<<bits.Len32(row))
	}
	for len(*c) <= chunk {
		*c = append(*c, nil)
	}
	old := (*c)[chunk]
	(*c)[chunk] = make([]T, size)
	copy((*c)[chunk], old)
}

// drop gives the memory of a chunk back.
func (c column[T]) drop(chunk int) {
	if chunk < len(c) {
		c[chunk] = nil
	}
}

func (c column[T]) clone() column[T] {
	d := make(column[T], len(c))
	for i, chunk := range c {
		d[i] = append([]T(nil), chunk...)
	}
	return d
}

// rows knows which rows are free. Rows are taken from one chunk until it is full, so that the others empty; a chunk
// without a used row is given back. Both calls are O(1).
type rows struct {
	// last is the row freed last, if it is still free. Who needs a row takes it first, for it is in the processor's cache; who
	// frees another one gives it. Until then it counts as used, so that a chunk does not come and go with each call.
	last   uint32
	first  uint32 // how many rows chunk 0 has by now
	open   *rowChunk
	chunks []*rowChunk
	gap    int // no chunk below this one is missing
}

// rowChunk is what rows knows about one chunk. The chunks with free rows are linked; the one filled up most recently
// comes first.
type rowChunk struct {
	free       [chunkRows / 64]uint64 // a bit for every row: is it free?
	words      uint32                 // a bit for every word of free: has it a bit set?
	used       uint32
	number     uint32
	prev, next *rowChunk
}

// take returns a free row, other than last.
func (r *rows) take() uint32 {
	if r.open == nil {
		r.grow()
	}
	c := r.open
	w := bits.TrailingZeros32(c.words)
	b := bits.TrailingZeros64(c.free[w])
	c.free[w] &^= 1 << b
	c.used++
	if c.free[w] == 0 {
		c.words &^= 1 << w
		if c.words == 0 {
			r.unlink(c)
		}
	}
	return c.number<<chunkBits | uint32(w<<6|b)
}

// give frees a row. If that leaves a chunk without used rows, its number is returned, and whoever holds columns drops
// that chunk of them; otherwise 0, for chunk 0 always stays.
func (r *rows) give(row uint32) (dropped int) {
	c := r.chunks[row>>chunkBits]
	if c.words == 0 {
		r.link(c)
	}
	w := row & chunkMask >> 6
	c.free[w] |= 1 << (row & 63)
	c.words |= 1 << w
	c.used--
	if c.used > 0 {
		return 0
	}
	r.unlink(c)
	r.chunks[c.number] = nil
	r.gap = min(r.gap, int(c.number))
	return int(c.number)
}

// grow adds free rows: the next part of chunk 0 or another chunk.
func (r *rows) grow() {
	from, to := uint32(0), uint32(chunkRows)
	switch {
	case r.first == 0:
		r.chunks = append(r.chunks, &rowChunk{used: 1}) // row 0 is never free
		from, to, r.first = 1, firstRows, firstRows
	case r.first < chunkRows:
		from, to = r.first, 2*r.first
		r.first = to
	default:
		for r.gap < len(r.chunks) && r.chunks[r.gap] != nil {
			r.gap++
		}
		if r.gap == len(r.chunks) {
			r.chunks = append(r.chunks, nil)
		}
		r.chunks[r.gap] = &rowChunk{number: uint32(r.gap)}
	}
	c := r.chunks[r.gap]
	for row := from; row < to; row++ {
		c.free[row>>6] |= 1 << (row & 63)
		c.words |= 1 << (row >> 6)
	}
	r.link(c)
}

func (r *rows) link(c *rowChunk) {
	c.prev, c.next = nil, r.open
	if r.open != nil {
		r.open.prev = c
	}
	r.open = c
}

func (r *rows) unlink(c *rowChunk) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		r.open = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
}
