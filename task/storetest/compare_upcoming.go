package storetest

import (
	"fmt"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// upcoming asks each queue for the next tasks, and takes so many. Where keys were passed over, the
// order between keys may be another one, also which of them are among the first n.
func (c *comparison) upcoming() {
	n, w := 1+c.IntN(6), oneOf(c, c.workers...)
	got := c.nextOf(w.at, n)
	var want []task.Info
	if c.steady { // else the wanted queue may be made to take others
		want = c.nextOf(c.want, n)
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
	o := &c.options
	later := o.MaxInFlightPerKey > 0 && (o.Newcomers == fairq.ThisRound || o.Quantum > 0) // turns are given
	exact := !c.pauses && len(c.kinds) == 1 && !later
	c.sameNext("Upcoming", got, gotTaken, exact)
	if c.steady {
		c.sameNext("Upcoming of the wanted queue", want, wantTaken, exact)
	}
}

// nextOf returns what is upcoming in a queue.
func (c *comparison) nextOf(s *side, n int) []task.Info {
	infos, err := s.Upcoming(ctx, n)
	c.ok("Upcoming", err)
	for _, i := range infos {
		t, err := s.Peek(ctx, i.ID)
		c.ok("Peek", err)
		c.equal("a task that is upcoming", c.info(s, i), c.info(s, t.Info()))
	}
	return infos
}

// sameNext checks that what was taken is what was upcoming.
func (c *comparison) sameNext(what string, next, taken []task.Info, exact bool) {
	if !c.equal("the number of tasks: "+what, len(next), len(taken)) {
		return
	}
	ids := func(infos []task.Info) map[string][]task.ID {
		byKey := map[string][]task.ID{}
		for _, i := range infos {
			in := "all"
			if !exact {
				in = fmt.Sprint(i.Key, i.Priority)
			}
			byKey[in] = append(byKey[in], i.ID)
		}
		return byKey
	}
	a, b := ids(next), ids(taken)
	for in := range a {
		if n := min(len(a[in]), len(b[in])); n > 0 {
			c.equal(what+", "+in, a[in][:n], b[in][:n])
		}
	}
}
