package memory

// heap is a binary heap whose elements know where they are, so that any of them can be moved or
// removed in O(log n).
type heap[T element[T]] []T

type element[T any] interface {
	before(T) bool
	at() *int32 // one more than the index in the heap, 0 if it is in none
}

var (
	_ element[byTime]    = byTime{}
	_ element[byPlace]   = byPlace{}
	_ element[byHead]    = byHead{}
	_ element[*line]     = (*line)(nil)
	_ element[*lane]     = (*lane)(nil)
	_ element[*consumer] = (*consumer)(nil)
	_ element[*child]    = (*child)(nil)
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
	if !h.down(i) {
		h.up(i)
	}
}

// index has x in the heap or not, and in its place.
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
		parent := (i - 1) / 2
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

// down returns whether it moved the element.
func (h heap[T]) down(i int) bool {
	x, start := h[i], i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
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
