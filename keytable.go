package fairq

import (
	"hash/maphash"
	"time"
)

// seed is one for all tables: what makes hashes hard to foresee is that it differs between processes.
var seed = maphash.MakeSeed()

func hashOf[K comparable](key K) uint32 { return uint32(maphash.Comparable(seed, key)) }

// keyTable finds the state of a key: a hash table that grows and shrinks one bucket at a time (linear hashing, Litwin
// 1980), so that no call ever rebuilds it, and it gives memory back as keys leave. It is given each key's hash, since
// hashing may panic and takes time, and callers do it before they take a lock.
type keyTable[K comparable] struct {
	states  column[keyState[K]]
	waits   column[*Histogram] // only if waiting times are measured
	buckets column[uint32]     // the first row of each bucket's chain
	size    uint32             // number of buckets
	mask    uint32             // the least 2^n-1 that is size-1 or more
	count   uint32             // number of keys
	nan     uint32             // the row shared by all keys that are not equal to themselves
	rows    rows
}

const (
	minBuckets = 16
	minSpread  = 2 // buckets for each key, at least and
	maxSpread  = 4 // at most; it is also how many buckets a delete may merge, so that the table keeps up with a drain
)

func (t *keyTable[K]) at(row uint32) *keyState[K] { return t.states.at(row) }

func (t *keyTable[K]) bucket(hash uint32) *uint32 {
	b := hash & t.mask
	if b >= t.size {
		b &= t.mask >> 1
	}
	return t.buckets.at(b)
}

// find returns the row and the state of key, 0 and nil if it has none.
func (t *keyTable[K]) find(key K, hash uint32) (row uint32, s *keyState[K]) {
	if t.size > 0 {
		for row = *t.bucket(hash); row != 0; row = s.chain {
			s = t.at(row)
			if s.hash == hash && s.key == key {
				return row, s
			}
		}
	}
	if t.nan != 0 && key != key {
		return t.nan, t.at(t.nan)
	}
	return 0, nil
}

// insert adds a key that find does not find.
func (t *keyTable[K]) insert(key K, hash uint32) uint32 {
	row := t.rows.take()
	if row == 0 {
		row = t.rows.fetch()
		t.states.reach(row)
	}
	t.count++
	for t.size < max(minBuckets, minSpread*t.count) {
		t.split()
	}
	b := t.bucket(hash)
	s := t.at(row)
	s.key, s.hash, s.chain = key, hash, *b
	*b = row
	if key != key {
		t.nan = row
	}
	return row
}

// remove forgets a key that has nothing queued.
func (t *keyTable[K]) remove(row uint32) {
	s := t.at(row)
	at := t.bucket(s.hash)
	for *at != row {
		at = &t.at(*at).chain
	}
	*at = s.chain
	if t.nan == row {
		t.nan = 0
	}
	*s = keyState[K]{}
	t.count--
	if !t.rows.give(row) {
		t.rows.putBack(t.rows.most/2, t.drop)
		t.rows.give(row)
	}
	if t.count == 0 && t.rows.live > 1 {
		t.rows.clear(t.drop)
	}
	for n := 0; n < maxSpread && t.size > max(minBuckets, maxSpread*t.count); n++ {
		t.merge()
	}
}

// addWait counts how long an item of a key has waited, from the first one on that has others behind it:
// a key that never has two items is not worth a histogram.
func (t *keyTable[K]) addWait(row uint32, wait time.Duration) {
	h := t.wait(row)
	if h == nil && t.at(row).len > 1 {
		h = new(Histogram)
		t.waits.reach(row)
		*t.waits.at(row) = h
	}
	if h != nil {
		h.add(wait)
	}
}

// wait returns what addWait has counted, nil if that is nothing.
func (t *keyTable[K]) wait(row uint32) *Histogram {
	if !t.waits.has(row) {
		return nil
	}
	return *t.waits.at(row)
}

// forgetWait has a key begin anew.
func (t *keyTable[K]) forgetWait(row uint32) {
	if t.waits.has(row) {
		*t.waits.at(row) = nil
	}
}

// drop gives back the memory of a chunk of keys.
func (t *keyTable[K]) drop(chunk int) {
	t.states.drop(chunk)
	t.waits.drop(chunk)
}

// split adds a bucket and moves there what belongs into it, from the one bucket where it can be.
func (t *keyTable[K]) split() {
	b := t.size
	t.size++
	t.buckets.reach(b)
	if b > t.mask {
		t.mask = t.mask<<1 | 1
	}
	if b == 0 {
		return
	}
	to := t.buckets.at(b)
	for from := t.buckets.at(b & (t.mask >> 1)); *from != 0; {
		row := *from
		s := t.at(row)
		if s.hash&t.mask == b {
			*from, s.chain, *to = s.chain, *to, row
		} else {
			from = &s.chain
		}
	}
}

// merge undoes the last split.
func (t *keyTable[K]) merge() {
	t.size--
	b := t.size
	end := t.buckets.at(b & (t.mask >> 1))
	for *end != 0 {
		end = &t.at(*end).chain
	}
	*end = *t.buckets.at(b)
	*t.buckets.at(b) = 0
	if t.size-1 <= t.mask>>1 {
		t.mask >>= 1
	}
	if b&chunkMask == 0 {
		t.buckets.drop(int(b >> chunkBits))
	}
}
