package mvcc

import (
	"bytes"
	"math/rand/v2"

	"github.com/fairq/fairq/store/internal/kv"
)

// node is a tree of entries in the order of keys, nil if there are none: a treap. It is never
// changed. What makes another one of it shares all but the path from the root with it, so each
// version of the database is a root.
type node struct {
	kv.Entry
	left, right *node
	priority    uint32
}

// split returns those before a key, and the others.
func (n *node) split(key []byte) (before, others *node) {
	if n == nil {
		return nil, nil
	}
	c := *n
	if bytes.Compare(n.Key, key) < 0 {
		c.right, others = n.right.split(key)
		return &c, others
	}
	before, c.left = n.left.split(key)
	return before, &c
}

// join returns a tree of both, of which all of the first come before all of the other.
func join(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		c := *a
		c.right = join(a.right, b)
		return &c
	}
	c := *b
	c.left = join(a, b.left)
	return &c
}

// with returns a tree in which there is nothing from one key on and before another, but an entry,
// if that is not nil.
func (n *node) with(from, to []byte, e *kv.Entry) *node {
	before, rest := n.split(from)
	_, behind := rest.split(to)
	if e != nil {
		before = join(before, &node{Entry: *e, priority: rand.Uint32()})
	}
	return join(before, behind)
}

func (n *node) get(key []byte) []byte {
	for n != nil {
		switch c := bytes.Compare(key, n.Key); {
		case c == 0:
			return n.Value
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return nil
}

// scan yields what is from one key on and before another, and returns false if that was too much.
func (n *node) scan(from, to []byte, desc bool, yield func(kv.Entry) bool) bool {
	if n == nil {
		return true
	}
	after, before := bytes.Compare(n.Key, from) >= 0, bytes.Compare(n.Key, to) < 0
	first, goesFirst, second, goesSecond := n.left, after, n.right, before
	if desc {
		first, goesFirst, second, goesSecond = n.right, before, n.left, after
	}
	return (!goesFirst || first.scan(from, to, desc, yield)) &&
		(!after || !before || yield(n.Entry)) &&
		(!goesSecond || second.scan(from, to, desc, yield))
}
