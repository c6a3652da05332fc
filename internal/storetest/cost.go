package storetest

import (
	"time"

	"github.com/fairq/fairq/task"
)

// costing puts tasks of the same cost.
func (q *queue) costing(cost int64, tasks string) {
	q.e.Helper()
	q.put(tasks, task.PutOptions{Cost: cost})
}

var costCases = []testCase{
	{"Cost", "makes rounds share work instead of tasks", func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(10, "a1 a2")
		q.costing(5, "b1 b2 b3 b4")
		equal(e, "cost", q.first("a1").Info().Cost, 10)
		q.order("b1 b2 a2 b3 b4")
	}},
	{"BadCost", "It is at most 65,536 quanta", func(e *env) {
		q := e.open(options{Quantum: 3})
		q.refuses("a1", task.PutOptions{Cost: -1}, task.ErrCost)
		q.refuses("a1", task.PutOptions{Cost: 3<<16 + 1}, task.ErrCost)
		q.costing(3<<16, "a1 a2")
		q.costing(1, "b1 b2 b3 b4")
		q.order("a1 b1 b2 b3 b4 a2")
	}},
	{
		"Weight", "the work of a key of weight 1 in a round ... The key pays when the task is taken",
		func(e *env) {
			q := e.open(options{
				Quantum: 10, MaxInFlightPerKey: 1, Weight: func(key string) int { return int('d' - key[0]) },
			})
			q.costing(15, "a1 a2 a3 a4")
			q.costing(10, "c1 c2 c3")
			q.order("a1 a2 c1 a3 a4 c2 c3")
		},
	},
	{"KeepPlace", "go to the place of its Put", func(e *env) {
		q := e.open(options{Quantum: 10, KeepPlace: true})
		q.costing(20, "a1 a2")
		q.costing(10, "b1 b2 b3")
		q.first("a1").fail(errOops)
		q.order("b1 b2 a1 b3 a2")
	}},
	{"ShareTime", "a task costs the moving mean of the attempts of its key", func(e *env) {
		q := e.open(options{ShareTime: true})
		q.put("a1")
		l, begun := q.first("a1"), time.Now()
		time.Sleep(2 * second)
		least := time.Since(begun)
		l.ack()
		most := time.Since(begun) + second
		cost := time.Duration(q.peek(q.put("a2")[0]).Info().Cost) * time.Millisecond
		if cost < least-time.Millisecond || cost > most {
			e.Fatalf("the cost is %v; the attempt took %v to %v", cost, least, most)
		}
	}},
}
