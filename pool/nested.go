package pool

import (
	"context"
	"maps"
	"sync"

	"github.com/fairq/fairq/task"
)

// nestedCalls are the calls of Do by handlers of the pool that have not returned.
type nestedCalls struct {
	mu    sync.Mutex // protects calls; no queue is called under it
	calls map[*nestedCall]bool
}

// nestedCall is a call of Do by a handler.
type nestedCall struct {
	by    context.Context // the attempt
	holds []holding       // by the handler's task, until all its calls have returned

	// The task of the call cannot start, or has not ended, while limit others hold its key, or one
	// its unique key or its group. It follows the task with its unique key, or is that one itself,
	// and runs already.
	key, unique, group holding
	limit              int
	replaces           bool
}

// holding is what a running task holds: a place within the limit of its key, its unique key, or
// its place in its group.
type holding struct {
	class      any
	what, name string
}

// newNestedCall returns a call of Do with this context, nil if no handler of the pool makes it.
func (c *class[V]) newNestedCall(
	ctx context.Context, key string, options *PutOptions,
) *nestedCall {
	by, _ := ctx.Value(attemptKey{}).(*attempt[V])
	if by == nil || by.class.pool != c.pool {
		return nil
	}
	i, of := by.task.Info(), by.class
	call := &nestedCall{
		by: by, holds: []holding{{of, "key", i.Key}, {of, "unique key", i.UniqueKey}},
		key: holding{c, "key", key}, unique: holding{c, "unique key", options.UniqueKey},
		replaces: options.Replace,
	}
	if i.Group != "" && i.Role == task.Member {
		call.holds = append(call.holds, holding{of, "group", i.Group})
	}
	if options.Role != task.Member {
		call.group = holding{c, "group", options.Group}
	}
	return call
}

// enter adds a call, unless its task could not even start if all handlers ended that can: then it
// returns ErrWouldWait.
func (n *nestedCalls) enter(call *nestedCall) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.calls == nil {
		n.calls = map[*nestedCall]bool{}
	}
	n.calls[call] = true
	isHeld := false
	for c := range n.calls {
		for _, h := range c.holds {
			isHeld = isHeld || h == call.key || h == call.unique || h == call.group
		}
	}
	if !isHeld { // the usual case
		return nil
	}
	left, of, held := maps.Clone(n.calls), map[context.Context]int{}, map[holding]int{}
	add := func(c *nestedCall, d int) { // at the first call of a handler, and at the end of the last
		if of[c.by] += d; of[c.by] == max(d, 0) {
			for _, h := range c.holds {
				held[h] += d
			}
		}
	}
	for c := range left {
		add(c, 1)
	}
	if held[call.unique] > 0 && !call.replaces {
		call.unique = holding{} // Put will return a task.ErrDuplicate
	}
	for before := -1; before != len(left); {
		before = len(left)
		for c := range left {
			waits := held[c.key] >= c.limit || held[c.unique]+held[c.group] > 0
			if !waits || c.by.Value(attemptKey{}) == nil { // or the handler has left the call behind
				delete(left, c)
				add(c, -1)
			}
		}
	}
	if left[call] {
		delete(n.calls, call)
		return ErrWouldWait
	}
	return nil
}

// leave removes a call.
func (n *nestedCalls) leave(call *nestedCall) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.calls, call)
}
