package memory

import "iter"

// heap is a heap whose elements know their places, so that any of them can be moved or removed in
// O(log n).
type heap[T element[T]] []T

// degree is the number of children of an element. With four instead of two, half as many elements
// move when the first one changes.
const degree = 4

type element[T any] interface {
	before(T) bool
	at() *int32 // one more than the index in the heap, 0 if it is in none
}

var (
	_ element[byTime]    = byTime{}
	_ element[byPlace]   = byPlace{}
	_ element[turn]      = turn{}
	_ element[*consumer] = (*consumer)(nil)
	_ element[*keyState] = (*keyState)(nil)
)

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	*x.at() = int32(len(*h))
	h.up(len(*h) - 1)
}

// fix restores the order after x has changed.
func (h *heap[T]) fix(x T) {
	i := int(*x.at()) - 1
	(*h)[i] = x
	if !h.down(i) {
		h.up(i)
	}
}

// index puts x into the heap, at its place, or takes it out.
func (h *heap[T]) index(x T, in bool) {
	switch is := *x.at() != 0; {
	case in && is:
		h.fix(x)
	case in:
		h.push(x)
	case is:
		h.remove(x)
	}
}

func (h *heap[T]) remove(x T) {
	s := *h
	i, last := int(*x.at())-1, len(s)-1
	moved := s[last]
	s[i], *moved.at(), *x.at() = moved, int32(i+1), 0
	var zero T
	s[last] = zero
	*h = s[:last]
	if i < last {
		h.fix(moved)
	}
	if last < cap(s)/4 && cap(s) > 64 {
		*h = append(make(heap[T], 0, cap(s)/2), *h...)
	}
}

func (h heap[T]) up(i int) {
	x := h[i]
	for i > 0 {
		parent := (i - 1) / degree
		if !x.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		*h[i].at() = int32(i + 1)
		i = parent
	}
	h[i] = x
	*x.at() = int32(i + 1)
}

// down reports whether it has moved the element.
func (h heap[T]) down(i int) bool {
	x, start := h[i], i
	for {
		child := degree*i + 1
		if child >= len(h) {
			break
		}
		last := min(child+degree, len(h))
		for other := child + 1; other < last; other++ {
			if h[other].before(h[child]) {
				child = other
			}
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		*h[i].at() = int32(i + 1)
		i = child
	}
	h[i] = x
	*x.at() = int32(i + 1)
	return i > start
}

// inOrder iterates over a heap in order, and changes nothing. Its candidates are the elements
// whose parents it has yielded, so n elements take O(n log n).
func inOrder[T element[T]](h heap[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		var next heap[*child[T]]
		add := func(i int) {
			if i < len(h) {
				next.push(&child[T]{element: h[i], index: i})
			}
		}
		for add(0); len(next) > 0; {
			c := next[0]
			if !yield(c.element) {
				return
			}
			next.remove(c)
			for i := range degree {
				add(degree*c.index + 1 + i)
			}
		}
	}
}

// child is an element of a heap within the heap of candidates.
type child[T element[T]] struct {
	element T
	index   int   // in its heap
	place   int32 // among the candidates
}

func (c *child[T]) before(other *child[T]) bool { return c.element.before(other.element) }
func (c *child[T]) at() *int32                  { return &c.place }
