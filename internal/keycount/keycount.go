// Package keycount counts by key in bounded memory, to find the keys that are served and refused
// most. The method is Space-Saving, from Metwally, Agrawal and El Abbadi, "Efficient computation
// of frequent and top-k elements in data streams", 2005. If all places are taken, a new key takes
// the place of the key with the least count, and inherits that count as its error. The error is at
// most the number of all events, divided by the number of places. Every key with more events than
// that has a place.
package keycount

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Counts is a fairq.Counts.
type Counts struct{ Served, Refused, Evicted, Cost uint64 }

// By returns the count that Top compares: refusals or service.
func By(refused bool) func(Counts) uint64 {
	if refused {
		return func(c Counts) uint64 { return c.Refused }
	}
	return func(c Counts) uint64 { return c.Served }
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

// Count has the counts of a key since it was first counted; the same counts, halved at each full
// minute; and how many earlier events may be missing.
type Count[K comparable] struct {
	Key           K
	Total, Recent Counts
	Missed        uint64
}

// Counter counts by key. Any number of goroutines can use it. A nil one does not count.
type Counter[K comparable] struct {
	mu      sync.Mutex
	entries map[K]*entry[K]
	nan     *entry[K]   // for all keys that are not equal to themselves, such as NaN
	heap    []*entry[K] // the key with the least count is first
}

type entry[K comparable] struct {
	Count[K]
	index  int   // in the heap
	minute int64 // of the clock, when Recent was halved last
}

func (e *entry[K]) count() uint64 { return e.Missed + e.Total.sum() }

func (e *entry[K]) age(now time.Time) {
	if minute := now.Unix() / 60; minute > e.minute {
		e.Recent.halve(minute - e.minute)
		e.minute = minute
	}
}

// New returns a Counter with places for n keys, nil if n is 0.
func New[K comparable](n int) *Counter[K] {
	if n == 0 {
		return nil
	}
	return &Counter[K]{entries: map[K]*entry[K]{}, heap: make([]*entry[K], 0, n)}
}

// Add counts an event of a key. It is O(log places).
func (c *Counter[K]) Add(key K, d Counts, now time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(key)
	if e == nil {
		e = c.newEntry(key)
	}
	e.age(now)
	e.Total.add(d)
	e.Recent.add(d)
	c.siftDown(e)
}

// newEntry makes an entry for a key, or takes over that of the key with the least count.
func (c *Counter[K]) newEntry(key K) *entry[K] {
	var e *entry[K]
	if len(c.heap) < cap(c.heap) {
		e = &entry[K]{index: len(c.heap)}
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
		*e = entry[K]{Count: Count[K]{Missed: e.count()}}
	}
	e.Key = key
	if key != key {
		c.nan = e
	} else {
		c.entries[key] = e
	}
	return e
}

// siftDown moves an entry whose count has grown to its place in the heap.
func (c *Counter[K]) siftDown(e *entry[K]) {
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

func (c *Counter[K]) swap(i, j int) {
	h := c.heap
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (c *Counter[K]) entry(key K) *entry[K] {
	if key != key {
		return c.nan
	}
	return c.entries[key]
}

// Of returns the counts of a key, which are 0 if it has no place. It is O(1).
func (c *Counter[K]) Of(key K, now time.Time) (count Count[K]) {
	if c == nil {
		return count
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entry(key); e != nil {
		e.age(now)
		count = e.Count
	}
	return count
}

// Top returns the n keys with the most of a kind of event lately, the most first. On a tie the key
// with more events since it was first counted is first. It is O(places * log places).
func (c *Counter[K]) Top(n int, of func(Counts) uint64, now time.Time) []Count[K] {
	if c == nil || n <= 0 {
		return nil
	}
	c.mu.Lock()
	counts := make([]Count[K], 0, len(c.heap))
	for _, e := range c.heap {
		if e.age(now); of(e.Total) > 0 {
			counts = append(counts, e.Count)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(counts, func(a, b Count[K]) int {
		return cmp.Or(cmp.Compare(of(b.Recent), of(a.Recent)), cmp.Compare(of(b.Total), of(a.Total)),
			cmp.Compare(b.Total.sum(), a.Total.sum()))
	})
	return slices.Clip(counts[:min(n, len(counts))])
}
