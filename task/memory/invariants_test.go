package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task/driver"
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
		require.LessOrEqual(t, q.settings.Counted(&q.tasks)+len(q.inbox.puts)+q.inbox.free, q.settings.Capacity)
	}
	for _, a := range slices.Concat(q.inbox.puts[len(q.inbox.puts):cap(q.inbox.puts)], q.inbox.added[:cap(q.inbox.added)]) {
		require.Zero(t, a)
	}
	states := map[driver.State]int{}
	byKey := map[*keyState]map[driver.State]int{}
	ready := map[*lane]int{}
	byTask := map[*block]bool{}
	timers, uniqueKeys, members := 0, 0, map[*group]int{}
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
			require.Zero(t, it.turn)
		}
		if it.Rare != nil && it.UniqueKey != "" {
			uniqueKeys++
			require.Same(t, it, q.uniqueKeys[it.UniqueKey])
		}
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
		}
		require.Equal(t, c.leases.len, n)
		taken += n
	}
	require.Equal(t, states[driver.Taken], taken)
	for _, k := range q.keys {
		all := 0
		for state := driver.Ready; state <= driver.Held; state++ {
			require.Equal(t, byKey[k][state], k.tasks[state])
			all += k.tasks[state]
		}
		require.Equal(t, all, k.tasks[0])
		require.True(t, all > 0 || k.paused || k.wait.Until != 0 || k.isIdle && k.weight == 1)
		require.True(t, all > 0 || len(k.lines) == 0 || k.uniform())
		limit := q.settings.MaxInFlightPerKey
		require.Equal(t, k.wait.Until != 0, k.timer != 0)
		require.Equal(t, k.paused || k.wait.Waits || limit > 0 && k.tasks[driver.Taken] >= limit, k.blocked)
	}
	lines := map[*band]int{}
	shown, shownLines := map[*kind]int{}, map[*band]int{}
	linked := map[*band]int{}
	for _, k := range q.keys {
		for _, l := range k.lines {
			lines[l.band]++
			linked[l.band] += l.turnsAhead
			require.Equal(t, l.band.turns.KeyLen(k.name), l.turnsAhead)
			require.True(t, slices.IsSortedFunc(l.owed, cmp.Compare[uint64]))
			require.LessOrEqual(t, l.turnsAhead+len(l.owed), l.len)
			require.True(t, l.len == 0 || l.turnsAhead+len(l.owed) > 0)
			require.True(t, !l.isEmpty() || k.uniform())
			require.Equal(t, l.len > 0, l.index != 0)
			require.True(t, k.blocked && l.len > 0 || !l.isHidden)
			switch {
			case l.isHidden:
				require.Same(t, l, k.hidden[l.index-1])
			case l.len > 0:
				shownLines[l.band]++
				require.Same(t, l, l.band.shown[l.index-1])
			}
			sum := 0
			for i, ranked := range l.lanes {
				lane := ranked.lane
				require.EqualValues(t, i+1, lane.rank)
				require.False(t, i > 0 && ranked.before(l.lanes[(i-1)/2]))
				n := len(lane.early)
				for it := lane.inOrder.first; it != nil; it = it.next {
					n++
					require.True(t, it.next == nil || it.place < it.next.place)
				}
				require.Equal(t, ready[lane], n)
				require.Equal(t, n, lane.len)
				sum += n
				require.Equal(t, n > 0, lane.index != 0)
				require.True(t, l.isHidden && n > 0 || !lane.isHidden)
				switch {
				case lane.isHidden:
					require.Same(t, lane, l.hidden[lane.index-1])
				case n > 0:
					shown[lane.kind]++
					require.Same(t, lane, lane.kind.shown[lane.index-1])
				}
			}
			require.Equal(t, l.len, sum)
		}
	}
	for _, b := range q.bands {
		require.Equal(t, lines[b], b.lines)
		require.Equal(t, linked[b], b.turns.Len())
		for name, k := range b.kinds {
			require.Len(t, k.shown, shown[k])
			for i, lane := range k.shown {
				require.False(t, lane.line.before(k.shown[max(0, (i-1)/2)].line))
			}
			require.Equal(t, name, k.name)
		}
		require.Len(t, b.shown, shownLines[b])
		for i, l := range b.shown {
			require.False(t, l.before(b.shown[max(0, (i-1)/2)]))
		}
	}
	if q.evictable != nil {
		require.Equal(t, states[driver.Ready]+states[driver.Delayed], q.evictable.tasks.Len())
		require.Len(t, q.evictable.tickets, q.evictable.tasks.Len())
	}
	require.Subset(t, slices.Collect(maps.Values(q.consumers)), q.leaving)
}
