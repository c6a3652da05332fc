// Package waitlist has goroutines that wait until another goroutine wakes them. It has no lock:
// its callers hold one, except during Wait and Wake.
package waitlist

// Waiter is a goroutine that waits, or may do so. The zero value is ready to use, and so is a
// Waiter that has returned from Wait.
type Waiter[D any] struct {
	Data D // belongs to the caller

	ready      chan struct{} // has room for the one send of Wake, which so never blocks
	prev, next *Waiter[D]    // in a List, or next in a Woken
}

// Arm makes a Waiter ready for Wait, before another goroutine can see it.
func (w *Waiter[D]) Arm() {
	if w.ready == nil {
		w.ready = make(chan struct{}, 1)
	}
}

// Wait waits until w is woken. If done is closed first, it calls withdraw, which takes w out of
// where it waits, and returns false. Both can happen at the same moment: then withdraw returns
// false because another goroutine has taken w out. That goroutine has won, and Wait returns true.
func (w *Waiter[D]) Wait(done <-chan struct{}, withdraw func(*Waiter[D]) bool) bool {
	if done == nil { // a select takes twice as long
		<-w.ready
		return true
	}
	select {
	case <-w.ready:
	case <-done:
		if withdraw(w) {
			return false
		}
		<-w.ready
	}
	return true
}

// Wake ends Wait, or makes it return at once. It does not block.
func (w *Waiter[D]) Wake() { w.ready <- struct{}{} }

// Woken has Waiters that were taken out of where they waited, and are to be woken when the lock is
// free. The zero value is empty.
type Woken[D any] struct{ first, last *Waiter[D] }

// Add adds a Waiter.
func (l *Woken[D]) Add(w *Waiter[D]) {
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

// Wake wakes the Waiters in the order of their Adds.
func (l *Woken[D]) Wake() {
	for w := l.first; w != nil; {
		next := w.next // after Wake, w belongs to its goroutine
		w.next = nil
		w.Wake()
		w = next
	}
}

// List is a list of Waiters, each in one list at most. The zero value is empty.
type List[D any] struct {
	first, last *Waiter[D]
	len         int
}

// Len returns the number of Waiters.
func (l *List[D]) Len() int { return l.len }

// First returns the first Waiter, nil if there is none.
func (l *List[D]) First() *Waiter[D] { return l.first }

// Add adds a Waiter at the end.
func (l *List[D]) Add(w *Waiter[D]) {
	if w.prev = l.last; w.prev == nil {
		l.first = w
	} else {
		w.prev.next = w
	}
	l.last = w
	l.len++
}

// Remove takes a Waiter out of l. If it is in no List, for instance because it is being woken,
// Remove returns false. It must not be in another List.
func (l *List[D]) Remove(w *Waiter[D]) bool {
	if w.prev == nil && l.first != w {
		return false
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	w.prev, w.next = nil, nil
	l.len--
	return true
}

// Pop takes out the first Waiter, nil if there is none.
func (l *List[D]) Pop() *Waiter[D] {
	w := l.first
	if w != nil {
		l.Remove(w)
	}
	return w
}
