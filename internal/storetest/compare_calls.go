package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// step makes a call.
func (c *comparison) step() {
	if c.limits != nil && c.limits.IntN(12) == 0 {
		c.limit()
		synctest.Wait()
	}
	switch op := c.IntN(100); {
	case c.tx != nil && c.chance(5):
		c.join()
	case c.subject.InTurn && c.chance(50):
		c.handOver()
	case c.subject.Exact && c.chance(8): // what shows how tasks have ended
		oneOf(c, c.wait, c.wait, c.sleep)()
	case c.pauses && c.chance(8):
		c.pause()
	case c.removes && c.chance(12):
		c.change()
	case op < 30:
		c.put()
	case op < 52:
		c.take()
	case op < 72:
		c.settle()
	case op < 76:
		c.change()
	case op < 78:
		c.kick()
	case op < 83:
		c.pause()
	case op < 86:
		c.group()
	case op < 90:
		c.consumer()
	case op < 92:
		c.wait()
	case op == 92 && c.removes && c.chance(2):
		grouped := func(t *task.Task[int]) bool { return t.Info().Group != "" }
		if !c.subject.Exact && slices.ContainsFunc(c.all(c.want), grouped) {
			return // the order in which they are deleted says what becomes of the others
		}
		o := task.ListOptions{Key: new(oneOf(c, c.keys...)), State: task.State(max(0, c.IntN(10)-4))}
		if c.chance(2) {
			o.Kind = new(oneOf(c, c.kinds...))
		}
		if c.chance(4) {
			o.Key = nil
		}
		c.number(fmt.Sprintf("DeleteSome(%+v)", o), func(s *side) (int, error) {
			return s.DeleteSome(c.ctx, o)
		})
	case op == 92 && c.removes && c.chance(6):
		c.number("Truncate", func(s *side) (int, error) { return s.Truncate(c.ctx) })
	case op >= 97:
		c.upcoming()
	default:
		c.sleep()
	}
}

func (c *comparison) sleep() {
	d := time.Duration(c.Int64N(int64(40 * second)))
	c.did("sleep for %v", d)
	time.Sleep(d)
}

// handOver has one process close the queue, and another one open it.
func (c *comparison) handOver() {
	old := c.got[0]
	for _, w := range c.workers {
		what := fmt.Sprintf("consumer %.4s leaves with its process", w.want.ID())
		c.both(what, nil, func(s *side) error { return c.of(w, s).Close(c.ctx) })
	}
	c.workers, c.leases = nil, nil
	c.ok("Close", old.Close(ctx))
	synctest.Wait()
	stores := append([]task.Store{c.subject.Store}, c.subject.Others...)
	c.closed = append(c.closed, old)
	next := c.openIn(stores[len(c.closed)%len(stores)])
	next.mu.Lock()
	defer next.mu.Unlock()
	next.events, next.expired = append(old.events, next.events...),
		append(old.expired, next.expired...)
	c.got[0] = next
	c.hire()
	c.hire()
}

// kick makes buried tasks ready, and counts tasks.
func (c *comparison) kick() {
	o := task.ListOptions{Limit: 1 + c.IntN(2)}
	if c.chance(2) {
		o.Key = new(oneOf(c, c.keys...))
	}
	if c.chance(2) {
		o.Kind = new(oneOf(c, c.kinds...))
	}
	c.number("Kick", func(s *side) (int, error) { return s.Kick(c.ctx, o) })
	o.NextFirst, o.State = true, oneOf(c, task.Delayed, task.Buried)
	c.list(o, c.side())
	o.NextFirst = false
	if o.State = task.State(c.IntN(int(task.Held) + 1)); c.chance(3) {
		o.Group = oneOf(c, Groups...)
	}
	c.number(fmt.Sprintf("Count(%+v)", o), func(s *side) (int, error) { return s.Count(c.ctx, o) })
	if len(c.got) == 1 { // else the order of ids is another one
		c.list(o, c.got[0])
	}
}

// list lists tasks, in the order of ids page by page.
func (c *comparison) list(o task.ListOptions, at *side) {
	listed := map[*side][]task.ID{}
	c.both(fmt.Sprintf("List(%+v)", o), at, func(s *side) error {
		listed[s] = nil
		for o := o; ; {
			page, err := s.List(c.ctx, o)
			for _, t := range page {
				o.After = t.ID
				if s != c.want {
					t.ID = c.ids[t.ID]
				}
				listed[s] = append(listed[s], t.ID)
			}
			if err != nil || o.NextFirst || len(page) < o.Limit {
				return err
			}
		}
	})
	c.equal("tasks listed", listed[at], listed[c.want])
}

