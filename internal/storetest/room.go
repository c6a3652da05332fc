package storetest

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// full checks that a task cannot be put because there is no room.
func (q *queue) full(name string, want fairq.FullError) {
	q.e.Helper()
	refused := q.stats().Refused
	q.refuses(name, task.PutOptions{}, fairq.ErrFull)
	equal(q.e, "Refused", q.stats().Refused, refused+1)
	_, err := q.Put(ctx, name[:1], name, task.PutOptions{})
	var full *fairq.FullError
	if !errors.As(err, &full) {
		q.e.Fatalf("error: %v; it should be a %T", err, full)
	}
	equal(q.e, "FullError", *full, want)
	equal(q.e, "it is ErrKeyFull", errors.Is(err, fairq.ErrKeyFull), want.PerKey)
}

// evicting opens a queue that evicts. It adds evicted tasks to the returned list.
func (e *env) evicting(o options) (*queue, *[]string) {
	e.Helper()
	var mu sync.Mutex // two may evict at the same time
	var evicted []string
	o.WhenFull = max(o.WhenFull, fairq.EvictHeaviest)
	o.OnEvict = func(t *task.Task[string]) {
		mu.Lock()
		defer mu.Unlock()
		evicted = append(evicted, t.Payload)
		if err := t.Ack(ctx); !errors.Is(err, task.ErrLeaseLost) {
			e.Errorf("Ack of an evicted task: %v", err)
		}
	}
	q, err := task.Open(ctx, e.store, "queue", &o)
	if errors.Is(err, task.ErrInvalid) &&
		strings.Contains(err.Error(), "Options.WhenFull is "+o.WhenFull.String()) {
		e.skip("the store evicts nothing")
	}
	e.ok(err)
	e.ok(q.Close(ctx))
	return e.open(o), &evicted
}

// evicts puts a task, and checks which one is evicted by it.
func (q *queue) evicts(evicted *[]string, name, want string) {
	q.e.Helper()
	*evicted = nil
	q.put(name)
	equal(q.e, "evicted by "+name, strings.Join(*evicted, " "), want)
}

