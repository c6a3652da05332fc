package fairq

import (
	"iter"
	"math/bits"
	"slices"
)

// Items and keys live in rows: places addressed by a 32-bit number and recycled. Row 0 is never handed out, so that 0
// means "none" wherever a row is named.
const (
	chunkBits = 12
	chunkRows = 1 << chunkBits // as many as 64 words of 64 bits can mark
	chunkMask = chunkRows - 1
	firstRows = 16 // what chunk 0 begins with, so that a small queue is small
)

// A column holds one field of all rows, in chunks. Growing it never moves what is there, except in chunk 0, which doubles
// until it is as long as the others: no call copies more than chunkRows rows. Chunk 0 is reached without a detour, for
// most queues are short.
type column[T any] struct {
	near []T
	far  [][]T // by chunk; 0 is not used
}

func (c *column[T]) at(row uint32) *T {
	if int(row) < len(c.near) {
		return &c.near[row]
	}
	return &c.far[row>>chunkBits][row&chunkMask]
}

// has tells whether row can be addressed.
func (c *column[T]) has(row uint32) bool {
	chunk := int(row >> chunkBits)
	return int(row) < len(c.near) || 0 < chunk && chunk < len(c.far) && c.far[chunk] != nil
}

// reach makes row addressable.
func (c *column[T]) reach(row uint32) {
	if c.has(row) {
		return
	}
	chunk := int(row >> chunkBits)
	if chunk == 0 {
		near := make([]T, max(firstRows, 1<<bits.Len32(row)))
		copy(near, c.near)
		c.near = near
		return
	}
	for len(c.far) <= chunk {
		c.far = append(c.far, nil)
	}
	c.far[chunk] = make([]T, chunkRows)
}

// drop gives the memory of a chunk back.
func (c *column[T]) drop(chunk int) {
	if chunk < len(c.far) {
		c.far[chunk] = nil
	}
}

// outline copies the directory and shares the chunks. Their lengths may be read without the lock, but not what is in them.
func (c *column[T]) outline() column[T] { return column[T]{c.near, slices.Clone(c.far)} }

// blank returns a column as long as c, whose memory is in place: it has been written to.
func (c *column[T]) blank() column[T] {
	b := column[T]{make([]T, len(c.near)), make([][]T, len(c.far))}
	clear(b.near)
	for i, chunk := range c.far {
		b.far[i] = make([]T, len(chunk))
		clear(b.far[i])
	}
	return b
}

// copyTo makes b a copy of c, in b's memory as far as it goes.
func (c *column[T]) copyTo(b *column[T]) {
	b.near = append(b.near[:0], c.near...)
	for len(b.far) < len(c.far) {
		b.far = append(b.far, nil)
	}
	for i, chunk := range c.far {
		b.far[i] = append(b.far[i][:0], chunk...)
	}
}

// all iterates over all rows there are.
func (c *column[T]) all() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		for row := range c.near {
			if !yield(uint32(row), &c.near[row]) {
				return
			}
		}
		for i, chunk := range c.far {
			for row := range chunk {
				if !yield(uint32(i<<chunkBits|row), &chunk[row]) {
					return
				}
			}
		}
	}
}

// rows knows which rows are free. It keeps the rows that were freed last at hand, for these are in the processor's cache,
// and all others in a bitmap for each chunk. Those are taken from one chunk until it is full, so that the others empty; a
// chunk without a used row is given back. All calls are O(1).
type rows struct {
	hand   [handful]uint32
	n      uint   // rows at hand. They count as used, so that a chunk does not come and go with each call
	most   uint   // rows that may be at hand: handful as long as there is but chunk 0, which stays anyway; otherwise few
	first  uint32 // how many rows chunk 0 has by now
	open   *rowChunk
	chunks []*rowChunk
	live   int       // how many there are
	empty  *rowChunk // one of which no row is in use: the next one is given back
	gap    int       // no chunk below this one is missing
}

const (
	handful = 64
	few     = 8
)

// rowChunk is what rows knows about one chunk. The chunks with free rows are linked; the one filled up most recently
// comes first.
type rowChunk struct {
	free       [chunkRows / 64]uint64 // a bit for every row: is it free?
	words      uint64                 // a bit for every word of free: has it a bit set?
	used       uint32
	number     uint32
	prev, next *rowChunk
}

// take returns a row at hand, 0 if there is none.
func (r *rows) take() (row uint32) {
	if r.n == 0 {
		return 0
	}
	r.n--
	return r.hand[r.n%handful]
}

// give takes a row into the hand, and returns false if that is full.
func (r *rows) give(row uint32) (ok bool) {
	if r.n >= r.most {
		return false
	}
	r.hand[r.n%handful] = row
	r.n++
	return true
}

// fetch returns a free row that is not at hand. It may be one that did not exist before.
func (r *rows) fetch() uint32 {
	if r.open == nil {
		r.grow()
	}
	c := r.open
	w := bits.TrailingZeros64(c.words)
	b := bits.TrailingZeros64(c.free[w])
	c.free[w] &^= 1 << b
	c.used++
	if c == r.empty {
		r.empty = nil
	}
	if c.free[w] == 0 {
		c.words &^= 1 << w
		if c.words == 0 {
			r.unlink(c)
		}
	}
	return c.number<<chunkBits | uint32(w<<6|b)
}

// putBack frees the rows that are longest at hand in their chunks, all but the given number. Chunks without a used row
// are dropped, but one, so that a queue whose length swings about a chunk's end does not allocate each time. (Chunk 0 always
// stays, because of row 0.)
func (r *rows) putBack(keep uint, drop func(chunk int)) {
	n := r.n - min(keep, r.n)
	for _, row := range r.hand[:n] {
		c := r.chunks[row>>chunkBits]
		if c.words == 0 {
			r.link(c)
		}
		w := row & chunkMask >> 6
		c.free[w] |= 1 << (row & 63)
		c.words |= 1 << w
		c.used--
		if c.used == 0 && r.empty == nil {
			r.empty = c
		} else if c.used == 0 {
			r.remove(c, drop)
		}
	}
	r.n = uint(copy(r.hand[:], r.hand[n:r.n]))
}

// clear gives back all chunks but the first. There must be more than that, and no row in use.
func (r *rows) clear(drop func(chunk int)) {
	r.putBack(0, drop)
	r.remove(r.empty, drop)
	r.empty = nil
}

func (r *rows) remove(c *rowChunk, drop func(chunk int)) {
	r.unlink(c)
	r.chunks[c.number] = nil
	r.gap = min(r.gap, int(c.number))
	if r.live--; r.live == 1 {
		r.most = handful
	}
	drop(int(c.number))
}

// grow adds free rows: the next part of chunk 0 or another chunk.
func (r *rows) grow() {
	from, to := uint32(0), uint32(chunkRows)
	switch {
	case r.first == 0:
		r.chunks = append(r.chunks, &rowChunk{used: 1}) // row 0 is never free
		from, to, r.first = 1, firstRows, firstRows
		r.live, r.most = 1, handful
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
		r.live++
		r.most = few
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
