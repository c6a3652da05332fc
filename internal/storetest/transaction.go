package storetest

import (
	"context"
	"testing/synctest"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

var transactionCases = []testCase{
	{"Outbox", "If the store commits it (InTx), its changes are counted " +
		"and reported then, once", func(e *env) {
		tx, ok := e.store.(Transactor)
		if !ok {
			e.skip("the store is not a Transactor")
		}
		q := e.open(options{Capacity: 1, CountKeys: 1})
		w, take := q.watch(e.Context()), q.taking()
		both := func(call func(context.Context) error, want error, unchanged func(), events string) {
			e.Helper()
			for _, end := range []error{errOops, nil} {
				before := q.stats()
				e.is(tx.InTx(ctx, func(own context.Context) error {
					e.is(call(own), want)
					return end
				}), end)
				if end != nil {
					w.saw("")
					equal(e, "Stats after a rollback", q.stats(), before)
					unchanged()
				}
			}
			w.saw(events)
		}
		put := func(own context.Context) error {
			return errOf(q.Put(own, "a", "a1", task.PutOptions{TTR: second}))
		}
		both(put, nil, take.waits, "put a, take a")
		l := got(take, "a1")
		both(put, task.ErrFull, func() {}, "")
		keys, err := q.KeyStats(ctx, 1, fairq.ByServed)
		e.ok(err)
		equal(e, "KeyStat.Total", keys[0].Total, fairq.Counts{Served: 1, Refused: 1})
		held, cancel := l.Context(ctx)
		defer cancel()
		was := l.Info()
		same := func() {
			equal(e, "Info after a rollback", l.Info(), was)
			e.ok(held.Err())
		}
		both(func(own context.Context) error { return l.Touch(own, second) }, nil, same, "touch a")
		e.at("Info.Until", l.Info().Until, was.Until, second)
		was = l.Info()
		both(l.Ack, nil, same, "ack a")
		l.now(q, 0)
		synctest.Wait()
		e.is(context.Cause(held), task.ErrLeaseLost)
	}},
}
