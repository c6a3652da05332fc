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
		counted := func(want fairq.Counts) {
			e.Helper()
			keys, err := q.KeyStats(ctx, 1, fairq.ByServed)
			e.ok(err)
			equal(e, "KeyStat.Total", keys[0].Total, want)
		}
		both := func(what string, call func(context.Context) error, want error, unchanged func()) {
			e.Helper()
			for _, end := range []error{errOops, nil} {
				before := q.stats()
				e.is(tx.InTx(ctx, func(own context.Context) error {
					e.is(call(own), want)
					return end
				}), end)
				if end != nil {
					w.saw("")
					equal(e, "Stats after a rollback: "+what, q.stats(), before)
					unchanged()
				}
			}
		}
		both("Put", func(own context.Context) error {
			_, err := q.Put(own, "a", "a1", task.PutOptions{TTR: second})
			return err
		}, nil, take.waits)
		l := got(take, "a1")
		w.saw("put a, take a")
		both("Put when full", func(own context.Context) error {
			_, err := q.Put(own, "a", "a2", task.PutOptions{})
			return err
		}, task.ErrFull, func() { counted(fairq.Counts{Served: 1}) })
		counted(fairq.Counts{Served: 1, Refused: 1})
		held, cancel := l.Context(ctx)
		defer cancel()
		was := l.Info()
		same := func() {
			equal(e, "Info after a rollback", l.Info(), was)
			equal(e, "the error of Task.Context", held.Err(), nil)
		}
		both("Touch", func(own context.Context) error { return l.Touch(own, second) }, nil, same)
		e.at("Info.Until", l.Info().Until, was.Until, second)
		w.saw("touch a")
		was = l.Info()
		both("Ack", l.Ack, nil, same)
		w.saw("ack a")
		equal(e, "state", l.Info().State, 0)
		synctest.Wait()
		e.is(context.Cause(held), task.ErrLeaseLost)
		s := q.stats()
		equal(e, "what is counted", [4]uint64{s.Puts, s.Refused, s.Touches, s.Acks},
			[4]uint64{1, 1, 1, 1})
	}},
}
