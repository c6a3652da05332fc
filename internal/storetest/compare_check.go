package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

func (c *comparison) equal(what string, got, want any) bool {
	c.Helper()
	if !reflect.DeepEqual(got, want) {
		c.wrong("%s:\n got  %+v\n want %+v", what, got, want)
		return false
	}
	return true
}

// refusals are what calls return that do nothing.
var refusals = []error{
	nil, fairq.ErrKeyFull, fairq.ErrFull, task.ErrNotFound, task.ErrResumed,
	task.ErrLeaseLost, task.ErrClosed,
	task.ErrDuplicate, task.ErrReplace, task.ErrGroupCancelled, task.ErrDropped,
	task.ErrInvalid, task.ErrDeleted,
	task.ErrExpired, task.ErrTaken, task.ErrBlocked, context.DeadlineExceeded,
}

// kindOf returns which of these an error is, -1 if it is none.
func kindOf(err error) int {
	return slices.IndexFunc(refusals, func(e error) bool { return errors.Is(err, e) })
}

func (c *comparison) sameError(what string, got, want error) {
	c.Helper()
	var full, wantFull *fairq.FullError
	var recorded, wantRecorded *task.Error
	switch {
	case errors.As(got, &full) && errors.As(want, &wantFull):
		c.equal(what, *full, *wantFull)
	case errors.As(got, &recorded) && errors.As(want, &wantRecorded):
		c.equal(what, *recorded, *wantRecorded)
	case kindOf(got) != kindOf(want) || kindOf(got) < 0:
		c.wrong("%s returns the error %v; it should be %v", what, got, want)
	}
}

// showTime makes times comparable.
func showTime(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("15:04:05.000000000")
}

// noError is not nil because fmt would call a method of nil and catch its panic, which is slow.
var noError = new(task.Error)

// info returns the Info of a task in a form that can be compared.
func (c *comparison) info(s *side, i task.Info) any {
	type comparable struct {
		task.Info
		err string
	}
	if s != c.want {
		i.ID = c.ids[i.ID]
		if name, ok := c.names[i.Consumer]; ok {
			i.Consumer = name
		}
	}
	v := comparable{Info: i}
	if v.Err != nil {
		v.err = fmt.Sprint(*v.Err)
	}
	v.Err = noError
	for _, at := range []*time.Time{&v.Created, &v.ReadyAt, &v.Until, &v.Deadline, &v.Expires} {
		*at = at.UTC().Round(0) // without what == would see besides
	}
	return v
}

// compare compares all that there is.
func (c *comparison) compare() {
	c.Helper()
	want := c.all(c.want)
	for _, s := range c.got {
		got := c.all(s)
		if !c.equal("the number of tasks", len(got), len(want)) {
			return
		}
		c.sort(got)
		for i := range want {
			a, b := c.info(s, got[i].Info()), c.info(c.want, want[i].Info())
			if !c.equal("a payload", got[i].Payload, want[i].Payload) || !c.equal("a task", a, b) {
				return
			}
		}
	}
	c.compareStats()
	synctest.Wait()
	c.compareEvents()
	c.compareExpired()
	if c.subject.Check != nil {
		if wrong := c.subject.Check(c.name); wrong != "" {
			c.wrong("the queue as it is stored: %s", wrong)
		}
	}
}