// both makes a call to both queues, which must return the same error.
func (c *comparison) both(what string, at *side, call func(*side) error) bool {
	c.Helper()
	var vain error
	joins := c.tx != nil && c.ctx == ctx
	if joins {
		vain = c.inVain(what, at, call)
	}
	want := call(c.want)
	c.did("%s: %v", what, want)
	got := call(at)
	c.sameError(what, got, want)
	if joins && !errors.Is(vain, task.ErrInvalid) { // else it can be no part of a transaction
		c.sameError(what+", rolled back", vain, want)
	}
	return got == nil && want == nil
}

// number makes a call that returns a number.
func (c *comparison) number(what string, call func(*side) (int, error)) {
	c.Helper()
	numbers := map[*side]int{}
	at := c.side()
	c.both(what, at, func(s *side) (err error) {
		numbers[s], err = call(s)
		return err
	})
	c.equal(what, numbers[at], numbers[c.want])
}

func (c *comparison) duration() time.Duration {
	return 1 + time.Duration(c.Int64N(int64(60*second)))
}

// task returns a task to be put.
func (c *comparison) task() task.Entry[int] {
	c.payload++
	b := task.Entry[int]{Key: oneOf(c, c.keys...), Payload: c.payload}
	if c.chance(3) {
		b.Key = c.keys[0]
	}
	o := &b.Options
	o.Kind, o.Priority, o.MaxAttempts = oneOf(c, c.kinds...), c.IntN(2), c.IntN(4)
	if o.Cost = c.costs.Int64N(c.dearest + 1); c.options.ShareTime {
		o.Cost = 0
	}
	if c.payload%3 == 0 {
		o.Metadata = map[string]string{"payload": strconv.Itoa(c.payload)}
	}
	if c.chance(4) {
		o.Delay = c.duration()
	}
	if c.removes && c.chance(5) {
		o.TTL = 3 * c.duration()
	}
	if c.removes && c.chance(5) {
		o.Deadline = time.Now().Add(4*c.duration() - 40*second)
	}
	if c.chance(3) {
		o.TTR = c.duration()
	}
	if c.chance(5) {
		o.UniqueKey = oneOf(c, UniqueKeys...)
		o.Replace = c.removes && c.chance(2)
	}
	if c.groups != nil && c.chance(6) {
		o.Group, o.Role = oneOf(c, c.groups...), task.Role(c.IntN(5)%3)
	}
	// Replace needs a task with the same unique key, and mostly takes its key, kind and group.
	if t, err := c.want.Find(ctx, o.UniqueKey); err == nil && o.Replace && !c.chance(4) {
		i := t.Info()
		b.Key, o.Kind, o.Group, o.Role = i.Key, i.Kind, i.Group, i.Role
	}
	for _, l := range slices.Backward(c.leases) {
		// It may be followed.
		if i := l.want.Info(); i.UniqueKey != "" && c.removes && c.follows.IntN(3) == 0 {
			o.UniqueKey, o.Replace = i.UniqueKey, true
			b.Key, o.Kind, o.Group, o.Role = i.Key, i.Kind, i.Group, i.Role
			break
		}
	}
	if o.Replace && c.follows.IntN(3) > 0 {
		o.Delay, o.MaxDelay = c.duration(), 1+c.duration()*time.Duration(c.follows.IntN(3))/2
	}
	return b
}

// showTasks returns tasks as text, without zero fields.
func showTasks(batch ...task.Entry[int]) string {
	var s strings.Builder
	for _, b := range batch {
		fmt.Fprintf(&s, " (%s", b.Key)
		o := reflect.ValueOf(b.Options)
		for i := range o.NumField() {
			if f := o.Field(i); !f.IsZero() {
				fmt.Fprintf(&s, ", %s %v", o.Type().Field(i).Name, f)
			}
		}
		s.WriteString(")")
	}
	return s.String()
}

func (c *comparison) put() {
	var batch []task.Entry[int]
	for range oneOf(c, 1, 1, 1, 2, 5) {
		batch = append(batch, c.task())
	}
	ids, at := map[*side][]task.ID{}, c.side()
	c.both("PutBatch"+showTasks(batch...), at, func(s *side) (err error) {
		ids[s], err = s.PutBatch(c.ctx, batch)
		return err
	})
	if c.equal("tasks put", len(ids[at]), len(ids[c.want])) {
		for i, id := range ids[at] {
			c.ids[id] = ids[c.want][i]
		}
	}
}

