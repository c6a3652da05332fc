package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
)

// Check returns what is wrong with the queue of that name, "" if nothing is.
func (m *Store) Check(name string) (wrong string) {
	c := new(complaint)
	defer func() {
		if p := recover(); p != nil && p != c {
			panic(p)
		}
		wrong = string(*c)
	}()
	m.queues[name].check(c)
	return ""
}

// complaint is a TestingT that keeps what is wrong.
type complaint string

func (c *complaint) Errorf(format string, args ...any) {
	*c = complaint(fmt.Sprintf(format, args...))
}
func (c *complaint) FailNow() { panic(c) }

// check finds out whether a queue in memory is in order: whether all that is kept in more than one
// place agrees.
func (q *queue) check(t require.TestingT) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inbox.mu.Lock()
	defer q.inbox.mu.Unlock()
	require.Len(t, q.inbox.puts, int(q.inbox.count.Load()))
	if q.inbox.free > 0 {
		require.LessOrEqual(t, q.settings.Counted(&q.tasks)+len(q.inbox.puts)+q.inbox.free,
			q.settings.Capacity)
	}
	unused := q.inbox.puts[len(q.inbox.puts):cap(q.inbox.puts)]
	for _, a := range slices.Concat(unused, q.inbox.added[:cap(q.inbox.added)]) {
		require.Zero(t, a)
	}
	states := map[driver.State]int{}
	byKey := map[*keyState]map[driver.State]int{}
	ready := map[*lane]int{}
	byTask := map[*block]bool{}
	timers, uniqueKeys, members := 0, 0, map[*group]int{}
	followers := map[driver.ID]bool{} // each comes after the task that it follows
	for it := range q.ids.all() {
		states[it.State]++
		byTask[it.block] = true
		if byKey[it.key] == nil {
			byKey[it.key] = map[driver.State]int{}
		}
		byKey[it.key][it.State]++
		require.Same(t, it.key, q.keys[it.key.name])
		require.Equal(t, it.State == driver.Taken, it.lease != 0 && it.consumer != nil)
		require.Equal(t, it.wake != 0, it.timer != 0)
		if it.timer != 0 {
			timers++
			require.Same(t, it, q.timers[it.timer-1].item)
		}
		if it.State == driver.Ready {
			ready[q.line(it).lane(it.kind)]++
		}
		if it.Rare != nil && it.UniqueKey != "" {
			uniqueKeys++
			require.Same(t, it, q.uniqueKeys[it.UniqueKey])
		}
		if it.Rare != nil && it.Follower != 0 {
			require.True(t, it.State == driver.Taken && it.UniqueKey != "")
			followers[it.Follower] = true
		}
		require.True(t, it.State != driver.Held || it.group() != nil || followers[it.id])
		if g := it.group(); g != nil {
			members[g]++
			require.Same(t, g, q.groups[g.name])
		}
	}
	for state := driver.Ready; state <= driver.Held; state++ {
		require.Equal(t, states[state], q.tasks[state], state)
	}
	require.Len(t, q.timers, timers)
	require.LessOrEqual(t, len(q.ids.blocks), len(byTask)+1)
	require.Len(t, q.uniqueKeys, uniqueKeys)
	require.Len(t, q.groups, len(members))
	require.Equal(t, states[driver.Buried], q.buried.len)
	taken := 0
	for _, c := range q.consumers {
		n := 0
		for it := c.leases.first; it != nil; it = it.next {
			n++
			require.Same(t, c, it.consumer)
			require.True(t, it.next == nil || it.lease < it.next.lease)
		}
		require.Equal(t, c.leases.len, n)
		taken += n
	}
	require.Equal(t, states[driver.Taken], taken)
	own := 0
	for _, k := range q.keys {
		all := 0
		for state := driver.Ready; state <= driver.Held; state++ {
			require.Equal(t, byKey[k][state], k.tasks[state])
			all += k.tasks[state]
		}
		require.Equal(t, all, k.tasks[0])
		require.True(t, all > 0 || k.paused || k.wait.Until != 0 || k.own != nil ||
			k.isIdle && k.given == 1)
		require.True(t, all > 0 || len(k.lines) == 0 || k.isUniform())
		limit := q.settings.MaxInFlightPerKey
		if k.own != nil {
			own++
			limit = cmp.Or(k.own.MaxInFlight, limit)
		}
		require.Equal(t, k.wait.Until != 0, k.timer != 0)
		require.Equal(t,
			k.paused || k.wait.Waits || limit > 0 && k.tasks[driver.Taken] >= limit, k.blocked)
	}
	require.Equal(t, own, q.ownLimits)
	lines, shown := map[*band]int{}, map[*heap[turn]]int{}
	entry := func(k *keyState, e *entry, n int) {
		require.Equal(t, n, e.len)
		require.Equal(t, n > 0 && !e.hidden, e.index != 0)
		require.Equal(t, e.hidden, slices.Contains(k.hidden, e))
		if e.index != 0 {
			shown[e.in()]++
			at := (*e.in())[e.index-1]
			require.True(t, at == e.turn() || e.lane != nil && at.entry == e && at.before(e.turn()))
		}
	}
	for _, k := range q.keys {
		require.True(t, k.blocked || len(k.hidden) == 0)
		for _, l := range k.lines {
			lines[l.band]++
			require.True(t, !l.isEmpty() || k.isUniform())
			require.LessOrEqual(t, l.end.Round, l.band.furthest)
			sum := 0
			for i, ranked := range l.lanes {
				lane := ranked.lane
				require.EqualValues(t, i+1, lane.rank)
				require.False(t, i > 0 && ranked.before(l.lanes[(i-1)/degree]))
				n := len(lane.early)
				for it := lane.inOrder.first; it != nil; it = it.next {
					n++
					require.True(t, it.next == nil || byPlace{it}.before(byPlace{it.next}))
				}
				require.Equal(t, ready[lane], n)
				entry(k, &lane.entry, n)
				sum += n
			}
			entry(k, &l.entry, sum)
		}
	}
	inOrder := func(h *heap[turn]) {
		require.Len(t, *h, shown[h])
		for i, e := range *h {
			require.False(t, e.before((*h)[max(0, (i-1)/degree)]))
		}
	}
	for _, b := range q.bands {
		require.Equal(t, lines[b], b.lines)
		inOrder(&b.shown)
		for _, k := range b.kinds {
			inOrder(&k.shown)
		}
	}
	if q.evictable != nil {
		require.Equal(t, states[driver.Ready]+states[driver.Delayed], q.evictable.tasks.Len())
		require.Len(t, q.evictable.tickets, q.evictable.tasks.Len())
	}
	require.Subset(t, slices.Collect(maps.Values(q.consumers)), q.leaving)
}
