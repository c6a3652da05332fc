package pool_test

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// settled reports whether all tasks that the pool has taken have handlers, if it can be known.
func (l *ledger) settled() bool {
	if !l.quiet() {
		return false
	}
	n := -l.running - l.nested
	for _, class := range l.classes {
		s, err := class.queue.Stats(l.ctx)
		if err != nil {
			return false
		}
		n += s.Taken - class.held
	}
	return n == 0 && !slices.ContainsFunc(l.chores,
		func(c *chore) bool { return c.put.TTR > 0 && c.at > 0 })
}

// checkIdle runs when nothing moves: no call waits for an available task, and waiting tasks hold
// no worker.
func (l *ledger) checkIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.p.Stats()
	if most := l.options.Prefetch; most != 0 {
		require.LessOrEqual(l, s.Prefetched, max(most, 0)+4, "there are at most 4 workers for more")
	}
	if l.abandoned || l.ended || l.Failed() || !l.quiet() {
		return
	}
	require.Equal(l, l.running, s.Running, "running: %+v", s)
	require.Equal(l, l.nested, s.Nested, "nested: %+v", s)
	require.LessOrEqual(l, s.Idle, s.Workers)
	for _, n := range l.classes {
		if n.closed {
			return
		}
	}
	for _, n := range l.classes {
		l.checkLine(n, &s)
	}
}

// checkLine checks that no call waits for an available task of a queue.
func (l *ledger) checkLine(n *testClass, s *pool.Stats) {
	q, err := n.queue.Stats(l.ctx)
	require.NoError(l, err)
	tasks, err := n.queue.List(l.ctx, task.ListOptions{Limit: math.MaxInt32})
	require.NoError(l, err)
	takes := !s.Paused && !s.Closed || s.Closed && s.Nested > 0 && !l.forced
	free := takes && (s.Idle > 0 || s.Workers < max(s.Max, 1))
	busy := map[string]int{}
	for _, t := range tasks {
		if t.Info().State == task.Taken {
			busy[t.Key]++
		}
	}
	paused, err := n.queue.KeyStats(l.ctx, 100, fairq.ByBacklog)
	require.NoError(l, err)
	for _, t := range tasks {
		isPaused := slices.ContainsFunc(paused,
			func(k fairq.KeyStat[string]) bool { return k.Key == t.Key && k.Paused })
		if t.Info().State != task.Ready || isPaused || n.options.MaxInFlightPerKey > 0 &&
			busy[t.Key] >= n.options.MaxInFlightPerKey {
			continue
		}
		require.Zero(l, n.rivals, "a rival waits for what is there: task %d of %q, stats %+v", t.ID,
			n.name, s)
		if free && l.passes(t) {
			require.Failf(l, "nobody takes a task",
				"task %d of %q, key %s, kind %q, priority %d; stats %+v, %+v", t.ID, n.name, t.Key, t.Kind,
				t.Priority, *s, q)
		}
	}
}

// balance accounts for all tasks, when all is over.
func (l *ledger) balance() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, letter := range l.p.Leftovers() {
		letter.Payload.left++
		l.checkInterrupted(letter.Payload, letter.Task.Attempts)
	}
	there := map[*chore]int{}
	acks := 0
	for _, n := range l.classes {
		by := map[string]*story{} // by unique key, or a key of its own
		for _, s := range n.stories {
			by[s.put.UniqueKey], by[s.put.Key] = s, s
			for _, what := range s.what {
				if what == task.EventAck {
					acks++
				}
			}
		}
		for _, c := range l.chores {
			if c.class != n {
				continue
			}
			var s *story
			if s = n.stories[c.task]; s == nil && c.plain {
				s = by[c.key]
			} else if s == nil && c.put.UniqueKey != "" {
				s = by[c.put.UniqueKey]
			}
			if s != nil {
				c.task = s.put.ID
			}
		}
		for _, t := range n.rest {
			require.NotEqual(l, task.Taken, t.Info().State)
			there[t.Payload]++
			l.checkInterrupted(t.Payload, t.Attempts)
		}
	}
	for _, c := range l.chores {
		if !c.offered {
			continue // its handler was ended before it came to that
		}
		if what := l.wrong(c, c.class.stories[c.task], there[c]); what != "" {
			l.Errorf("%s: %v, last letter %v, in the queue %d", what, c, lastLetter(c), there[c])
			if s := c.class.stories[c.task]; s != nil {
				l.Logf("events: %v", s.what)
			}
		}
		if c.acked {
			acks--
		}
	}
	l.compareStats(acks)
}

