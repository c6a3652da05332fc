package fairq

const (
	roundBits = 8
	roundMask = 1<<roundBits - 1
)

// ring is a circular list of turns, known by its last node; 0 if it is empty.
type ring = uint32

// rounds holds the rings of the round being delivered and of all later ones. It is a queue of chunks under a circular
// directory, so that nothing but the directory, one pointer for 256 rounds, is ever copied.
type rounds struct {
	cur  uint64 // the round being delivered; 0 before the first one begins
	now  ring   // what is left of it
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
	return &(*r.chunk(round))[(round-1)&roundMask]
}

// add begins a ring behind the furthest one.
func (r *rounds) add() *ring {
	if chunks := int(r.last>>roundBits - r.cur>>roundBits); chunks >= len(r.dir) {
		old := *r
		r.dir = make([]*roundChunk, max(2, 2*len(old.dir)))
		for i := range uint64(chunks) {
			round := r.cur + 1 + i<<roundBits
			*r.chunk(round) = *old.chunk(round)
		}
	}
	r.last++
	c := r.chunk(r.last)
	if *c == nil {
		*c, r.spare = r.spare, nil
		if *c == nil {
			*c = new(roundChunk)
		}
	}
	ring := &(*c)[(r.last-1)&roundMask]
	*ring = 0
	return ring
}

// advance ends the current round and begins the next one.
func (r *rounds) advance() {
	next := r.chunk(r.cur + 1)
	r.now = (*next)[r.cur&roundMask]
	r.cur++
	if r.cur&roundMask == 0 {
		*next, r.spare = nil, *next
	}
}

// retreat gives up the furthest round.
func (r *rounds) retreat() {
	end := r.chunk(r.last)
	r.last--
	if r.last&roundMask == 0 {
		*end, r.spare = nil, *end
	}
}

func (r *rounds) clone() rounds {
	d := *r
	d.spare = nil
	d.dir = make([]*roundChunk, len(r.dir))
	for i, c := range r.dir {
		if c != nil {
			copied := *c
			d.dir[i] = &copied
		}
	}
	return d
}
