// Package keycount has a [fairq.KeyCounter] that any number of goroutines can use.
package keycount

import (
	"sync"
	"time"

	"github.com/fairq/fairq"
)

// Counter counts by key. A nil one does not.
type Counter struct {
	mu     sync.Mutex // protects counts; nothing else is done under it
	counts *fairq.KeyCounter[string]
}

// New returns a Counter of n keys, nil if n is 0.
func New(n int) *Counter {
	if n == 0 {
		return nil
	}
	return &Counter{counts: fairq.NewKeyCounter[string](n)}
}

// Add counts what has happened to a key.
func (c *Counter) Add(key string, d fairq.Counts) {
	if c != nil {
		c.add(key, d)
	}
}

func (c *Counter) add(key string, d fairq.Counts) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Add(key, d, now)
}

// Top returns the n keys that were counted most, heaviest first; if there are fewer, all.
func (c *Counter) Top(n int) []fairq.KeyCount[string] {
	if c == nil {
		return nil
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts.Top(n, now)
}
