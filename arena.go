package fairq

import (
	"iter"
	"math/bits"
	"slices"
)

// Items and keys live in slots, which are numbered with 32 bits and used again. Slot 0 is never
// handed out, so 0 means "none" wherever a slot is named.
const (
	chunkBits  = 12
	chunkSlots = 1 << chunkBits // one bit for each, in 64 words
	chunkMask  = chunkSlots - 1
	firstSlots = 16 // of chunk 0 at the beginning, so that a small queue is small
)

// column holds one field of all slots, in chunks. Growing moves no slot, except in chunk 0, which
// doubles until it is as long as the others. So no call copies more than chunkSlots/2 slots. Chunk
// 0 is outside the directory, because most queues are short.
type column[T any] struct {
	near []T
	far  [][]T // by number of the chunk; 0 is not used
}

func (c *column[T]) at(slot uint32) *T {
	if int(slot) < len(c.near) {
		return &c.near[slot]
	}
	return &c.far[slot>>chunkBits][slot&chunkMask]
}

// has reports whether a slot is addressable.
func (c *column[T]) has(slot uint32) bool {
	chunk := int(slot >> chunkBits)
	return int(slot) < len(c.near) || 0 < chunk && chunk < len(c.far) && c.far[chunk] != nil
}

// reach makes a slot addressable.
func (c *column[T]) reach(slot uint32) {
	if c.has(slot) {
		return
	}
	chunk := int(slot >> chunkBits)
	if chunk == 0 {
		near := make([]T, max(firstSlots, 1<<bits.Len32(slot)))
		copy(near, c.near)
		c.near = near
		return
	}
	for len(c.far) <= chunk {
		c.far = append(c.far, nil)
	}
	c.far[chunk] = make([]T, chunkSlots)
}

// drop frees the memory of a chunk.
func (c *column[T]) drop(chunk int) {
	if chunk < len(c.far) {
		c.far[chunk] = nil
	}
}

// outline copies the directory and shares the chunks. Without the lock, only their lengths may be
// read.
func (c *column[T]) outline() column[T] { return column[T]{c.near, slices.Clone(c.far)} }

// blank returns an empty column as long as c. It writes to all of its memory, so that the system
// has it in place before copyTo is called.
func (c *column[T]) blank() column[T] {
	b := column[T]{make([]T, len(c.near)), make([][]T, len(c.far))}
	clear(b.near)
	for i, chunk := range c.far {
		b.far[i] = make([]T, len(chunk))
		clear(b.far[i])
	}
	return b
}

// copyTo makes b a copy of c. It allocates only what b is too short for.
func (c *column[T]) copyTo(b *column[T]) {
	b.near = append(b.near[:0], c.near...)
	for len(b.far) < len(c.far) {
		b.far = append(b.far, nil)
	}
	for i, chunk := range c.far {
		b.far[i] = append(b.far[i][:0], chunk...)
	}
}

// all iterates over all slots, free or not, even while the column grows and shrinks.
func (c *column[T]) all() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		chunk := c.near
		for i := 0; ; chunk = c.far[i] {
			for slot := range chunk {
				if !yield(uint32(i<<chunkBits|slot), &chunk[slot]) {
					return
				}
			}
			if i++; i >= len(c.far) {
				return
			}
		}
	}
}

// allocator knows which slots are free. The slots freed last are in a short list, the field cache.
// They are used first, because the processor's cache probably has their memory. The other free
// slots are bits in a bitmap for each chunk. The allocator takes slots from one chunk until that
// is full, so that other chunks can become empty, and frees a chunk without used slots. All calls
// are O(1).
type allocator struct {
	// cache has the slots freed last, as many as cached. They count as used, so that a chunk does
	// not come and go with each call. maxCached is bigCache while chunk 0, which always stays, is
	// the only one, else smallCache.
	cache             [bigCache]uint32
	cached, maxCached uint

	firstLen   uint32 // the number of slots of chunk 0
	withFree   *slotChunk
	chunks     []*slotChunk
	chunkCount int        // without freed chunks
	emptyChunk *slotChunk // the one chunk kept although it has no used slot; nil if there is none
	missing    int        // no chunk below this number is missing
}

const (
	bigCache   = 64
	smallCache = 8
)

// slotChunk is what an allocator knows of a chunk. Chunks with free slots are linked in withFree.
// A chunk that was full and gets a free slot goes to the front.
type slotChunk struct {
	free       [chunkSlots / 64]uint64 // a bit for each slot: is it free?
	freeWords  uint64                  // a bit for each word of free: is it not 0?
	used       uint32
	number     uint32
	prev, next *slotChunk
}

