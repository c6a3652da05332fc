package storetest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

func (q *queue) limit(key string, l *task.KeyLimits) {
	q.e.Helper()
	q.e.ok(q.SetKey(ctx, key, l))
}

// limited checks which keys have limits.
func (q *queue) limited(want ...task.LimitedKey) {
	q.e.Helper()
	got, err := q.LimitedKeys(ctx, "", 0)
	q.e.ok(err)
	equal(q.e, "keys with limits", append([]task.LimitedKey{}, got...),
		append([]task.LimitedKey{}, want...))
}

// limitable are Options with which a queue has limits for its keys, but hardly any.
var limitable = options{MaxInFlightPerKey: fairq.MaxLen}

// badLimit checks that a key gets no limits, and what the error says.
func (q *queue) badLimit(key string, l *task.KeyLimits, says string) {
	q.e.Helper()
	err := q.SetKey(ctx, key, l)
	if q.e.is(err, task.ErrInvalid); !strings.Contains(err.Error(), says) {
		q.e.Fatalf("the error is %q; it should say %q", err, says)
	}
}

var limitCases = []testCase{
	{
		"MaxInFlight",
		"SetKey gives a key limits of its own, in place of its earlier ones; nil removes them",
		func(e *env) {
			q := e.open(serial)
			q.put("a1 a2 a3 a4 b1 b2")
			q.limit("a", &task.KeyLimits{MaxInFlight: 2})
			l := q.takes("a1 b1 a2")
			q.none()
			q.limit("a", &task.KeyLimits{MaxInFlight: -1})
			l = append(l, q.takes("a3 a4")...)
			q.put("a5")
			q.limit("a", nil)
			for _, held := range append(l[2:], l[0]) {
				q.none()
				held.ack()
			}
			q.takes("a5")
		},
	},
	{"Lower", "A lower limit takes nothing back: taken tasks stay taken, and count.", func(e *env) {
		e.each([]options{limitable, {KeyRate: task.Rate{Limit: 1000, Burst: 1000}}}, func(q *queue) {
			q.put("a1 a2 a3 a4")
			l := q.takes("a1 a2")
			q.limit("a", &task.KeyLimits{MaxInFlight: 1})
			q.none()
			q.refusesID(q.put("a5")[0], task.ErrBlocked)
			l[0].ack()
			q.none()
			l[1].back()
			q.order("a2 a3 a4 a5")
		})
	}},
	{"Wakes", "SetKey gives a key limits of its own", func(e *env) {
		q := e.open(options{MaxInFlightPerKey: 1, KeyRate: task.Rate{Limit: 0.001, Burst: 2}})
		q.put("a1 a2 a3 a4")
		q.first("a1")
		first, next := q.taking(), q.taking()
		first.waits()
		q.limit("a", &task.KeyLimits{MaxInFlight: 5})
		gotAll(e, "a2", first)
		next.waits()
		q.limit("a", &task.KeyLimits{MaxInFlight: 5, Rate: task.Rate{Limit: -1}})
		gotAll(e, "a3", next)
		q.limit("a", &task.KeyLimits{Rate: task.Rate{Limit: -1}})
		q.none()
	}},
	{"Rate", "With a new Rate the key keeps its tokens, up to the new Burst", func(e *env) {
		q := e.open(limitable)
		q.put("a1 a2 a3 a4 a5 a6 a7 a8 b1 b2 b3")
		q.limit("a", &task.KeyLimits{Rate: task.Rate{Limit: 1, Burst: 2}})
		q.order("a1 b1 a2 b2 b3")
		q.limit("a", &task.KeyLimits{Rate: task.Rate{Limit: 1, Burst: 5}})
		q.goesOn("a3", second).ack() // the token that came while it was to wait for one second more
		q.order("a4")
		q.limit("a", &task.KeyLimits{Rate: task.Rate{Limit: 0.1, Burst: 5}})
		q.limit("a", &task.KeyLimits{Rate: task.Rate{Limit: 0.1, Burst: 5}, Weight: 2})
		q.goesOn("a5", 10*second).ack()
		q.limit("a", nil)
		q.order("a6 a7 a8")
	}},
	{"Weight", "A new Weight holds from the next turn of the key on", func(e *env) {
		for _, quantum := range []int64{0, 1} {
			o := limitable
			o.Quantum, o.Weight = quantum, func(string) int { return 3 }
			e.each([]options{o}, func(q *queue) {
				q.put("a1 a2 a3 a4 a5 a6 a7 b1 b2 b3 b4 b5")
				q.limit("a", &task.KeyLimits{Weight: 2})
				q.limit("b", &task.KeyLimits{Weight: 1})
				upcoming, err := q.Upcoming(ctx, 1)
				e.ok(err)
				equal(e, "weight", upcoming[0].Weight, 2)
				for _, l := range q.takes("a1 a2 b1 a3 a4 b2") {
					l.ack()
				}
				q.limit("a", &task.KeyLimits{Weight: 1})
				q.limit("b", nil)
				q.order("a5 b3 b4 b5 a6 a7")
			})
		}
	}},
	{"Room", "and for the room that RejectOverShare leaves to it", func(e *env) {
		o := limitable
		o.Capacity, o.WhenFull = 16, fairq.RejectOverShare
		q := e.open(o)
		q.put("a1 a2 a3 a4 a5 a6 a7 a8")
		q.refuses("a9", task.PutOptions{}, task.ErrKeyFull)
		q.limit("a", &task.KeyLimits{Weight: 2})
		q.put("a1 a2")
		q.refuses("a9", task.PutOptions{}, task.ErrKeyFull)
	}},
	{"Kept", "The store keeps them with the queue, even while the key has no tasks", func(e *env) {
		q := e.open(limitable)
		q.limit("a", &task.KeyLimits{MaxInFlight: 1})
		q.put("a1")
		q.truncate()
		q.pauseKey("a")
		q.resumeKey("a")
		q.serveOthers()
		time.Sleep(time.Hour)
		q.put("a1 a2")
		q.takes("a1")
		q.none()
	}},
	{"List", "LimitedKeys returns the first n keys with limits of their own", func(e *env) {
		q := e.open(limitable)
		all := []task.LimitedKey{
			{Key: "", KeyLimits: task.KeyLimits{MaxInFlight: -1}},
			{Key: "a", KeyLimits: task.KeyLimits{Rate: task.Rate{Limit: 1.0 / 3, Burst: 1}}},
			{Key: "b", KeyLimits: task.KeyLimits{
				Weight: fairq.MaxWeight, MaxInFlight: 7,
				Rate: task.Rate{Limit: task.MaxRate, Burst: task.MaxRate},
			}},
			{
				Key:       strings.Repeat("\xff", task.MaxName),
				KeyLimits: task.KeyLimits{Rate: task.Rate{Limit: -1}},
			},
		}
		for _, k := range all {
			q.limit(k.Key, &k.KeyLimits)
		}
		q.put("a1 b1 c1")
		q.limited(all...)
		page, err := q.LimitedKeys(ctx, "a\x00", 1)
		e.ok(err)
		equal(e, "a page", page, all[2:3])
		for i, key := range []string{"", "a", "b", "c"} {
			most, err := q.MaxInFlight(ctx, key)
			e.ok(err)
			equal(e, "MaxInFlight of "+key, most, []int{fairq.MaxLen, fairq.MaxLen, 7, fairq.MaxLen}[i])
		}
		q.limit("a", &task.KeyLimits{})
		q.limit("b", nil)
		q.limited(all[0], all[3])
		e.is(errOf(q.LimitedKeys(ctx, "", -1)), task.ErrInvalid)
		e.ok(q.Drop(ctx))
		e.open(limitable).limited()
	}},
	{"Invalid", "is returned for an invalid argument or option", func(e *env) {
		q := e.open(serial)
		for value, l := range map[string]task.KeyLimits{
			"KeyLimits.Weight is -1;":                           {Weight: -1},
			fmt.Sprint("is ", fairq.MaxWeight+1, ";"):           {Weight: fairq.MaxWeight + 1},
			fmt.Sprint("MaxInFlight is ", fairq.MaxLen+1, ";"):  {MaxInFlight: fairq.MaxLen + 1},
			"KeyLimits.Rate.Limit is NaN; it must be more than": {Rate: task.Rate{Limit: math.NaN()}},
			"KeyLimits.Rate.Limit is +Inf;":                     {Rate: task.Rate{Limit: math.Inf(1)}},
			"and 1000000000 at most":                            {Rate: task.Rate{Limit: 1.1e9}},
			"KeyLimits.Rate.Limit is 0;":                        {Rate: task.Rate{Burst: 1}},
			"KeyLimits.Rate.Burst is -1;":                       {Rate: task.Rate{Limit: 1, Burst: -1}},
			"KeyLimits.Rate.Burst is 1000000001;": {
				Rate: task.Rate{Limit: 1, Burst: task.MaxRate + 1},
			},
			"KeyLimits.Rate.Burst is 5; it must be 0 if": {Rate: task.Rate{Limit: -1, Burst: 5}},
		} {
			q.badLimit("a", &l, value)
		}
		q.badLimit(strings.Repeat("k", task.MaxName+1), nil, "")
		q.limited()
	}},
	{"Without", "The queue must have a MaxInFlightPerKey or a KeyRate", func(e *env) {
		none := []options{{}, {KeepPlace: true}, {Rate: task.Rate{Limit: 5, Burst: 5}}}
		e.each(none, func(q *queue) {
			const why = "Options.MaxInFlightPerKey is 0; it must be set at Open"
			q.badLimit("a", &task.KeyLimits{MaxInFlight: 1}, why)
			q.badLimit("a", nil, why)
		})
	}},
}