// checkInterrupted checks that an attempt that Shutdown has interrupted does not count.
func (l *ledger) checkInterrupted(c *chore, attempts int) {
	if c.interrupted && c.put.TTR == 0 && !c.kicked && attempts != c.taken-c.snoozed-1 {
		l.Errorf("it was interrupted, and has %d attempts: %v", attempts, c)
	}
}

func lastLetter(c *chore) string {
	if len(c.letters) == 0 {
		return "none"
	}
	e := c.letters[len(c.letters)-1]
	return fmt.Sprintf("%v, attempts %d, %v", e.Reason, e.Task.Attempts, e.Err)
}

// wrong returns the error in the outcome of a task, if any.
func (l *ledger) wrong(c *chore, s *story, there int) string {
	places := len(c.letters) + c.left + there
	reason := func(is ...pool.Reason) bool {
		return len(c.letters) == 0 ||
			slices.Contains(is, c.letters[0].Reason)
	}
	var outcome *task.Error
	// a call was under way when the queue was closed
	unseen := c.class.closed && c.class.slow != nil
	switch {
	case c.task == 0 || s == nil:
		switch {
		case c.err == nil && places == 1 && unseen:
		case c.taken > 0:
			return "taken though it was not put"
		case !reason(pool.ReasonOverflow):
			return "a letter of a task that was not put"
		case c.err != nil && !c.waits && places != 0:
			return "refused, but not gone"
		case c.err == nil:
			return "accepted, but not put"
		case c.err != nil && !l.isRefusal(c) && len(c.refusals) == 0:
			return "a strange error"
		}
		return ""
	case c.waits && errors.As(c.err, &outcome) && s.ended() == task.EventAck && !c.kicked:
		return "done, but Do says otherwise"
	case c.waits && c.err == nil && s.ended() != task.EventAck:
		return "Do says that it was done, but it was not"
	case !c.waits && c.err != nil:
		return "refused, but put"
	case c.waits && c.err != nil && outcome == nil && !l.isRefusal(c) &&
		!errors.Is(c.err, task.ErrDeleted) && !errors.Is(c.err, task.ErrExpired):
		return "a strange error"
	case places > 1 && (c.put.TTR > 0 || l.abandoned || unseen), places > 0 && c.put.TTR > 0 &&
		c.class.slow != nil:
		return "" // it may be tried again after a letter was sent
	}
	own := c.class.store == nil
	switch end := s.ended(); {
	case end == 0 && own:
		return "still in the pool's queue"
	case end == 0 && (c.class.closed || c.class.fails()) && places == 0 && l.ends(c), end == 0 &&
		places <= 1 && unseen:
	case end == 0 && (there != 1 || places != 1):
		return "neither gone nor in its queue"
	case end == task.EventAck && places != 0:
		return "done, and somewhere else"
	case end == task.EventAck && !c.acked && c.last.how != "done" && c.taken <= len(c.plan):
		return "acked, but not done"
	case end == task.EventTTL && !l.ends(c):
		return "expired without cause"
	case end == task.EventTTL && own && l.sinks != "none" && places != 1 && len(c.refusals) == 0:
		return "expired without a letter"
	case end == task.EventTTL && !reason(pool.ReasonDeadline, pool.ReasonFailed):
		return "expired with another letter"
	case end == task.EventEvict && own && places != 1 &&
		!slices.Contains(c.refusals, pool.ReasonOverflow):
		return "evicted without a letter"
	case end == task.EventEvict && !reason(pool.ReasonOverflow):
		return "evicted with another letter"
	case end == task.EventDelete && c.dropped && places != 0:
		return "deleted, and somewhere else"
	case end == task.EventDelete && !c.dropped && (l.sinks != "none" || !own) && places != 1:
		return "deleted, and not in exactly one place"
	case end == task.EventDelete && !c.dropped && l.sinks == "none" && places == 0 && !l.wasLast(c):
		return "forgotten, though it had not failed for good"
	case len(c.letters) > 0 && c.letters[0].Reason == pool.ReasonFailed && !l.wasLast(c) &&
		c.letters[0].Task.Attempts < l.maxAttempts(c):
		return "a letter says that it failed, though it had not for good"
	}
	return ""
}

