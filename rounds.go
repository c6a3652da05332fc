package fairq

import (
	"iter"
	"math/bits"
	"slices"
)

const (
	roundBits = 8
	roundMask = 1<<roundBits - 1
)

// ring is a circular list of turns, known by its last node, the tail; 0 if it is empty.
type ring = uint32

// rounds holds the rings of the current round and of all later ones. They are in chunks of 256
// under a circular directory, so that growing copies one pointer for 256 rounds, and no ring.
// Without costs, no ring between the current and the last one is empty. With costs many may be
// empty. So a chunk without turns takes no memory but its pointer, and bitmaps skip empty rings.
// No gap is longer than the rounds that one item can use, so skipping it is O(1).
type rounds struct {
	current uint64 // the round being delivered, or the last delivered one
	open    bool   // current has begun, and is not over
	head    uint32 // the first turn left of the current round; 0 if there is none
	tail    ring   // the last one: the current round's ring, see Queue.ring
	last    uint64 // the furthest round with turns, at least current

	// The ring of round r is in chunk c = r>>roundBits, which is dir[c % len(dir)]; len(dir) is a
	// power of two. A chunk with turns is not nil, and neither is the chunk of the current round.
	dir   []*roundChunk
	spare *roundChunk // without turns
}

type roundChunk struct {
	rings [1 << roundBits]ring
	used  [1 << roundBits / 64]uint64 // a bit for each ring: has it turns?
}

func (r *rounds) chunk(round uint64) **roundChunk {
	return &r.dir[int(round>>roundBits)&(len(r.dir)-1)]
}

// later returns the ring of a round behind the current one, which has turns.
func (r *rounds) later(round uint64) *ring { return &(*r.chunk(round)).rings[round&roundMask] }

// tailOf returns the tail of the ring of any round from the current one, 0 if it is empty.
func (r *rounds) tailOf(round uint64) ring {
	if round == r.current {
		return r.tail
	}
	if round <= r.last {
		if c := *r.chunk(round); c != nil {
			return c.rings[round&roundMask]
		}
	}
	return 0
}

// all iterates over the rounds that have turns, the current one first.
func (r *rounds) all() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if r.tail != 0 && !yield(r.current) {
			return
		}
		for round := r.current; round < r.last; {
			if round = r.after(round); !yield(round) {
				return
			}
		}
	}
}

// add returns the ring of a round behind the current one, which has turns or is about to get its
// first one.
func (r *rounds) add(round uint64) *ring {
	var c *roundChunk
	if round <= r.last {
		c = *r.chunk(round)
	}
	if c == nil {
		c = r.addChunk(round)
	}
	c.used[round&roundMask>>6] |= 1 << (round & 63)
	r.last = max(r.last, round)
	return &c.rings[round&roundMask]
}

// addChunk returns the chunk of a round, and makes it if it is nil.
func (r *rounds) addChunk(round uint64) *roundChunk {
	if n := round>>roundBits - r.current>>roundBits; n >= uint64(len(r.dir)) {
		r.growDir(n)
	}
	c := r.chunk(round)
	if *c == nil {
		if *c, r.spare = r.spare, nil; *c == nil {
			*c = new(roundChunk)
		}
	}
	return *c
}

// growDir makes room for chunks up to the n-th behind that of the current round.
func (r *rounds) growDir(n uint64) {
	old := *r
	r.dir = make([]*roundChunk, max(2, 1<<bits.Len64(n)))
	for i := range uint64(len(old.dir)) {
		round := r.current + i<<roundBits
		*r.chunk(round) = *old.chunk(round)
	}
}

// end is called when a round behind the current one has lost its last turn.
func (r *rounds) end(round uint64) {
	at := r.chunk(round)
	c := *at
	c.used[round&roundMask>>6] &^= 1 << (round & 63)
	if round == r.last {
		r.last = r.before(round)
	}
	if round>>roundBits != r.current>>roundBits && c.used[0]|c.used[1]|c.used[2]|c.used[3] == 0 {
		*at, r.spare = nil, c
	}
}

// advance ends the current round and begins the next round with turns. There must be one.
func (r *rounds) advance() {
	next := r.current + 1
	c := *r.chunk(next)
	if c == nil || c.rings[next&roundMask] == 0 {
		next = r.after(next)
		c = *r.chunk(next)
	}
	r.tail, c.rings[next&roundMask] = c.rings[next&roundMask], 0
	c.used[next&roundMask>>6] &^= 1 << (next & 63)
	r.open = true
	r.moveTo(next)
}

// moveTo makes a round the current one. There must be no turns before it.
func (r *rounds) moveTo(round uint64) {
	if round>>roundBits != r.current>>roundBits && len(r.dir) > 0 {
		if c := r.chunk(r.current); *c != nil {
			*c, r.spare = nil, *c
		}
	}
	r.current, r.last = round, max(r.last, round)
}

// after returns the first round with turns behind the given one. There must be one.
func (r *rounds) after(round uint64) uint64 {
	for round++; ; round = (round>>6 + 1) << 6 {
		c := *r.chunk(round)
		if c == nil {
			round |= roundMask
			continue
		}
		if word := c.used[round&roundMask>>6] >> (round & 63); word != 0 {
			return round + uint64(bits.TrailingZeros64(word))
		}
	}
}

// before returns the last round with turns before the given one, or the current one if there is
// none behind it.
func (r *rounds) before(round uint64) uint64 {
	for round > r.current {
		round--
		c := *r.chunk(round)
		if c == nil {
			round &^= roundMask
			continue
		}
		if word := c.used[round&roundMask>>6] << (63 - round&63); word != 0 {
			return round - uint64(bits.LeadingZeros64(word))
		}
		round &^= 63
	}
	return r.current
}

// outline, blank and copyTo are for snapshots, like the methods of column.
func (r *rounds) outline() rounds { return rounds{dir: slices.Clone(r.dir)} }

func (r *rounds) blank() rounds {
	b := rounds{dir: make([]*roundChunk, len(r.dir))}
	for i, c := range r.dir {
		if c != nil {
			b.dir[i] = new(roundChunk)
		}
	}
	return b
}

func (r *rounds) copyTo(b *rounds) {
	dir := b.dir
	if len(dir) != len(r.dir) {
		dir = make([]*roundChunk, len(r.dir))
	}
	*b = *r
	b.dir, b.spare = dir, nil
	for i, c := range r.dir {
		switch {
		case c == nil:
			dir[i] = nil
			continue
		case dir[i] == nil:
			dir[i] = new(roundChunk)
		}
		*dir[i] = *c
	}
}
