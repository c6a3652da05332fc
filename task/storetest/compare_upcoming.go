package storetest

import (
	"fmt"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// upcoming asks each queue for the next tasks, and takes so many. Where one process has a database,
// these are the ones. In memory, where keys were passed over, the order between keys may be another
// one, also which of them are among the first n.
func (c *comparison) upcoming() {
	n, w := 1+c.IntN(6), oneOf(c, c.workers...)
	o := &c.options
	later := o.MaxInFlightPerKey > 0 && o.Newcomers == fairq.ThisRound && o.Quantum == 0 // turns are given
	exact := !c.pauses && len(c.kinds) == 1 && !later
	got := c.nextOf(w.at, n, exact)
	var want []task.UpcomingTask
	if c.steady { // else the wanted queue may be made to take others
		want = c.nextOf(c.want, n, exact)
	}
	c.did("Upcoming(%d): %d tasks", n, len(got))
	var gotTaken, wantTaken []task.Info
	for range n {
		if !c.takeOne(w, task.Filter{}) {
			break
		}
		l := c.leases[len(c.leases)-1]
		gotTaken, wantTaken = append(gotTaken, l.got.Info()), append(wantTaken, l.want.Info())
	}
	if c.Failed() {
		return
	}
	alone := len(c.got) == 1 && c.subject.Check != nil && !c.subject.Exact // it is a database
	c.sameNext("Upcoming", got, gotTaken, exact || alone)
	if c.steady {
		c.sameNext("Upcoming of the wanted queue", want, wantTaken, exact)
	}
	// What a key that was busy has missed may count as a round in one queue, and not in the other, and
	// so may those rounds whose accounts are forgotten, with a Quantum, when nobody waits.
	for i := range want {
		if i < len(got) && exact && o.MaxInFlightPerKey == 0 && o.Quantum == 0 {
			c.equal(fmt.Sprintf("the round of task %d, number %d", got[i].ID, i), got[i].Round, want[i].Round)
		}
	}
}

// nextOf returns what is upcoming in a queue. It checks the rounds: they do not go back, and no key
// has more tasks in one than its weight, but for the current one, in which is what was handed back.
func (c *comparison) nextOf(s *side, n int, exact bool) []task.UpcomingTask {
	upcoming, err := s.Upcoming(ctx, n)
	c.ok("Upcoming", err)
	type turns struct {
		key             string
		priority, round int
	}
	used, last := map[turns]int{}, turns{}
	for _, u := range upcoming {
		t, err := s.Peek(ctx, u.ID)
		c.ok("Peek", err)
		c.equal("a task that is upcoming", c.info(s, u.Info), c.info(s, t.Info()))
		c.equal("Weight", u.Weight, max(1, c.weights[u.Key]))
		at := turns{u.Key, u.Priority, u.Round}
		if used[at]++; exact && (u.Round < 0 || u.Priority == last.priority && u.Round < last.round ||
			u.Round > 0 && c.options.Quantum == 0 && used[at] > u.Weight) {
			c.wrong("task %d is upcoming as number %d of %+v, after %+v", u.ID, used[at], at, last)
		}
		last = at
	}
	return upcoming
}

// sameNext checks that what was taken is what was upcoming.
func (c *comparison) sameNext(what string, next []task.UpcomingTask, taken []task.Info, exact bool) {
	if !c.equal("the number of tasks: "+what, len(next), len(taken)) {
		return
	}
	byKey := func(ids map[string][]task.ID, i *task.Info) {
		in := "all"
		if !exact {
			in = fmt.Sprint(i.Key, i.Priority)
		}
		ids[in] = append(ids[in], i.ID)
	}
	a, b := map[string][]task.ID{}, map[string][]task.ID{}
	for i := range next {
		byKey(a, &next[i].Info)
		byKey(b, &taken[i])
	}
	for in := range a {
		if n := min(len(a[in]), len(b[in])); n > 0 {
			c.equal(what+", "+in, a[in][:n], b[in][:n])
		}
	}
}
