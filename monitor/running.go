package monitor

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/task"
)

// A task runs for too long after busyTimes the mean of the last ones of its kind, at most maxEnds
// and at least leastEnds.
const (
	busyTimes = 10
	leastEnds = 20
	maxEnds   = 100
)

// running has the tasks that consumers hold, as looks have seen them. A store does not keep when a
// task was taken. So a run begins with its lease; without a time to run, when a look first saw it.
// It ends halfway between the last look that saw it and the next one.
type running struct {
	mu   sync.Mutex
	runs map[task.ID]run
	took map[string][]time.Duration // by kind
	at   time.Time                  // of the last look
}

type run struct {
	attempts int
	consumer string
	kind     string
	since    time.Time
}

// since returns when a task was taken, the zero Time if it does not run.
func (r *running) since(i *task.Info) (since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i.State == task.Taken {
		since = r.runOf(i, time.Now()).since
	}
	return since
}

// runOf returns the run of a task, which may not have been seen before.
func (r *running) runOf(i *task.Info, now time.Time) run {
	is, was := run{i.Attempts, i.Consumer, i.Kind, now}, r.runs[i.ID]
	if begin := i.Until.Add(-i.TTR); i.TTR > 0 && begin.Before(now) {
		is.since = begin
	}
	if was.attempts == is.attempts && was.consumer == is.consumer && was.since.Before(is.since) {
		is.since = was.since
	}
	return is
}

// see remembers the tasks that run now, which may not be all. It reports which one runs for too
// long, "" if none does.
func (r *running) see(all []*task.Info, isAll bool, now time.Time) (busy string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, runs := r.runs, make(map[task.ID]run, len(all))
	for _, i := range all {
		runs[i.ID] = r.runOf(i, now)
	}
	r.runs = runs
	if r.took == nil {
		r.took = map[string][]time.Duration{}
	}
	if gap := now.Sub(r.at); isAll && gap <= 2*momentStep {
		for id, was := range before {
			if r.runs[id].since != was.since && (r.took[was.kind] != nil || len(r.took) < maxKeys) {
				took := append(r.took[was.kind], now.Add(-gap/2).Sub(was.since))
				r.took[was.kind] = took[max(0, len(took)-maxEnds):]
			}
		}
	}
	r.at = now
	slices.SortFunc(all, func(a, b *task.Info) int {
		return r.runs[a.ID].since.Compare(r.runs[b.ID].since)
	})
	for _, i := range all {
		n, runs, mean := len(r.took[i.Kind]), now.Sub(r.runs[i.ID].since), time.Duration(0)
		for _, d := range r.took[i.Kind] {
			mean += d / time.Duration(n)
		}
		if n >= leastEnds && runs > busyTimes*mean {
			return fmt.Sprintf("task %d of %s runs for %s; the last %d of its kind took %v", i.ID,
				keyText(i.Key), span(runs), n, mean.Round(10*time.Millisecond))
		}
	}
	return ""
}
