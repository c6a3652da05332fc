package storetest

import (
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
)

// perSecond is a KeyRate of one attempt a second.
func perSecond(burst int) options {
	return options{KeyRate: task.Rate{Limit: 1, Burst: burst}, CountKeys: 10}
}

// serveOthers serves enough other keys for a store to forget keys without state.
func (q *queue) serveOthers() {
	for i := range 1200 * few(5) / 5 {
		_, err := q.Put(ctx, fmt.Sprint("key ", i), "", task.PutOptions{})
		q.e.ok(err)
		t, _, err := q.TryTake(ctx)
		q.e.ok(err)
		q.e.ok(t.Ack(ctx))
	}
}

var rateCases = []testCase{
	{"Burst", "there are Burst tokens at first, and Limit more of them a second", func(e *env) {
		all := []options{perSecond(2), perSecond(2), perSecond(2), perSecond(2)}
		all[1].KeepPlace, all[2].MaxInFlightPerKey, all[3].Quantum = true, 4, 1
		e.each(all, func(q *queue) {
			q.put("a1 a2 a3 b1")
			q.one("a4", task.PutOptions{Priority: 1})
			q.order("a1 b1 a2")
			q.goesOn("a3", second).ack()
			q.order("a4")
			time.Sleep(time.Hour)
			q.put("a1 a2 a3")
			q.order("a1 a2")
		})
	}},
	{"Rate", "A key without a token waits until it gets one", func(e *env) {
		q := e.open(perSecond(0))
		q.put("a1 a2 a3")
		q.first("a1")
		start, one, two := time.Now(), q.taking(), q.taking()
		time.Sleep(time.Hour)
		gotAll(e, "a2 a3", one, two)
		e.at("the first goes on", one.at, start, second)
		e.at("the second goes on", two.at, start, 2*second)
	}},
	{"Untried", "A task that is handed back untried gives its tokens back", func(e *env) {
		q := e.open(perSecond(2))
		q.put("a1 a2 a3")
		l := q.takes("a1 a2")
		take := q.taking()
		take.waits()
		l[0].back()
		got(take, "a1").ack()
		c := q.consumer(task.Filter{})
		time.Sleep(second)
		c.takes("a3")
		q.none()
		c.close()
		q.order("a3")
		time.Sleep(second)
		q.serveOthers()
		q.put("a1 a2")
		q.order("a1")
	}},
	{"Tried", "a task that failed, was snoozed or whose lease was lost does not", func(e *env) {
		o := perSecond(1)
		o.Grace = second
		for name, back := range handsBack {
			if untried[name] == nil && name != "snoozeKey" {
				e.Log(name)
				e.each([]options{o}, func(q *queue) {
					q.put("a1 a2 a3", task.PutOptions{TTR: second})
					c := q.consumer(task.Filter{})
					start := time.Now()
					back(c, c.first("a1"))
					if time.Since(start) > 0 {
						q.taking().returns(nil).holds()
					}
					q.none()
				})
			}
		}
	}},
	{"Cost", "with a Quantum as many as its task costs", func(e *env) {
		o := perSecond(10)
		o.Quantum = 1
		q := e.open(o)
		q.costing(9, "a1")
		q.costing(5, "a2 a3")
		q.takes("a1 a2")[1].back() // it has one token of 5
		q.takes("a2")
		q.goesOn("a3", 5*second)
	}},
	{"ShareTime", "With ShareTime each attempt takes one token", func(e *env) {
		o := perSecond(2)
		o.ShareTime = true
		q := e.open(o)
		q.put("a1 a2 a3")
		q.takes("a1 a2")
		q.none()
		q.goesOn("a3", second)
	}},
	{"HoldAndRate", "waits until it gets one, as with HoldKey", func(e *env) {
		q := e.open(perSecond(1))
		q.put("a1 a2")
		l := q.first("a1")
		q.hold("a", second/2)
		time.Sleep(second / 4)
		l.back() // the rate is no reason any more
		q.none()
		time.Sleep(second / 4)
		q.takes("a1")
		q.hold("a", 3*second)
		q.goesOn("a2", 3*second)
	}},
	{"Queue", "KeyRate limits the attempts of each key, and Rate the " +
		"attempts of all keys together", func(e *env) {
		q := e.open(options{Rate: task.Rate{Limit: 1, Burst: 3}})
		ids := q.put("a1 b1 c1 d1 a2 b2")
		l := q.takes("a1 b1 c1")
		take := q.taking()
		take.waits()
		q.refusesID(ids[3], task.ErrBlocked)
		upcoming := func(want int) {
			e.Helper()
			next, err := q.Upcoming(ctx, 10)
			e.ok(err)
			equal(e, "upcoming", len(next), want)
		}
		upcoming(0)
		l[2].back()
		got(take, "c1").ack()
		q.goesOn("d1", second)
		time.Sleep(time.Hour)
		q.put("a3 b3")
		upcoming(3)
		q.takes("a2 b2 a3")
		q.none()
	}},
}

// rateElsewhere is about processes that share a store.
var rateElsewhere = []testCase{
	{"Changed", "KeyRate limits the attempts of each key, and Rate the " +
		"attempts of all keys together", func(e *env) {
		q := e.open(perSecond(1))
		q.put("a1 a2 a3 a4")
		q.first("a1").ack()
		q.hold("b", second)
		q.close()
		other := e.reopenAs(e.reopen(), perSecond(2))
		other.put("b1")
		other.order("a2 a3")
		time.Sleep(second)
		gotAll(e, "a4 b1", other.taking(), other.taking())
	}},
}