// takeCached returns a free slot from the cache, 0 if that is empty.
func (a *allocator) takeCached() (slot uint32) {
	if a.cached == 0 {
		return 0
	}
	a.cached--
	return a.cache[a.cached%bigCache]
}

// cacheSlot puts a slot that was freed into the cache. It returns false if that is full.
func (a *allocator) cacheSlot(slot uint32) (ok bool) {
	if a.cached >= a.maxCached {
		return false
	}
	a.cache[a.cached%bigCache] = slot
	a.cached++
	return true
}

// takeFree returns a free slot from a bitmap, or a new one. The cache must be empty, and gets some
// slots with lower numbers. So a caller that makes the returned slot addressable makes these
// addressable too.
func (a *allocator) takeFree() (slot uint32) {
	if a.withFree == nil {
		a.grow()
	}
	c := a.withFree
	w := bits.TrailingZeros64(c.freeWords)
	free := c.free[w]
	for {
		slot = c.number<<chunkBits | uint32(w<<6|bits.TrailingZeros64(free))
		free &= free - 1
		c.used++
		if free == 0 || a.cached >= a.maxCached/2 {
			break
		}
		a.cacheSlot(slot)
	}
	c.free[w] = free
	if c == a.emptyChunk {
		a.emptyChunk = nil
	}
	if free == 0 {
		c.freeWords &^= 1 << w
		if c.freeWords == 0 {
			a.unlink(c)
		}
	}
	return slot
}

// flushCache marks cached slots as free in their chunks, the oldest first, until only keep are
// left. It drops all chunks without a used slot but one. So a queue whose length swings about the
// end of a chunk does not allocate each time. (Chunk 0 always stays, because slot 0 counts as
// used.)
func (a *allocator) flushCache(keep uint, drop func(chunk int)) {
	n := a.cached - min(keep, a.cached)
	for _, slot := range a.cache[:n] {
		c := a.chunks[slot>>chunkBits]
		if c.freeWords == 0 {
			a.link(c)
		}
		w := slot & chunkMask >> 6
		c.free[w] |= 1 << (slot & 63)
		c.freeWords |= 1 << w
		c.used--
		if c.used == 0 && a.emptyChunk == nil {
			a.emptyChunk = c
		} else if c.used == 0 {
			a.dropChunk(c, drop)
		}
	}
	a.cached = uint(copy(a.cache[:], a.cache[n:a.cached]))
}

// clear drops all chunks but chunk 0. No slot may be in use, and there must be another chunk.
func (a *allocator) clear(drop func(chunk int)) {
	a.flushCache(0, drop)
	a.dropChunk(a.emptyChunk, drop)
	a.emptyChunk = nil
}

func (a *allocator) dropChunk(c *slotChunk, drop func(chunk int)) {
	a.unlink(c)
	a.chunks[c.number] = nil
	a.missing = min(a.missing, int(c.number))
	if a.chunkCount--; a.chunkCount == 1 {
		a.maxCached = bigCache
	}
	drop(int(c.number))
}

// grow adds free slots: the next part of chunk 0 or another chunk.
func (a *allocator) grow() {
	from, to := uint32(0), uint32(chunkSlots)
	switch {
	case a.firstLen == 0:
		a.chunks = append(a.chunks, &slotChunk{used: 1}) // slot 0
		from, to, a.firstLen = 1, firstSlots, firstSlots
		a.chunkCount, a.maxCached = 1, bigCache
	case a.firstLen < chunkSlots:
		from, to = a.firstLen, 2*a.firstLen
		a.firstLen = to
	default:
		for a.missing < len(a.chunks) && a.chunks[a.missing] != nil {
			a.missing++
		}
		if a.missing == len(a.chunks) {
			a.chunks = append(a.chunks, nil)
		}
		a.chunks[a.missing] = &slotChunk{number: uint32(a.missing)}
		a.chunkCount++
		a.maxCached = smallCache
	}
	c := a.chunks[a.missing]
	for slot := from; slot < to; slot++ {
		c.free[slot>>6] |= 1 << (slot & 63)
		c.freeWords |= 1 << (slot >> 6)
	}
	a.link(c)
}

func (a *allocator) link(c *slotChunk) {
	c.prev, c.next = nil, a.withFree
	if a.withFree != nil {
		a.withFree.prev = c
	}
	a.withFree = c
}

func (a *allocator) unlink(c *slotChunk) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		a.withFree = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
}