func (c *comparison) change() {
	id, op := c.some(), c.IntN(4)
	unlessTaken := c.chance(2)
	if !c.removes && op > 0 {
		if t, err := c.got[0].Peek(c.ctx, id); err == nil && t.Info().State == task.Ready {
			return
		}
	}
	if op == 3 {
		oneOf(c, c.takeID, c.amend)(id)
		return
	}
	names, reason := [...]string{"KickID", "Bury", "Delete"}, errors.New("by hand")
	name := fmt.Sprintf("%s(%d, %v)", names[op], c.ids[id], unlessTaken)
	c.both(name, c.side(), func(s *side) error {
		at := id
		if s == c.want {
			at = c.ids[id]
		}
		switch op {
		case 0:
			return s.KickID(c.ctx, at)
		case 1:
			if unlessTaken {
				return s.BuryUnlessTaken(c.ctx, at, reason)
			}
			return s.Bury(c.ctx, at, reason)
		}
		if unlessTaken {
			return s.DeleteUnlessTaken(c.ctx, at)
		}
		return s.Delete(c.ctx, at)
	})
}

// amend changes a task.
func (c *comparison) amend(id task.ID) {
	var how task.Change[int]
	if c.chance(2) {
		how.Delay = max(-1, time.Duration(c.IntN(2))*c.duration()-1)
	}
	if c.chance(2) {
		how.Priority = 2*c.IntN(2) - 1
	}
	if c.chance(2) {
		c.payload++
		how.Payload = new(c.payload)
	}
	text, _ := json.Marshal(how)
	c.both(fmt.Sprintf("Change(%d, %s)", c.ids[id], text), c.side(), func(s *side) error {
		if s == c.want {
			return s.Change(c.ctx, c.ids[id], how)
		}
		return s.Change(c.ctx, id, how)
	})
}

// takeID takes a task by its id.
func (c *comparison) takeID(id task.ID) {
	if c.ctx != ctx {
		return // that is no part of a transaction
	}
	w := oneOf(c, c.workers...)
	l := &twins{at: w.at}
	if c.both(fmt.Sprintf("TakeID(%d)", c.ids[id]), nil, func(s *side) (err error) {
		if s == c.want {
			l.want, err = w.want.TakeID(c.ctx, c.ids[id])
		} else {
			l.got, err = w.got.TakeID(c.ctx, id)
		}
		return err
	}) {
		c.equal("payload", l.got.Payload, l.want.Payload)
		c.equal("a task that was taken by its id", c.info(w.at, l.got.Info()),
			c.info(c.want, l.want.Info()))
		c.leases = append(c.leases, l)
	}
}

// wait asks for the task with a unique key, and how it has ended.
func (c *comparison) wait() {
	uniqueKey := oneOf(c, UniqueKeys...)
	c.both(fmt.Sprintf("Wait(%s)", uniqueKey), c.side(), func(s *side) error {
		ctx, cancel := context.WithTimeout(c.ctx, time.Nanosecond)
		defer cancel()
		return s.Wait(ctx, uniqueKey)
	})
	found, at := map[*side]task.ID{}, c.side()
	c.both(fmt.Sprintf("Find(%s)", uniqueKey), at, func(s *side) error {
		t, err := s.Find(c.ctx, uniqueKey)
		if err == nil {
			found[s] = t.ID
		}
		return err
	})
	c.equal("the task that was found", c.ids[found[at]], found[c.want])
}

func (c *comparison) pause() {
	key, on := oneOf(c, c.keys...), c.chance(3)
	if c.chance(4) || !c.pauses {
		c.both(fmt.Sprint("pause: ", on), c.side(), func(s *side) error {
			if on {
				return s.Pause(c.ctx)
			}
			return s.Resume(c.ctx)
		})
		return
	}
	if d := c.duration(); c.chance(2) {
		c.both(fmt.Sprintf("HoldKey(%s, %v)", key, d), c.side(), func(s *side) error {
			return s.HoldKey(c.ctx, key, d)
		})
		return
	}
	c.both(fmt.Sprintf("pause %s: %v", key, on), c.side(), func(s *side) error {
		if on {
			return s.PauseKey(c.ctx, key)
		}
		return s.ResumeKey(c.ctx, key)
	})
}