// ends reports whether a task can expire.
func (l *ledger) ends(c *chore) bool {
	return c.put.TTL > 0 || !c.put.Deadline.IsZero()
}

// ended returns the event by which a task was gone, 0 if there was none.
func (s *story) ended() (end task.EventType) {
	for _, e := range s.what {
		switch e {
		case task.EventAck, task.EventDelete, task.EventTTL, task.EventEvict:
			if end != 0 {
				panic(fmt.Sprintf("a task has ended twice: %v", s.what))
			}
			end = e
		}
	}
	return end
}

// takes returns how often a task was taken, by the events.
func (s *story) takes() (n int) {
	if s == nil {
		return 0
	}
	for _, e := range s.what {
		if e == task.EventTake {
			n++
		}
	}
	return n
}

// wasLast reports whether the last attempt can have been the last one.
func (l *ledger) wasLast(c *chore) bool {
	if c.last.how == "permanent" || c.last.how == "bury" || l.ends(c) || c.put.TTR > 0 {
		return true
	}
	return c.attempts > 0 && l.maxAttempts(c) > 0 && c.attempts >= l.maxAttempts(c)
}

// maxAttempts returns how often a task may be tried, 0 if there is no limit.
func (l *ledger) maxAttempts(c *chore) int {
	n := l.options.Policy.MaxAttempts
	switch {
	case c.put.MaxAttempts > 0:
		return c.put.MaxAttempts
	case n == 0:
		return 10
	}
	return max(n, 0)
}

// compareStats compares the pool's figures with what handlers and Observer have counted.
func (l *ledger) compareStats(acks int) {
	s := l.p.Stats()
	require.Equal(l, s.Started,
		s.Succeeded+s.Retried+s.Snoozed+s.Failed+s.Cancelled+s.Lost+s.Returned, "%+v", s)
	var taken, letters, settles, dropped uint64
	for _, c := range l.chores {
		taken += uint64(c.taken)
		if c.class.slow != nil && l.ends(c) {
			// its time may have been over when there was a worker, so that no handler was called
			taken++
		}
		letters += uint64(len(c.letters))
		for _, a := range c.plan[:min(len(c.plan), c.taken)] {
			if slices.Contains([]string{"ack", "bury", "delete", "release"}, a.how) {
				settles++
			}
		}
		if c.put.TTR > 0 {
			// those too that no handler was called for
			settles += uint64(max(c.taken, c.class.stories[c.task].takes()))
		}
		for _, e := range c.letters {
			if e.Reason == pool.ReasonOverflow {
				dropped++
			}
		}
		for _, r := range c.refusals {
			if r == pool.ReasonOverflow {
				dropped++
			}
		}
	}
	require.Equal(l, uint64(acks), s.Succeeded)
	require.Equal(l, letters, s.DeadLetters)
	require.Equal(l, dropped, s.Dropped)
	if l.options.Observer != nil {
		require.LessOrEqual(l, s.Started, taken+l.spent+s.Cancelled+s.Lost)
		var told []uint64
		for kind := pool.EventStarted; kind <= pool.EventDeadLetter; kind++ {
			told = append(told, l.events[kind])
		}
		require.Equal(l, []uint64{
			s.Started, s.Succeeded, s.Retried, s.Snoozed, s.Failed, s.Cancelled, s.Lost,
			s.Returned, s.Dropped, s.Expired, s.DeadLetters,
		}, told)
	}
	closed := func(n *testClass) bool { return n.closed }
	if !l.abandoned && !l.forced && !slices.ContainsFunc(l.classes, closed) {
		require.LessOrEqual(l, s.Cancelled+s.Lost, settles)
	}
}
