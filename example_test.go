package fairq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairq/fairq"
)

type job struct {
	user string
	name string
}

func byUser(j job) string { return j.user }

func Example() {
	q := fairq.New(func(j job) string { return j.user }, nil)
	for i := range 4 {
		_ = q.Push(job{"alice", fmt.Sprint("report ", i+1)})
	}
	_ = q.Push(job{"bob", "invoice"})
	for {
		j, ok := q.Pop()
		if !ok {
			break
		}
		fmt.Println(j.user, j.name)
	}
	// Output:
	// alice report 1
	// bob invoice
	// alice report 2
	// alice report 3
	// alice report 4
}

// Workers range over All. The loop ends when the queue is closed and empty.
func ExampleFairQueue_All() {
	q := fairq.New(byUser, nil)
	var workers sync.WaitGroup
	var done sync.Map
	for range 3 {
		workers.Go(func() {
			for j := range q.All(context.Background()) {
				done.Store(j.name, true)
			}
		})
	}
	for i := range 10 {
		_ = q.PushWait(context.Background(), job{"alice", fmt.Sprint(i)})
	}
	q.Close()
	workers.Wait()
	n := 0
	for range done.Range {
		n++
	}
	fmt.Println(n, "jobs done")
	// Output: 10 jobs done
}

func ExampleFairQueue_Push_full() {
	q := fairq.New(byUser, &fairq.Options[string, job]{Capacity: 3, KeyCapacity: 2})
	_ = q.Push(job{"alice", "1"})
	_ = q.Push(job{"alice", "2"})
	err := q.Push(job{"alice", "3"})
	fmt.Println(err, errors.Is(err, fairq.ErrFull), errors.Is(err, fairq.ErrKeyFull))

	_ = q.Push(job{"bob", "1"})
	err = q.Push(job{"carol", "1"})
	var full *fairq.FullError
	fmt.Println(errors.As(err, &full), full.Len, full.Limit)
	// Output:
	// fairq: full for this key: it holds 2, its limit is 2 now true true
	// true 3 3
}

