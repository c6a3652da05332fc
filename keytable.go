package fairq

import (
	"hash/maphash"
	"time"
)

// seed is the same for all tables. It differs between processes, so that no user can choose keys
// whose hashes are equal.
var seed = maphash.MakeSeed()

func hashOf[K comparable](key K) uint32 { return uint32(maphash.Comparable(seed, key)) }

// keyTable is a hash table for the states of keys. It grows and shrinks by one bucket at a time
// (linear hashing, Litwin 1980), so no call rebuilds it, and it frees memory as keys leave.
// Callers hash the keys before they take a lock, because hashing takes time and panics for some
// keys.
type keyTable[K comparable] struct {
	states     column[keyState[K]]
	histograms column[*Histogram]     // of waiting times; only if these are measured
	costs      column[keyCost]        // only with Queue.Cost
	shares     column[*sharingKey[K]] // only with Options.ShareTime; nil for keys without items
	buckets    column[uint32]         // the slot of the first key in each bucket
	size       uint32                 // the number of buckets
	mask       uint32                 // the least 2^n-1 that is at least size-1
	count      uint32                 // the number of keys
	nan        uint32                 // the slot of all keys that are not equal to themselves: NaN
	slots      allocator
}

const (
	minBuckets = 16
	minSpread  = 2 // buckets for each key, at least
	maxSpread  = 4 // at most; a remove merges up to 4, so the table shrinks as fast as keys leave
)

func (t *keyTable[K]) at(slot uint32) *keyState[K] { return t.states.at(slot) }

// bucket returns the bucket of a hash.
func (t *keyTable[K]) bucket(hash uint32) *uint32 {
	b := hash & t.mask
	if b >= t.size {
		b &= t.mask >> 1
	}
	return t.buckets.at(b)
}

// find returns the place of a key, the zero keyRef if it has none.
func (t *keyTable[K]) find(key K, hash uint32) keyRef[K] {
	if t.size > 0 {
		for slot := *t.bucket(hash); slot != 0; {
			s := t.at(slot)
			if s.hash == hash && s.key == key {
				return keyRef[K]{slot, s}
			}
			slot = s.nextInBucket
		}
	}
	if t.nan != 0 && key != key {
		return keyRef[K]{t.nan, t.at(t.nan)}
	}
	return keyRef[K]{}
}

// insert adds a key that is not in the table.
func (t *keyTable[K]) insert(key K, hash uint32) uint32 {
	slot := t.slots.takeCached()
	if slot == 0 {
		slot = t.slots.takeFree()
		t.states.reach(slot)
	}
	t.count++
	for t.size < max(minBuckets, minSpread*t.count) {
		t.split()
	}
	b := t.bucket(hash)
	s := t.at(slot)
	s.key, s.hash, s.nextInBucket = key, hash, *b
	*b = slot
	if key != key {
		t.nan = slot
	}
	return slot
}

// remove forgets the key in a slot.
func (t *keyTable[K]) remove(slot uint32) {
	s := t.at(slot)
	at := t.bucket(s.hash)
	for *at != slot {
		at = &t.at(*at).nextInBucket
	}
	*at = s.nextInBucket
	if t.nan == slot {
		t.nan = 0
	}
	*s = keyState[K]{}
	t.count--
	if !t.slots.cacheSlot(slot) {
		t.slots.flushCache(t.slots.maxCached/2, t.drop)
		t.slots.cacheSlot(slot)
	}
	if t.count == 0 && t.slots.chunkCount > 1 {
		t.slots.clear(t.drop)
	}
	for n := 0; n < maxSpread && t.size > max(minBuckets, maxSpread*t.count); n++ {
		t.merge()
	}
}

// addWait counts the wait of an item. A key gets its histogram with the first item that has
// another one behind it, because many keys never have two items.
func (t *keyTable[K]) addWait(slot uint32, wait time.Duration) {
	if t.at(slot).len == 1 {
		t.dropHistogram(slot)
		return
	}
	h := t.histogram(slot)
	if h == nil {
		h = new(Histogram)
		t.histograms.reach(slot)
		*t.histograms.at(slot) = h
	}
	h.Add(wait)
}

// histogram returns the waits of a key, nil if none was counted.
func (t *keyTable[K]) histogram(slot uint32) *Histogram {
	if !t.histograms.has(slot) {
		return nil
	}
	return *t.histograms.at(slot)
}

// dropHistogram forgets the waits of a key.
func (t *keyTable[K]) dropHistogram(slot uint32) {
	if t.histograms.has(slot) {
		*t.histograms.at(slot) = nil
	}
}

// drop frees the memory of a chunk of keys.
func (t *keyTable[K]) drop(chunk int) {
	t.states.drop(chunk)
	t.histograms.drop(chunk)
	t.costs.drop(chunk)
	t.shares.drop(chunk)
}

// beginCost is called for a new key of a queue with costs.
func (t *keyTable[K]) beginCost(slot uint32) {
	t.costs.reach(slot)
	*t.costs.at(slot) = keyCost{}
}

// split adds a bucket, and moves its keys there. They are all in one other bucket.
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
		slot := *from
		s := t.at(slot)
		if s.hash&t.mask == b {
			*from, s.nextInBucket, *to = s.nextInBucket, *to, slot
		} else {
			from = &s.nextInBucket
		}
	}
}

// merge undoes the last split.
func (t *keyTable[K]) merge() {
	t.size--
	b := t.size
	end := t.buckets.at(b & (t.mask >> 1))
	for *end != 0 {
		end = &t.at(*end).nextInBucket
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
