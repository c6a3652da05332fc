package pool

import (
	"context"
	"slices"
	"sync"

	"github.com/fairq/fairq/task"
)

// nestedCalls are the calls of Do by handlers of the pool that have not returned.
type nestedCalls[V any] struct {
	mu    sync.Mutex                      // protects the fields below; no queue is called under it
	calls map[*nestedCall[V]][]holding[V] // with their needs
	held  map[holding[V]]int              // by how many of the calls
}

// nestedCall is a call of Do by a handler.
type nestedCall[V any] struct {
	by    *attempt[V]
	holds []holding[V] // by the handler's task, until the call has returned

	// The task of the call cannot start, or has not ended, while others hold these. The first is its
	// unique key: the task follows the one with it, or is that one itself, and runs already.
	needs []holding[V]
}

// holding is what a running task holds: a place within the limit of its key, its unique key, or
// its place in its group.
type holding[V any] struct {
	class *class[V]
	what  string
	name  string
}

// newNestedCall returns a call of Do with this context, nil if no handler of the pool makes it.
func (c *class[V]) newNestedCall(
	ctx context.Context, key string, options *PutOptions,
) *nestedCall[V] {
	by, _ := ctx.Value(attemptKey{}).(*attempt[V])
	if by == nil || by.class.pool != c.pool {
		return nil
	}
	i, of := by.task.Info(), by.class
	call := &nestedCall[V]{
		by:    by,
		holds: []holding[V]{{of, "unique key", i.UniqueKey}, {of, "key", i.Key}},
		needs: []holding[V]{{c, "unique key", options.UniqueKey}, {c, "key", key}},
	}
	if i.Role == task.Member {
		call.holds = append(call.holds, holding[V]{of, "group", i.Group})
	}
	if options.Role != task.Member && options.Group != "" {
		call.needs = append(call.needs, holding[V]{c, "group", options.Group})
	}
	return call
}

// enter adds a call, unless its task could never start: then it returns ErrWouldWait.
func (n *nestedCalls[V]) enter(
	ctx context.Context, call *nestedCall[V], replace bool,
) (err error) {
	for limits := map[holding[V]]int{}; ; {
		unknown, added := n.try(call, replace, limits)
		switch {
		case added:
			return nil
		case len(unknown) == 0:
			return ErrWouldWait
		}
		for _, key := range unknown {
			if limits[key], err = key.class.queue.MaxInFlight(ctx, key.name); err != nil {
				return err
			}
		}
	}
}

// try adds a call, unless its task could never start with these limits of keys. Then it returns
// the keys for which that depends on a limit that it does not know.
func (n *nestedCalls[V]) try(
	call *nestedCall[V], replace bool, limits map[holding[V]]int,
) (unknown []holding[V], added bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calls == nil {
		n.calls, n.held = map[*nestedCall[V]][]holding[V]{}, map[holding[V]]int{}
	}
	for _, h := range call.holds {
		n.held[h]++
	}
	needs := call.needs
	if !replace && n.held[needs[0]] > 0 {
		needs = needs[1:] // Put will return an ErrDuplicate
	}
	n.calls[call] = needs
	if !slices.ContainsFunc(needs, func(h holding[V]) bool { return n.held[h] > 0 }) {
		return nil, true
	}
	// stuck becomes the largest set of handlers that all wait for what the set holds. Unknown limits
	// count as 1, so it may be too large, but not too small.
	stuck, held := map[*attempt[V]]bool{}, map[holding[V]]int{}
	for c := range n.calls {
		stuck[c.by] = c.by.Value(attemptKey{}) != nil // else the handler has returned
	}
	isFull := func(h holding[V]) bool { return held[h] >= max(1, limits[h]) }
	for again := true; again; {
		clear(held)
		counted, waits := map[*attempt[V]]bool{}, map[*attempt[V]]bool{}
		for c := range n.calls {
			if stuck[c.by] && !counted[c.by] {
				counted[c.by] = true
				for _, h := range c.holds {
					held[h]++
				}
			}
		}
		for c, needs := range n.calls {
			if stuck[c.by] && slices.ContainsFunc(needs, isFull) {
				waits[c.by] = true
			}
		}
		stuck, again = waits, len(waits) < len(counted)
	}
	if !slices.ContainsFunc(needs, isFull) {
		return nil, true
	}
	for c, needs := range n.calls {
		for _, h := range needs {
			if stuck[c.by] && h.what == "key" && limits[h] == 0 && isFull(h) {
				unknown = append(unknown, h)
			}
		}
	}
	n.removeLocked(call)
	return unknown, false
}

// leave removes a call, if it was added.
func (n *nestedCalls[V]) leave(call *nestedCall[V]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, added := n.calls[call]; added {
		n.removeLocked(call)
	}
}

func (n *nestedCalls[V]) removeLocked(call *nestedCall[V]) {
	delete(n.calls, call)
	for _, h := range call.holds {
		if n.held[h]--; n.held[h] == 0 {
			delete(n.held, h)
		}
	}
}