func ExampleFairQueue_PopWait() {
	q := fairq.New(byUser, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := q.PopWait(ctx)
	fmt.Println(err)
	// Output: context deadline exceeded
}

// A full queue can make room at the cost of a key whose backlog reaches furthest.
func ExampleOptions_evictHeaviest() {
	q := fairq.New(byUser, &fairq.Options[string, job]{
		Capacity: 3,
		WhenFull: fairq.EvictHeaviest,
		OnEvict:  func(user string, j job) { fmt.Println("evicted:", user, j.name) },
	})
	for i := range 3 {
		_ = q.Push(job{"alice", fmt.Sprint(i + 1)})
	}
	fmt.Println(q.Push(job{"bob", "1"}))
	fmt.Println(q.Push(job{"alice", "4"}))
	// Output:
	// evicted: alice 3
	// <nil>
	// fairq: full: it holds 3, the limit is 3
}

func ExampleOptions_weight() {
	weights := map[string]int{"alice": 2}
	q := fairq.New(byUser, &fairq.Options[string, job]{
		Weight: func(user string) int { return max(1, weights[user]) },
	})
	for i := range 4 {
		_ = q.Push(job{"alice", fmt.Sprint(i + 1)})
	}
	for i := range 2 {
		_ = q.Push(job{"bob", fmt.Sprint(i + 1)})
	}
	for _, j := range q.Drain() {
		fmt.Print(j.user, j.name, " ")
	}
	// Output: alice1 alice2 bob1 alice3 alice4 bob2
}

// Two tenants share a model by the tokens of their requests, and not by their number.
func ExampleOptions_cost() {
	type request struct {
		tenant string
		tokens int64
	}
	requests := []request{}
	for range 3 {
		requests = append(requests, request{"books", 40_000}, request{"chats", 1_000},
			request{"chats", 1_000})
	}
	for _, o := range []fairq.Options[string, request]{
		{},
		{Cost: func(r request) int64 { return r.tokens }, Quantum: 1_000},
	} {
		q := fairq.New(func(r request) string { return r.tenant }, &o)
		_, _ = q.PushBatch(requests)
		var order []string
		for _, r := range q.Drain() {
			order = append(order, r.tenant)
		}
		fmt.Println(order)
	}
	// Output:
	// [books chats chats books chats books chats chats chats]
	// [books chats chats chats chats chats chats books books]
}

// The queue charges a declared cost, and settles it with the true one: bob's first job takes 40
// times as long as declared, so alice has the next turns.
func ExampleOptions_maxInFlightPerKey() {
	q := fairq.New(func(job string) string { return job[:1] }, &fairq.Options[string, string]{
		ShareTime:         true,
		MaxInFlightPerKey: 3, // of 4 workers: jobs of A that hang leave one to the others
	})
	_, _ = q.PushBatch([]string{"A1", "A2", "A3", "A4", "A5", "B1"})
	for job, ok := q.Pop(); ok; job, ok = q.Pop() {
		fmt.Print(job, " ")
	}
	fmt.Println("of A", q.KeyStat("A").Taken, "are in hand, and", q.KeyStat("A").Backlog, "wait")
	_ = q.Done("A1") // All and pool.NewWorkers do it
	job, _ := q.Pop()
	fmt.Println("then", job)
	// Output:
	// A1 B1 A2 A3 of A 3 are in hand, and 2 wait
	// then A4
}

func ExampleFairQueue_ReportCost() {
	q := fairq.New(byUser, &fairq.Options[string, job]{
		Cost: func(job) int64 { return 10 }, Quantum: 10, SettleCosts: true,
	})
	seconds := map[string]int64{"alice": 10, "bob": 400}
	for range 3 {
		_, _ = q.PushBatch([]job{{"alice", "query"}, {"bob", "report"}})
	}
	for range 6 {
		j, _ := q.Pop()
		_ = q.ReportCost(j, seconds[j.user])
		fmt.Print(j.user, " ")
	}
	// Output: alice bob alice alice bob bob
}

// A ticket finds the position of an item, and takes it out.
func ExampleFairQueue_Add() {
	q := fairq.New(byUser, nil)
	_, _ = q.PushBatch([]job{{"alice", "1"}, {"alice", "2"}, {"alice", "3"}})
	ticket, _ := q.Add(job{"bob", "1"})
	ahead, ok := q.Position(ticket)
	fmt.Println(ahead, ok)
	j, ok := q.Remove(ticket)
	fmt.Println(j.user, ok)
	_, ok = q.Remove(ticket)
	fmt.Println(ok)
	// Output:
	// 1 true
	// bob true
	// false
}

// A Snapshot has the rest of the round, and the items behind it. It can be printed, and marshalled
// to JSON.
func ExampleFairQueue_Snapshot() {
	q := fairq.New(func(job string) string { return job[:1] }, nil)
	_, _ = q.PushBatch([]string{"a1", "b1", "a2", "a3"})
	q.Pop()
	s := q.Snapshot()
	fmt.Println(s)
	for user, job := range s.Order() {
		fmt.Print(user, " ", job, ", ")
	}
	text, err := json.Marshal(s)
	fmt.Println(string(text), err)
	// Output:
	// {Round:[b1] Queues:map[a:[a2 a3]]}
	// b b1, a a2, a a3, {"round":["b1"],"queues":{"a":["a2","a3"]}} <nil>
}

func ExampleFairQueue_KeyStats() {
	q := fairq.New(byUser, nil)
	_, _ = q.PushBatch([]job{
		{"alice", "1"}, {"bob", "1"}, {"bob", "2"}, {"bob", "3"}, {"carol", "1"}, {"carol", "2"},
	})
	for _, s := range q.KeyStats(2, fairq.ByBacklog) {
		fmt.Println(s.Key, s.Backlog)
	}
	// Output:
	// bob 3
	// carol 2
}

// Upcoming lists the next items.
func ExampleFairQueue_Upcoming() {
	q := fairq.New(byUser, nil)
	_, _ = q.PushBatch([]job{{"alice", "1"}, {"alice", "2"}, {"bob", "1"}, {"carol", "1"}})
	q.Pop()
	for _, u := range q.Upcoming(3) {
		fmt.Println(u.Round, u.Key, u.Item.name)
	}
	// Output:
	// 0 bob 1
	// 0 carol 1
	// 1 alice 2
}

// A Queue needs no constructor, and takes the key with each item.
func ExampleQueue() {
	var q fairq.Queue[string, int]
	q.Push("alice", 1)
	q.Push("alice", 2)
	q.Push("bob", 3)
	for u := range q.Order() {
		fmt.Println(u.Round, u.Key, u.Item)
	}
	// Output:
	// 1 alice 1
	// 1 bob 3
	// 2 alice 2
}

// KeyStats lists the keys that are served most, and the keys that are refused most.
func ExampleFairQueue_KeyStats_service() {
	q := fairq.New(func(key string) string { return key }, &fairq.Options[string, string]{
		Capacity: 10, WhenFull: fairq.RejectOverShare, CountKeys: 100,
	})
	for range 20 {
		_ = q.Push("hog")
	}
	_ = q.Push("small")
	for range 4 {
		q.Pop()
	}
	for _, k := range q.KeyStats(10, fairq.ByServed) {
		fmt.Printf("%s: %+v\n", k.Key, k.Total)
	}
	// Output:
	// hog: {Served:3 Refused:15 Evicted:0 Cost:0}
	// small: {Served:1 Refused:0 Evicted:0 Cost:0}
}

// These workers exist only while there is an item.
func ExampleFairQueue_Watch() {
	q := fairq.New(byUser, nil)
	var workers sync.WaitGroup
	var watch *fairq.Watch[string, job]
	watch = q.Watch(func() {
		workers.Go(func() {
			for {
				j, ok := q.Pop()
				if !ok && watch.Arm(1) { // nothing came in between
					return
				}
				if ok {
					fmt.Println(j.user, j.name)
				}
			}
		})
	})
	watch.Arm(1)
	_ = q.Push(job{"alice", "report"})
	workers.Wait()
	// Output:
	// alice report
}