// limitElsewhere is about processes that share a store.
var limitElsewhere = []testCase{
	{"Shared", "all processes obey them from their next call on", func(e *env) {
		q, other := e.two(serial)
		q.put("a1 a2 a3 a4")
		l := q.first("a1")
		other.none()
		q.limit("a", &task.KeyLimits{MaxInFlight: 2})
		other.takes("a2")
		take := other.taking()
		take.waits()
		q.limit("a", &task.KeyLimits{MaxInFlight: 3})
		later()
		gotAll(e, "a3", take)
		other.limit("a", nil)
		l.ack()
		q.none()
		other.limited()
	}},
	{
		"Died", "The store keeps them with the queue ... outlasts this process, and ends by itself",
		func(e *env) {
			o := perSecond(2)
			o.MaxInFlightPerKey = 5
			q := e.open(o)
			q.put("a1 a2 b1 b2 b3 c1")
			l := task.KeyLimits{MaxInFlight: 1, Weight: 2, Rate: task.Rate{Limit: 0.5, Burst: 7}}
			q.limit("a", &l)
			q.hold("c", 10*second)
			q.takes("a1 b1 b2")
			e.kill()
			other := e.openIn(e.reopen(), "queue", o)
			other.limited(task.LimitedKey{Key: "a", KeyLimits: l})
			other.none()
			other.goesOn("b3", second)
			other.goesOn("c1", 8*second)
		},
	},
	{"Changed", "The queue must have a MaxInFlightPerKey or a KeyRate", func(e *env) {
		q := e.open(limitable)
		l := task.KeyLimits{MaxInFlight: 1, Rate: task.Rate{Limit: 0.001, Burst: 1}}
		q.limit("a", &l)
		q.put("a1 a2 a3 a4")
		q.first("a1").ack()
		q.close()
		q = e.reopenAs(e.reopen(), options{})
		q.takes("a2 a3")[0].ack()
		q.limited(task.LimitedKey{Key: "a", KeyLimits: l})
		q.close()
		q = e.reopenAs(e.reopen(), options{KeyRate: task.Rate{Limit: 1}})
		q.order("a3")
		q.limit("a", nil)
		q.goesOn("a4", second)
	}},
}