func (c *comparison) compareStats() {
	want, err := c.want.Stats(ctx)
	c.ok("Stats", err)
	var sum task.Stats
	for _, s := range c.got {
		got, err := s.Stats(ctx)
		c.ok("Stats", err)
		counters, more := reflect.ValueOf(&got).Elem(), reflect.ValueOf(sum)
		for i := range counters.NumField() {
			if f := counters.Field(i); f.Kind() == reflect.Uint64 {
				f.SetUint(f.Uint() + more.Field(i).Uint())
				if c.subject.InTurn { // not all is counted
					f.SetUint(reflect.ValueOf(want).Field(i).Uint())
				}
			}
		}
		sum = got
	}
	sum.Conflicts = 0
	c.equal("stats", sum, want)
	byKey := func(s *side) []fairq.KeyStat[string] {
		list, err := s.KeyStats(ctx, 100, fairq.ByBacklog)
		c.ok("KeyStats", err)
		for i := range list { // for the counters see below
			list[i].Total, list[i].Recent, list[i].Wait = fairq.Counts{}, fairq.Counts{}, fairq.Histogram{}
		}
		slices.SortFunc(list, func(a, b fairq.KeyStat[string]) int {
			return strings.Compare(a.Key, b.Key)
		})
		return append([]fairq.KeyStat[string]{}, list...)
	}
	c.equal("stats by key", byKey(c.side()), byKey(c.want))
	c.equal("counters by key", c.keyCounts(append(c.closed, c.got...)...), c.keyCounts(c.want))
}

// keyCounts returns the counts of served and refused tasks. The wanted queue deletes the tasks
// that the others evict.
func (c *comparison) keyCounts(sides ...*side) map[string]fairq.Counts {
	all := map[string]fairq.Counts{}
	for _, s := range sides {
		keys, err := s.KeyStats(ctx, len(Keys), fairq.ByServed)
		refused, bad := s.KeyStats(ctx, len(Keys), fairq.ByRefused)
		c.ok("KeyStats", cmp.Or(err, bad))
		for _, k := range refused {
			if k.Total.Served == 0 {
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			sum := all[k.Key]
			sum.Served += k.Total.Served
			sum.Refused += k.Total.Refused
			sum.Cost += k.Total.Cost
			if sum != (fairq.Counts{}) {
				all[k.Key] = sum
			}
		}
	}
	return all
}

// compareEvents compares the events of each task. A lost lease that a process has found only by
// looking at the store is left out, because another process has reported it.
func (c *comparison) compareEvents() {
	lives := func(s *side) map[task.ID][]string { // in one list if their order is to be the same
		all := map[task.ID][]string{}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			if e.Task.Created.IsZero() {
				continue
			}
			holds := e.Type == task.EventTake || e.Type == task.EventTouch
			if e.Task.Consumer = ""; e.Task.State == task.Taken && !holds {
				e.Task.Until = time.Time{} // of a lease that is over
			}
			info := c.info(s, e.Task)
			id := reflect.ValueOf(info).Field(0).Interface().(task.Info).ID
			what := fmt.Sprint(e.Type, " ", showTime(e.Time), " ", e.Lease != 0, " ", info)
			if c.subject.Exact {
				id, what = 0, fmt.Sprint(e.Lease, " ", what)
			}
			all[id] = append(all[id], what)
		}
		s.events = nil
		return all
	}
	want, got := lives(c.want), map[task.ID][]string{}
	for _, s := range c.got {
		for id, events := range lives(s) {
			got[id] = append(got[id], events...)
		}
	}
	for id := range want {
		if len(c.got) > 1 { // which of two processes was first is not known
			slices.Sort(got[id])
			slices.Sort(want[id])
		}
		what := fmt.Sprintf("events of task %d", id)
		c.equal(what, strings.Join(got[id], "\n"), strings.Join(want[id], "\n"))
	}
	c.equal("the number of tasks with events", len(got), len(want))
}

// compareExpired compares the tasks that have expired or were evicted.
func (c *comparison) compareExpired() {
	all := func(s *side) (list []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range append(s.evicted, s.expired...) {
			i := t.Info()
			i.Consumer = "" // who held it last
			list = append(list, fmt.Sprint(c.info(s, i), t.Payload))
		}
		s.evicted, s.expired = nil, nil
		return list
	}
	var got []string
	for _, s := range c.got {
		got = append(got, all(s)...)
	}
	want := all(c.want)
	if !c.subject.Exact {
		slices.Sort(got)
		slices.Sort(want)
	}
	c.equal("tasks that have expired or were evicted", got, want)
}
