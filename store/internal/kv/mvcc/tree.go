package mvcc

import (
	"bytes"
	"math/rand/v2"

	"github.com/fairq/fairq/store/internal/kv"
)

// node is the root of a treap: a tree of entries in the order of keys, nil without entries. A
// treap is never changed. A changed copy shares all nodes with it but those on the path from the
// root, so each version of the database is a root.
type node struct {
	kv.Entry
	left, right *node
	priority    uint32
}

// split returns a tree of the entries before a key, and one of the others.
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

// join returns a tree of the entries of a and b. All keys of a must be less than those of b.
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

// with returns a tree without the keys from <= key < to. If e is not nil, to must be next(from),
// and the tree has the entry e with the key from.
func (n *node) with(from, to []byte, e *kv.Entry) *node {
	switch {
	case e != nil:
		return n.put(&node{Entry: *e, priority: rand.Uint32()})
	case len(to) == len(from)+1 && to[len(from)] == 0 && bytes.HasPrefix(to, from): // as next(from)
		return n.without(from)
	}
	before, rest := n.split(from)
	_, behind := rest.split(to)
	return join(before, behind)
}

// put returns a tree with an entry, which replaces any entry with its key.
func (n *node) put(e *node) *node {
	if n == nil {
		return e
	}
	order := bytes.Compare(e.Key, n.Key)
	c := *n
	switch {
	case order == 0:
		c.Entry = e.Entry
	case e.priority > n.priority:
		before, others := n.without(e.Key).split(e.Key)
		return &node{e.Entry, before, others, e.priority}
	case order < 0:
		c.left = n.left.put(e)
	default:
		c.right = n.right.put(e)
	}
	return &c
}

// without returns a tree without a key.
func (n *node) without(key []byte) *node {
	if n == nil {
		return nil
	}
	c := *n
	switch order := bytes.Compare(key, n.Key); {
	case order == 0:
		return join(n.left, n.right)
	case order < 0:
		c.left = n.left.without(key)
	default:
		c.right = n.right.without(key)
	}
	if c.left == n.left && c.right == n.right {
		return n // the key is not in the tree
	}
	return &c
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

// scan yields the entries with keys from <= key < to, and returns false once yield does.
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
