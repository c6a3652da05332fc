package fairq

import "slices"

const (
	roundBits = 8
	roundMask = 1<<roundBits - 1
)

// ring is a circular list of turns, known by its last node, the tail; 0 if it is empty.
type ring = uint32

// rounds holds the rings of the current round and of all later ones. They are in chunks of 256
// under a circular directory, so that growing copies one pointer for 256 rounds, and no ring.
type rounds struct {
	current uint64 // the round being delivered, or the last one that was
	open    bool   // current has begun, and is not over
	head    uint32 // the first turn left of the current round; 0 if none is
	tail    ring   // the last one: the current round's ring, see Queue.ring
	last    uint64 // the furthest round, maybe current. No ring between the two is empty

	// The ring of round r is in chunk c = (r-1)>>roundBits, and that is dir[c % len(dir)];
	// len(dir) is a power of two.
	dir   []*roundChunk
	spare *roundChunk
}

type roundChunk [1 << roundBits]ring

func (r *rounds) chunk(round uint64) **roundChunk {
	return &r.dir[int((round-1)>>roundBits)&(len(r.dir)-1)]
}

// at returns the ring of a round from current to last.
func (r *rounds) at(round uint64) *ring {
	if round == r.current {
		return &r.tail
	}
	return r.later(round)
}

// later returns the ring of a round behind the current one.
func (r *rounds) later(round uint64) *ring { return &(*r.chunk(round))[(round-1)&roundMask] }

// add begins a ring behind the furthest one.
func (r *rounds) add() *ring {
	if r.last&roundMask == 0 {
		r.addChunk()
	}
	r.last++
	ring := r.later(r.last)
	*ring = 0
	return ring
}

// addChunk makes room for the rounds from last+1.
func (r *rounds) addChunk() {
	if chunks := int(r.last>>roundBits - r.current>>roundBits); chunks >= len(r.dir) {
		old := *r
		r.dir = make([]*roundChunk, max(2, 2*len(old.dir)))
		for i := range uint64(chunks) {
			round := r.current + 1 + i<<roundBits
			*r.chunk(round) = *old.chunk(round)
		}
	}
	c := r.chunk(r.last + 1)
	*c, r.spare = r.spare, nil
	if *c == nil {
		*c = new(roundChunk)
	}
}

// advance ends the current round and begins the next one.
func (r *rounds) advance() {
	r.current++
	r.open = true
	r.tail = *r.later(r.current)
	if r.current&roundMask == 0 {
		r.dropChunk(r.current)
	}
}

// dropChunk gives up the chunk that a round is in, and keeps its memory for the next one.
func (r *rounds) dropChunk(round uint64) {
	c := r.chunk(round)
	*c, r.spare = nil, *c
}

// retreat gives up the furthest round, which has lost its last turn.
func (r *rounds) retreat() {
	r.last--
	if r.last&roundMask == 0 {
		r.dropChunk(r.last + 1)
	}
}

// outline, blank and copyTo are for snapshots, as those of a column.
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
		if c == nil {
			continue
		}
		if dir[i] == nil {
			dir[i] = new(roundChunk)
		}
		*dir[i] = *c
	}
}
