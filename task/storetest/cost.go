package storetest

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// costing puts tasks of the same cost.
func (q *queue) costing(cost int64, tasks string) {
	q.e.Helper()
	q.put(tasks, task.PutOptions{Cost: cost})
}

const (
	sharesWork  = "makes rounds share work instead of tasks"
	paysLater   = "A key that has had more than its share of a round pays with those that follow, also if it has no task meanwhile"
	isForgotten = "unless no other task of the priority is ready"
	readAtTurn  = "The cost is read when the task gets its turn"
)

var costCases = []testCase{
	{"Cost", sharesWork, func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(10, "a1 a2")
		q.costing(5, "b1 b2 b3 b4")
		equal(e, "cost", q.first("a1").Info().Cost, 10)
		q.order("b1 b2 a2 b3 b4")
	}},
	{"DefaultCost", "0 means 1", func(e *env) {
		q := e.open(options{Quantum: 2})
		q.put("a1 a2 a3 a4 b1 b2 b3")
		equal(e, "cost", q.first("a1").Info().Cost, 1)
		q.order("a2 b1 b2 a3 a4 b3")
	}},
	{"NoQuantum", "without which it is only kept", func(e *env) {
		q := e.open()
		q.costing(1000, "a1 a2")
		q.costing(1, "b1 b2 b3")
		equal(e, "cost", q.first("a1").Info().Cost, 1000)
		q.order("b1 a2 b2 b3")
	}},
	{"BadCost", "It is 65,536 quanta at most", func(e *env) {
		q := e.open(options{Quantum: 3})
		q.refuses("a1", task.PutOptions{Cost: -1}, task.ErrCost)
		q.refuses("a1", task.PutOptions{Cost: 3<<16 + 1}, task.ErrCost)
		q.costing(3<<16, "a1 a2")
		q.costing(1, "b1 b2 b3 b4")
		q.order("a1 b1 b2 b3 b4 a2")
	}},
	{"Dear", paysLater, func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(30, "a1 a2")
		q.costing(10, "b1 b2 b3 b4")
		q.order("a1 b1 b2 b3 a2 b4")
	}},
	{"DearOne", paysLater, func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(30, "a1")
		q.costing(10, "b1 b2 b3 b4")
		q.first("a1").ack()
		q.costing(30, "a2")
		q.order("b1 b2 b3 b4 a2")
	}},
	{"DearAndFailed", paysLater, func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(30, "a1")
		q.costing(10, "b1 b2 b3 b4")
		q.first("a1").fail(errOops)
		q.order("b1 b2 b3 b4 a1")
	}},
	{"Forgotten", isForgotten, func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(30, "a1")
		q.costing(10, "b1")
		q.order("a1 b1")
		q.costing(10, "b2 b3 a2")
		q.order("b2 a2 b3")
	}},
	{"ForgottenByPriority", isForgotten, func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(30, "a1")
		q.first("a1").ack()
		q.one("c1", task.PutOptions{Priority: 1, Cost: 30})
		q.one("c2", task.PutOptions{Priority: 1, Cost: 30})
		q.costing(10, "b1 b2 a2")
		q.order("b1 a2 b2 c1 c2")
	}},
	{"HandedBack", "keeps the turn that it was taken by, and is first", func(e *env) {
		q := e.open(options{Quantum: 10})
		q.costing(30, "a1 a2")
		q.costing(10, "b1 b2 b3")
		for range 3 { // and pays for it once
			q.first("a1").release(0)
		}
		q.order("a1 b1 b2 b3 a2")
	}},
	{"Weight", "how much a key of weight 1 may have done in a round", func(e *env) {
		weights := map[string]int{"a": 3, "b": 1}
		q := e.open(options{Quantum: 10, Weight: func(key string) int { return weights[key] }})
		q.costing(15, "a1 a2 a3 a4")
		q.costing(10, "b1 b2 b3")
		q.order("a1 a2 b1 a3 a4 b2 b3")
	}},
	{"Newcomers", "says which round a key joins that has no task ready", func(e *env) {
		q := e.open(options{Quantum: 10, Newcomers: fairq.ThisRound})
		q.costing(10, "b1 b2 b3 d1")
		q.costing(25, "a1")
		q.first("b1").ack()
		q.costing(10, "c1") // in this round
		q.takes("d1 a1")
		q.costing(10, "a2") // in the third one
		q.order("c1 b2 b3 a2")
	}},
	{"MaxInFlightPerKey", readAtTurn, func(e *env) {
		q := e.open(options{Quantum: 10, MaxInFlightPerKey: 1})
		q.costing(5, "a1 a2 a3 a4 a5")
		q.costing(10, "b1 b2 b3")
		q.order("a1 b1 a2 b2 a3 a4 b3 a5")
	}},
	{"BusyAndDear", paysLater, func(e *env) {
		q := e.open(options{Quantum: 10, MaxInFlightPerKey: 1})
		q.costing(30, "a1 a2")
		q.costing(10, "b1 b2 b3 b4 b5")
		q.order("a1 b1 b2 b3 a2 b4 b5")
	}},
	{"KeepPlace", "go to where it was put", func(e *env) {
		q := e.open(options{Quantum: 10, KeepPlace: true})
		q.costing(20, "a1 a2")
		q.costing(10, "b1 b2 b3")
		q.first("a1").fail(errOops)
		q.order("a1 b1 b2 a2 b3")
	}},
	{"Counted", "what those served have cost", func(e *env) {
		q := e.open(options{Quantum: 10, CountKeys: 10})
		q.costing(7, "a1 a2")
		q.takes("a1 a2")
		equal(e, "cost served", q.KeyCounts(1)[0].Total.Cost, 14)
	}},
}
