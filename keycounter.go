package fairq

import (
	"cmp"
	"slices"
	"time"
)

// Counts is how often something happened to the items of a key, and what those have cost that were
// delivered.
type Counts struct {
	Served  uint64 `json:"served"`  // delivered
	Refused uint64 `json:"refused"` // not accepted: the queue or the key's share of it was full
	Evicted uint64 `json:"evicted"` // dropped to make room
	Cost    uint64 `json:"cost"`    // of those delivered, 0 without costs
}

func (c Counts) sum() uint64 { return c.Served + c.Refused + c.Evicted }

func (c *Counts) add(d Counts) {
	c.Served += d.Served
	c.Refused += d.Refused
	c.Evicted += d.Evicted
	c.Cost += d.Cost
}

func (c *Counts) halve(times int64) {
	n := min(times, 64)
	c.Served >>= n
	c.Refused >>= n
	c.Evicted >>= n
	c.Cost >>= n
}

// KeyCount is what a [KeyCounter] knows of a key.
type KeyCount[K comparable] struct {
	Key   K      `json:"key"`
	Total Counts `json:"total"` // since the key was counted first

	// Recent is the same, halved at each full minute: with n events a minute it is n to 2n.
	Recent Counts `json:"recent"`

	// Missed is how many events of the key may be missing in Total, at most, all kinds together:
	// those before it was counted.
	Missed uint64 `json:"missed"`
}

// KeyCounter counts by key in bounded memory, to tell which keys get the service, and which are
// refused. It knows the heaviest keys only: if all places are taken, a new key takes that of the
// lightest. It inherits its count as an error, [KeyCount.Missed], which is at most all that was
// counted, divided by the number of places. Every key with more than that has a place. (This is
// Space-Saving, from Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
// elements in data streams", 2005.)
//
// A KeyCounter is not safe for use by several goroutines at once. [Options.CountKeys] gives a
// FairQueue one.
type KeyCounter[K comparable] struct {
	entries map[K]*keyEntry[K]
	nan     *keyEntry[K]   // for all keys that are not equal to themselves, such as NaN
	heap    []*keyEntry[K] // the key with the least count is first
}

type keyEntry[K comparable] struct {
	KeyCount[K]
	index  int   // in the heap
	minute int64 // of the clock, when Recent was halved last
}

func (e *keyEntry[K]) count() uint64 { return e.Missed + e.Total.sum() }

func (e *keyEntry[K]) age(now time.Time) {
	if minute := now.Unix() / 60; minute > e.minute {
		e.Recent.halve(minute - e.minute)
		e.minute = minute
	}
}

// NewKeyCounter returns a KeyCounter with places for n keys, at least one.
func NewKeyCounter[K comparable](n int) *KeyCounter[K] {
	return &KeyCounter[K]{entries: map[K]*keyEntry[K]{}, heap: make([]*keyEntry[K], 0, max(n, 1))}
}

// Add counts what has happened to a key. It is O(log places).
func (c *KeyCounter[K]) Add(key K, d Counts, now time.Time) {
	e := c.entries[key]
	if key != key {
		e = c.nan
	}
	if e == nil {
		e = c.newEntry(key)
	}
	e.age(now)
	e.Total.add(d)
	e.Recent.add(d)
	c.siftDown(e)
}

// newEntry makes an entry for a key, or takes over that of the key with the least count.
func (c *KeyCounter[K]) newEntry(key K) *keyEntry[K] {
	var e *keyEntry[K]
	if len(c.heap) < cap(c.heap) {
		e = &keyEntry[K]{index: len(c.heap)}
		c.heap = append(c.heap, e)
		for e.index > 0 { // its count is 0, so it belongs to the front
			c.swap(e.index, (e.index-1)/2)
		}
	} else {
		e = c.heap[0]
		delete(c.entries, e.Key)
		if e == c.nan {
			c.nan = nil
		}
		*e = keyEntry[K]{KeyCount: KeyCount[K]{Missed: e.count()}}
	}
	e.Key = key
	if key != key {
		c.nan = e
	} else {
		c.entries[key] = e
	}
	return e
}

// siftDown moves an entry whose count has grown to where it belongs in the heap.
func (c *KeyCounter[K]) siftDown(e *keyEntry[K]) {
	for {
		least := e.index
		for child := 2*e.index + 1; child <= 2*e.index+2 && child < len(c.heap); child++ {
			if c.heap[child].count() < c.heap[least].count() {
				least = child
			}
		}
		if least == e.index {
			return
		}
		c.swap(e.index, least)
	}
}

func (c *KeyCounter[K]) swap(i, j int) {
	h := c.heap
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Top returns the n keys that were counted most, Missed included, heaviest first; if there are
// fewer, all. It is O(places * log places).
func (c *KeyCounter[K]) Top(n int, now time.Time) []KeyCount[K] {
	heaviest := slices.SortedFunc(slices.Values(c.heap), func(a, b *keyEntry[K]) int { return cmp.Compare(b.count(), a.count()) })
	counts := make([]KeyCount[K], 0, max(0, min(n, len(heaviest))))
	for _, e := range heaviest[:cap(counts)] {
		e.age(now)
		counts = append(counts, e.KeyCount)
	}
	return counts
}