// limit gives a key other limits, and lists the limits of all.
func (c *comparison) limit() {
	key, at := c.keys[c.limits.IntN(len(c.keys))], c.got[c.limits.IntN(len(c.got))]
	var l *task.KeyLimits
	if c.limits.IntN(4) > 0 {
		l = &task.KeyLimits{MaxInFlight: c.limits.IntN(5) - 1}
		if c.options.WhenFull < fairq.EvictHeaviest { // else the old weights of tasks matter
			l.Weight = c.limits.IntN(5)
		}
		l.Rate.Limit = []float64{-1, 0, 0, 0.01, 0.1, 1.0 / 3, 1, 1000}[c.limits.IntN(8)]
		if l.Rate.Limit > 0 {
			l.Rate.Burst = c.limits.IntN(4)
		}
	}
	c.both(fmt.Sprintf("SetKey(%s, %+v)", key, l), at,
		func(s *side) error { return s.SetKey(c.ctx, key, l) })
	from, n := c.keys[c.limits.IntN(len(c.keys))], c.limits.IntN(3)
	limited := map[*side][]task.LimitedKey{}
	for _, s := range []*side{at, c.want} {
		var err error
		limited[s], err = s.LimitedKeys(ctx, from, n)
		c.ok("LimitedKeys", err)
	}
	c.equal("keys with limits", limited[at], limited[c.want])
}

func (c *comparison) group() {
	if c.groups == nil {
		return
	}
	name, cancel := oneOf(c, c.groups...), c.removes && c.chance(3)
	c.both(fmt.Sprintf("group %s, cancel: %v", name, cancel), c.side(), func(s *side) error {
		if cancel {
			return s.CancelGroup(c.ctx, name)
		}
		return s.StartGroup(c.ctx, name)
	})
}

// consumer has a consumer come or go.
func (c *comparison) consumer() {
	if len(c.left) > 0 && c.chance(2) {
		i := c.IntN(len(c.left))
		w := c.left[i]
		c.left = slices.Delete(c.left, i, i+1)
		c.resume(w)
		return
	}
	i := c.IntN(len(c.workers))
	w := c.workers[i]
	if c.chance(4) {
		if c.resume(w) {
			c.workers = slices.Delete(c.workers, i, i+1)
			c.wasResumed(w)
		}
		return
	}
	if c.chance(5) {
		c.both(fmt.Sprintf("ReleaseAll of %.4s", w.want.ID()), nil, func(s *side) error {
			return c.of(w, s).ReleaseAll(c.ctx)
		})
		return
	}
	c.workers = slices.Delete(c.workers, i, i+1)
	disconnects := c.chance(2)
	what := fmt.Sprintf("consumer %.4s leaves; it disconnects: %v", w.want.ID(), disconnects)
	c.both(what, nil, func(s *side) error {
		if disconnects {
			return c.of(w, s).Disconnect(c.ctx)
		}
		return c.of(w, s).Close(c.ctx)
	})
	if disconnects {
		c.left = append(c.left, w)
		// Stores lose the tasks of consumers that left at one moment in any order.
		time.Sleep(time.Nanosecond)
	}
	if len(c.workers) < 2 {
		c.hire()
	}
}

// of returns the consumer that a worker is in a store.
func (c *comparison) of(w *worker, s *side) *task.Consumer[int] {
	if s == c.want {
		return w.want
	}
	return w.got
}

// wasResumed makes calls of a consumer that another caller has resumed.
func (c *comparison) wasResumed(w *worker) {
	c.both("TryTake of one that was resumed", nil, func(s *side) error {
		_, _, err := c.of(w, s).TryTake(c.ctx)
		return err
	})
	c.both("Disconnect of one that was resumed", nil, func(s *side) error {
		return c.of(w, s).Disconnect(c.ctx)
	})
	c.both("Close of one that was resumed", nil, func(s *side) error {
		return c.of(w, s).Close(c.ctx)
	})
}

// resume resumes a consumer, and reports whether that was possible.
func (c *comparison) resume(w *worker) bool {
	next := &worker{at: c.side()}
	var got, want []*task.Task[int]
	if !c.both(fmt.Sprintf("ResumeConsumer(%.4s)", w.want.ID()), next.at, func(s *side) (err error) {
		if s == c.want {
			next.want, want, err = s.ResumeConsumer(c.ctx, w.want.ID(), task.Filter{})
		} else {
			next.got, got, err = s.ResumeConsumer(c.ctx, w.got.ID(), task.Filter{})
		}
		return err
	}) {
		return false
	}
	c.workers = append(c.workers, next)
	if c.equal("tasks held", len(got), len(want)) {
		for i := range got {
			c.equal("a task that is held", c.ids[got[i].ID], want[i].ID)
			c.leases = append(c.leases, &twins{got: got[i], want: want[i], at: next.at})
		}
	}
	return true
}
