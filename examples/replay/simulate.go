package main

import "container/heap"

// An observer learns when jobs start, in the order of virtual time.
type observer interface {
	started(now int64, j job)
}

// simulate runs the jobs, which are in submit order, on identical servers in virtual time.
//
// Of two events in the same second a finished job comes before a new one. A job holds its server
// from its start up to, not including, the second in which it ends. So a job that arrives in that
// second finds the server free. New jobs of the same second come one by one, in the order of the
// log, as they would reach a program. Servers are alike, so it does not matter which of two jobs
// that end together is first. The simulation is deterministic.
func simulate(jobs []job, servers int, waiting line, watch observer) error {
	var busy ends
	for next := 0; next < len(jobs) || len(busy) > 0; {
		var now int64
		if len(busy) > 0 && (next == len(jobs) || busy[0].end <= jobs[next].submit) {
			now = busy[0].end
			waiting.at(now)
			waiting.done(heap.Pop(&busy).(running).job)
		} else {
			j := jobs[next]
			now = j.submit
			next++
			waiting.at(now)
			if err := waiting.Push(j); err != nil {
				return err
			}
		}
		// Invariant between events: no server is idle or no job waits. An event frees one server
		// or brings one job, so at most one start is due, and it restores the invariant.
		if len(busy) < servers {
			if j, ok := waiting.Pop(); ok {
				heap.Push(&busy, running{end: now + j.run, job: j})
				watch.started(now, j)
			}
		}
	}
	return nil
}

// running is a job on a server.
type running struct {
	end int64
	job job
}

// ends is a heap of running jobs; the first to end is on top.
type ends []running

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].end < e[j].end }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(running)) }

func (e *ends) Pop() any {
	last := len(*e) - 1
	r := (*e)[last]
	*e = (*e)[:last]
	return r
}