var roomCases = []testCase{
	{"Capacity", "is the greatest number of tasks, in all states", func(e *env) {
		q := e.open(options{Capacity: 5})
		equal(e, "Stats.Capacity", q.stats().Capacity, 5)
		ids, l := q.everywhere()
		full := fairq.FullError{Len: 5, Limit: 5}
		q.full("a1", full)
		l.back()
		q.full("a1", full)
		q.first("t1").bury()
		q.full("a1", full)
		for _, id := range ids {
			q.remove(id)
			q.put("a1")
			q.full("b1", full)
		}
	}},
	{"CountOnlyWaiting", "count only the ready and delayed tasks", func(e *env) {
		q := e.open(options{Capacity: 3, CountOnlyWaiting: true})
		full := fairq.FullError{Len: 3, Limit: 3}
		q.put("a1 a2")
		delayed := q.one("a3", task.PutOptions{Delay: time.Hour})
		q.full("b1", full)
		first := q.first("a1") // makes room, and needs none
		q.put("b1")
		first.back()
		q.full("b2", fairq.FullError{Len: 4, Limit: 3})
		equal(e, "Stats.Counted", q.stats().Counted, 4)
		q.first("a1").bury()
		put := q.putting("c1")
		put.waits()
		second := q.first("a2")
		put.returns(nil)
		second.ack() // was not counted
		q.full("d1", full)
		q.remove(delayed)
		q.put("d1")
	}},
	{"Share", "a key may hold about as many places as are free", func(e *env) {
		q := e.open(options{Capacity: 8, WhenFull: fairq.RejectOverShare})
		q.put("a1 a2 a3 a4") // the last one with 5 places free
		q.full("a5", fairq.FullError{Len: 4, Limit: 3, PerKey: true})
		q.put("b1 b2")
		q.full("b3", fairq.FullError{Len: 2, Limit: 1, PerKey: true})
		q.put("c1 d1")
		q.full("c2", fairq.FullError{Len: 1, Limit: 1, PerKey: true})
		q.full("e1", fairq.FullError{Len: 8, Limit: 8})
		for _, l := range q.takes("a1 b1 c1 d1 a2 b2 a3") {
			l.ack()
		}
		q.put("a5 a6 a7 b3 b4")
		q.full("a8", fairq.FullError{Len: 4, Limit: 1, PerKey: true})
	}},
	{"ShareWait", "waits until a task of the key leaves, or " +
		"another Put of the key comes", func(e *env) {
		for _, comes := range []bool{false, true} {
			e.each([]options{{Capacity: 8, WhenFull: fairq.RejectOverShare}}, func(q *queue) {
				q.put("a1 b1 c1 d1 e1 f1 g1")
				over := []*call[task.ID]{q.putting("a2")}
				if !comes {
					over = append(over, q.putting("a3"), q.putting("a4"))
				}
				q.put("h1")
				other := q.putting("i1")
				other.waits()
				first := q.takes("a1 b1 c1 d1 e1 f1 g1 h1")
				first[1].ack()
				other.returns(nil)
				for _, l := range first[2:] {
					l.ack()
				}
				over[0].waits() // although there would be room
				if comes {
					q.put("a5")
				} else {
					first[0].ack()
				}
				for _, put := range over {
					put.returns(nil)
				}
			})
		}
	}},
	{"Evict", "from a key with the most of these (by its weight) it evicts the task that " +
		"became ready or delayed last ... is returned by Wait when the task was deleted, truncated, " +
		"evicted or cancelled with its group", func(e *env) {
		q, evicted := e.evicting(options{Capacity: 4})
		q.put("a1 a2")
		q.one("a3", unique)
		wait := q.waiting()
		q.evicts(evicted, "b1", "")
		q.evicts(evicted, "b2", "a3")
		wait.returns(task.ErrDeleted)
		q.put("c1 d1") // evict a2 and b2, in whatever order
		equal(e, "Evicted", q.stats().Evicted, 3)
		q.order("a1 b1 c1 d1")
	}},
	{"EvictOldest", "EvictOldest evicts the task that became ready or delayed first ... looks at " +
		"the ready and delayed tasks", func(e *env) {
		q, evicted := e.evicting(options{Capacity: 3, WhenFull: fairq.EvictOldest})
		q.one("d1", task.PutOptions{Delay: second})
		q.put("d2 d3")
		time.Sleep(second) // d1 is ready since now
		q.evicts(evicted, "d4", "d2")
		q.first("d3").back() // and so is d3
		q.evicts(evicted, "d5", "d1")
		q.evicts(evicted, "e6", "d4")
		l := q.takes("d3 d5 e6")
		q.full("d6", fairq.FullError{Len: 3, Limit: 3})
		put := q.putting("e1")
		put.waits()
		l[0].bury()
		put.waits()
		l[2].ack()
		put.returns(nil)
		l[1].release(time.Hour)
		q.evicts(evicted, "e2", "e1")
		q.first("e2")
		q.evicts(evicted, "e3", "d5")
		equal(e, "Evicted and Refused", [2]uint64{q.stats().Evicted, q.stats().Refused}, [2]uint64{5, 4})
	}},
	{"KeyStatsOfService", "A task is served each time it is taken", func(e *env) {
		q := e.open(options{Capacity: 5, KeyCapacity: 3, CountKeys: 10})
		q.put("a1 a2 a3")
		q.full("a4", fairq.FullError{Len: 3, Limit: 3, PerKey: true}) // is put twice
		_, err := q.PutBatch(ctx, []task.Entry[string]{{Key: "b"}, {Key: "a"}})
		e.is(err, fairq.ErrKeyFull)
		b2 := q.put("b2")[0]
		q.first("a1").back()
		q.first("a1").ack()
		e.ok(errOf(q.TakeBatch(ctx, 1)))
		q.takesID(b2)
		got, err := q.KeyStats(ctx, 5, fairq.ByServed)
		e.ok(err)
		for i, want := range []fairq.Counts{{Served: 2, Refused: 3}, {Served: 2}} {
			equal(e, "Total", got[i].Total, want)
			equal(e, "Recent", got[i].Recent, want)
			equal(e, "Wait", got[i].Wait.Count, 2)
		}
	}},
	{"Batch", "puts tasks one after the other, in one " +
		"transaction, until one is refused", func(e *env) {
		q := e.open(options{Capacity: 3})
		batch := func(names string, want error, put string) {
			e.Helper()
			var tasks []task.Entry[string]
			for name := range strings.FieldsSeq(names) {
				b := task.Entry[string]{Key: name[:1], Payload: name}
				switch name {
				case "x1":
					b.Options.UniqueKey = name
				case "bad":
					b.Options.Delay = task.MaxDuration + 1
				}
				tasks = append(tasks, b)
			}
			ids, err := q.PutBatch(ctx, tasks)
			e.is(err, want)
			for i, name := range strings.Fields(put) {
				equal(e, "task put", q.peek(ids[i]).Payload, name)
			}
			equal(e, "deleted", q.truncate(), len(ids))
		}
		batch("a1 x1 x1 b1", task.ErrDuplicate, "a1 x1")
		batch("a1 a2 b1 b2 b3", fairq.ErrFull, "a1 a2 b1")
		equal(e, "Refused", q.stats().Refused, 1)
		batch("a1 bad b1", task.ErrInvalid, "a1")
		batch("bad a1", task.ErrInvalid, "")
		batch("", nil, "")
	}},
}
