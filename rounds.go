package fairq

import "slices"

const (
	roundBits = 8
	roundMask = 1<<roundBits - 1
)

// ring is a circular list of turns, known by its last node; 0 if it is empty.
type ring = uint32

// rounds holds the rings of the round being delivered and of all later ones. It is a queue of chunks under a circular
// directory, so that nothing but the directory, one pointer for 256 rounds, is ever copied.
type rounds struct {
	cur  uint64 // the round being delivered, or the last one that was
	open bool   // cur has begun, and is not over
	head uint32 // the first turn of what is left of it; 0 if nothing is
	now  ring   // what is left of it, see Queue.ring
	last uint64 // the furthest round. No ring after cur up to last is empty; last is cur if there is none

	// The ring of round r is in chunk c = (r-1)>>roundBits, and that is dir[c % len(dir)]; len(dir) is a power of two.
	dir   []*roundChunk
	spare *roundChunk
}

type roundChunk [1 << roundBits]ring

func (r *rounds) chunk(round uint64) **roundChunk {
	return &r.dir[int((round-1)>>roundBits)&(len(r.dir)-1)]
}

// at returns the ring of a round from cur to last.
func (r *rounds) at(round uint64) *ring {
	if round == r.cur {
		return &r.now
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
	if chunks := int(r.last>>roundBits - r.cur>>roundBits); chunks >= len(r.dir) {
		old := *r
		r.dir = make([]*roundChunk, max(2, 2*len(old.dir)))
		for i := range uint64(chunks) {
			round := r.cur + 1 + i<<roundBits
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
	r.cur++
	r.open = true
	r.now = *r.later(r.cur)
	if r.cur&roundMask == 0 {
		r.release(r.cur)
	}
}

// release gives back the chunk that a round is in, or keeps it to be the next one.
func (r *rounds) release(round uint64) {
	c := r.chunk(round)
	*c, r.spare = nil, *c
}

// retreat gives up the furthest round.
func (r *rounds) retreat() {
	r.last--
	if r.last&roundMask == 0 {
		r.release(r.last + 1)
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
