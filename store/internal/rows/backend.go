package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// backend is a queue as opened by one task.Queue.
type backend struct {
	*queue
	notifier driver.Notifier
	wanted   driver.Settings // that it was opened with
	opener   string          // the name of the consumer that stands for it, unless it is open AsIs
}

func (b *backend) handle() driver.Handle { return driver.Handle{ID: b.opener} }

// call runs c: in the caller's transaction if ctx carries one, else in a transaction that other
// calls share.
func (b *backend) call(ctx context.Context, name string, c call) error {
	c.name, c.backend, c.queue = name, b, b.queue
	if own := b.Joined(ctx); own != nil {
		return b.store.runJoined(ctx, own, &c)
	}
	return b.committer.do(ctx, &c)
}

// Joined implements [driver.Backend].
func (b *backend) Joined(ctx context.Context) *driver.Tx { return b.store.db.Own(ctx) }

// Put implements [driver.Backend].
func (b *backend) Put(
	ctx context.Context, tasks []driver.New, ids []driver.ID,
) (n int, evicted []driver.Record, err error) {
	bytes := 0
	for i := range tasks {
		bytes += sizeOf(&tasks[i])
	}
	err = b.call(ctx, "Put", call{
		order: puts, joins: true, tasks: len(tasks), bytes: bytes,
		groups: slices.ContainsFunc(tasks, func(t driver.New) bool { return t.Group != "" }),
		lines:  slices.ContainsFunc(tasks, func(t driver.New) bool { return t.Kind != "" }),
		plan: func(q *queue, p *wants) {
			p.Numbers += len(tasks)
			p.Counts = p.Counts || q.settings.Capacity < fairq.MaxLen
			for i := range tasks {
				if tasks[i].Kind != "" && !q.settings.Lines { // see needLines
					p.Exclusive = true
				}
				l := Line{tasks[i].Key, tasks[i].Priority}
				if q.guardsLines() {
					p.Puts = append(p.Puts, lineKind{l, tasks[i].Kind})
				} else {
					p.change(q, l.Key)
				}
				if !q.lines { // else its line has the turn
					p.Lines = append(p.Lines, l)
				}
			}
		},
		run: func(u *unit) error {
			n = 0
			if most := u.maxRows(); len(tasks) > most {
				return u.tooMany("PutBatch: the number of tasks", len(tasks), most)
			}
			if most := u.maxBytes(); bytes > most && len(tasks) > 1 {
				return &driver.FieldError{
					Field: "PutBatch: the length of its payloads, metadata and names (these count fourfold)",
					Value: bytes,
					Limit: fmt.Sprintf("%d bytes at most, for more than one task", most),
				}
			}
			for i := range tasks {
				id, err := u.put(&tasks[i])
				if err != nil {
					if errors.Is(err, fairq.ErrFull) {
						u.poll()
					}
					return err
				}
				ids[i] = id
				n++
			}
			return nil
		},
	})
	if err != nil && !(n < len(tasks) && isRefusal(err)) {
		n = 0 // the transaction has failed
		clear(ids)
	}
	return n, nil, err
}

// PutOne implements [driver.Backend].
func (b *backend) PutOne(ctx context.Context, t driver.New) (driver.ID, *driver.Record, error) {
	return driver.PutOne(ctx, b, t)
}

// isRefusal reports whether an error comes from the rules, and not from the database.
func isRefusal(err error) bool {
	return errors.Is(err, fairq.ErrFull) || errors.Is(err, driver.ErrDuplicate) ||
		errors.Is(err, driver.ErrReplace) ||
		errors.Is(err, driver.ErrGroupCancelled) || errors.Is(err, driver.ErrInvalid)
}

// Leave implements [driver.Backend].
func (b *backend) Leave(ctx context.Context, consumer driver.Handle, after time.Duration) error {
	name := "Close"
	if after > 0 {
		name = "Disconnect"
	}
	return b.leave(ctx, name, consumer, after)
}

// leave ends a consumer, in as many steps as it takes to hand back what it holds.
func (b *backend) leave(
	ctx context.Context, name string, consumer driver.Handle, after time.Duration,
) error {
	return b.steps(ctx, name, call{}, func(u *unit) (done bool, err error) {
		return u.leaveConsumer(consumer, after)
	})
}

// steps calls f in one transaction after the other, until it is done.
func (b *backend) steps(
	ctx context.Context, name string, c call, f func(*unit) (done bool, err error),
) error {
	for done := false; !done; {
		c.run = func(u *unit) (err error) {
			done, err = f(u)
			return err
		}
		if err := b.call(ctx, name, c); err != nil {
			return err
		}
	}
	return nil
}

// Return implements [driver.Backend].
func (b *backend) Return(ctx context.Context, consumer driver.Handle) error {
	return b.steps(ctx, "ReleaseAll", call{}, func(u *unit) (done bool, err error) {
		return u.returnAll(consumer)
	})
}

// Rejoin implements [driver.Backend].
func (b *backend) Rejoin(
	ctx context.Context, consumer string,
) (epoch uint64, held []driver.Record, err error) {
	var c *ownConsumer
	err = b.call(ctx, "ResumeConsumer", call{binds: true, run: func(u *unit) (err error) {
		c, held, err = u.rejoin(consumer)
		return err
	}})
	if err == nil && held == nil { // it got the leases in transactions of their own
		err = b.call(ctx, "ResumeConsumer", call{run: func(u *unit) error {
			held = u.resumed(consumer, must(u.v.TakenBy(c.number, driver.MaxBatch*pageSize, true)))
			return nil
		}})
	}
	if err != nil {
		return 0, nil, err
	}
	return c.epoch, held, nil
}

// Peek implements [driver.Backend].
func (b *backend) Peek(
	ctx context.Context, id driver.ID, uniqueKey string,
) (record driver.Record, err error) {
	name := "Peek"
	if id == 0 {
		name = "Find"
	}
	err = b.call(ctx, name, call{joins: true, run: func(u *unit) error {
		var r *Row
		if id != 0 {
			r = u.peek(uint64(id))
		} else {
			r = u.findUniqueKey(uniqueKey, true)
		}
		if r == nil {
			return driver.ErrNotFound
		}
		record = u.record(r)
		return nil
	}})
	return record, err
}

// List implements [driver.Backend].
func (b *backend) List(
	ctx context.Context, o driver.ListOptions,
) (records []driver.Record, err error) {
	err = b.call(ctx, "List", call{joins: true, run: func(u *unit) error {
		records = nil
		for _, r := range must(u.v.List(o)) {
			records = append(records, u.record(r))
		}
		return nil
	}})
	return records, err
}

// Count implements [driver.Backend]. Where no count is stored, it reads the tasks in pages, so
// that no other call waits for it. The database could count faster, but would need an index that
// each Put writes to, or a long transaction.
func (b *backend) Count(ctx context.Context, o driver.ListOptions) (n int, err error) {
	o.After, o.Limit = 0, pageSize
	for done := false; !done; {
		var page []*Row
		err := b.call(ctx, "Count", call{order: puts, joins: true, run: func(u *unit) error {
			if o.After == 0 {
				if n, done = u.counted(o); done {
					return nil
				}
			}
			page = must(u.v.Rows(listRange(o, false)))
			done = len(page) < pageSize
			return nil
		}})
		if err != nil {
			return 0, err
		}
		if n += len(page); len(page) > 0 {
			o.After = driver.ID(page[len(page)-1].ID)
		}
	}
	return n, nil
}

// counted returns how many tasks there are of a state and key, if these are counted anyway.
func (u *unit) counted(o driver.ListOptions) (n int, ok bool) {
	switch {
	case o.Kind != nil || o.Group != "":
		return 0, false
	case o.Key == nil:
		return must(u.v.Counts())[o.State], true
	case u.q.countsKeys:
		return u.key(*o.Key).Tasks[o.State], true
	}
	return 0, false
}

// Kick implements [driver.Backend].
func (b *backend) Kick(ctx context.Context, o driver.ListOptions) (kicked int, err error) {
	for n := o.Limit; kicked < n; {
		found := 0
		err := b.call(ctx, "Kick", call{joins: true, run: func(u *unit) error {
			u.needAnyKeys()
			o.Limit = u.room(min(n-kicked, pageSize))
			rows := must(u.v.Buried(o))
			found = 0
			if !u.each(rows, func(r *Row) {
				t := u.life(r)
				u.applyTransition(r, t, t.Kick(u.now, &u.stats), u.now)
				found++
			}) {
				o.Limit = found // there may be more
			}
			return nil
		}})
		if err != nil {
			return kicked, err
		}
		if kicked += found; found < o.Limit {
			break
		}
		if err := b.letOthersIn(ctx, found); err != nil {
			return kicked, err
		}
	}
	return kicked, nil
}

// letOthersIn waits between two transactions of one call, if the first has changed a page of
// tasks. Without the pause this call might keep others out: SQLite does not give its lock to the
// longest waiter, and other processes ask for it only every 10 ms.
func (b *backend) letOthersIn(ctx context.Context, n int) error {
	if n < pageSize || !b.store.traits.Exclusive || b.Joined(ctx) != nil {
		return nil
	}
	return Pause(ctx, 20*time.Millisecond)
}

// Change implements [driver.Backend].
func (b *backend) Change(
	ctx context.Context, id driver.ID, change driver.Change, unlessTaken bool, reason *driver.Error,
) error {
	name := [...]string{
		driver.KickOne: "KickID", driver.BuryOne: "Bury", driver.Delete: "Delete",
	}[change]
	return b.call(ctx, name, call{joins: true, run: func(u *unit) error {
		r := u.get(uint64(id))
		if r == nil {
			return driver.ErrNotFound
		}
		t := u.life(r)
		f, err := t.Change(change, unlessTaken, reason, u.now, &u.stats)
		if err == nil {
			u.applyTransition(r, t, f, u.now)
		}
		return err
	}})
}

// Amend implements [driver.Backend].
func (b *backend) Amend(ctx context.Context, id driver.ID, a driver.Amendment) error {
	c := call{joins: true, exclusive: true, task: uint64(id)}
	c.run = func(u *unit) error {
		r := u.get(uint64(id))
		if r == nil {
			return driver.ErrNotFound
		}
		t := u.life(r)
		f, err := t.Amend(&a, r.Priority, u.now)
		if err == nil && a.Payload != nil {
			_, err = u.checkPayload(*a.Payload)
		}
		if err == nil {
			u.amend(r, t, &a, f, u.now)
		}
		return err
	}
	return b.call(ctx, "Change", c)
}

// Pause implements [driver.Backend].
func (b *backend) Pause(ctx context.Context, key *string, paused bool) error {
	name := "Pause"
	if !paused {
		name = "Resume"
	}
	if key != nil {
		name += "Key"
	}
	c := call{exclusive: true, lines: key != nil && paused}
	c.run = func(u *unit) error {
		if key != nil {
			if u.changeKey(*key, func(k *Key) {
				if k.Paused = paused; !paused {
					k.Hold = 0
				}
			}) {
				u.showKey(*key)
			}
		} else if u.head.Paused != paused {
			u.head.Paused, u.headChanged = paused, true
		}
		u.changed = true
		u.notify(driver.Notifier.Look)
		return nil
	}
	return b.call(ctx, name, c)
}

// HoldKey implements [driver.Backend].
func (b *backend) HoldKey(ctx context.Context, key string, d time.Duration) error {
	return b.call(ctx, "HoldKey", call{exclusive: true, lines: true, run: func(u *unit) error {
		if u.waitKey(key, d, 0) {
			u.showKey(key)
		}
		u.changed = true
		return nil
	}})
}

// SetKey implements [driver.Backend].
func (b *backend) SetKey(ctx context.Context, key string, limits driver.KeyLimits) error {
	return b.call(ctx, "SetKey", call{exclusive: true, run: func(u *unit) error {
		if err := life.CheckLimits(&u.q.settings.Settings); err != nil {
			return err
		}
		u.changeKey(key, func(k *Key) {
			was := u.rate(k)
			if k.Limits = nil; limits != (driver.KeyLimits{}) {
				k.Limits = &limits
			}
			if rate := u.rate(k); rate != was {
				k.SetRate(was, rate, u.now)
			}
		})
		u.showKey(key)
		u.changed = true
		return nil
	}})
}

// LimitedKeys implements [driver.Backend].
func (b *backend) LimitedKeys(
	ctx context.Context, from string, n int,
) (all []driver.LimitedKey, err error) {
	err = b.call(ctx, "LimitedKeys", call{order: puts, run: func(u *unit) error {
		u.saveKeys()
		all = nil
		for _, k := range must(u.v.LimitedKeys(from, n)) {
			all = append(all, driver.LimitedKey{Key: k.Key, KeyLimits: *k.Limits})
		}
		return nil
	}})
	return all, err
}

// Group implements [driver.Backend].
func (b *backend) Group(ctx context.Context, group string, cancel bool) error {
	name := "StartGroup"
	if cancel {
		name = "CancelGroup"
	}
	return b.call(ctx, name,
		call{groups: true, joins: true, run: func(u *unit) error { return u.startGroup(group, cancel) }})
}

// DeleteSome implements [driver.Backend]. When tasks of a key are deleted, other tasks of the key
// move in the index. So with a key each transaction looks at the first tasks again, and at twice
// as many if none of these could be deleted.
func (b *backend) DeleteSome(ctx context.Context, o driver.ListOptions) (n int, err error) {
	o.After = 0
	seen := pageSize
	for done := false; !done; {
		deleted, last, limit := 0, o.After, seen
		err := b.call(ctx, "DeleteSome", call{exclusive: true, run: func(u *unit) error {
			deleted, last = 0, o.After
			rows, all, err := u.v.Deletable(o, limit)
			check(err)
			full := false
			done = u.each(rows, func(r *Row) {
				if full = full || deleted == pageSize || u.room(1) == 0; full {
					return
				}
				last = driver.ID(r.ID)
				if r = u.reread(r); r != nil && u.isDue(r, u.now) {
					r = u.get(r.ID)
				}
				if r != nil && (r.State == o.State || o.State == 0 && r.State != driver.Taken) {
					u.delete(r, driver.ErrDeleted, u.now)
					deleted++
				}
			})
			done = done && all && !full
			return nil
		}})
		if err != nil {
			return n, err
		}
		n += deleted
		if err := b.letOthersIn(ctx, deleted); err != nil {
			return n, err
		}
		if o.Key == nil {
			o.After = last
		} else if deleted == 0 {
			seen *= 2
		}
	}
	return n, nil
}

// Truncate implements [driver.Backend].
func (b *backend) Truncate(ctx context.Context) (n int, err error) {
	for done := false; !done; {
		deleted := 0
		err := b.call(ctx, "Truncate", call{exclusive: true, run: func(u *unit) error {
			deleted, done = u.truncate(false)
			return nil
		}})
		if err != nil {
			return n, err
		}
		n += deleted
		if err := b.letOthersIn(ctx, deleted); err != nil {
			return n, err
		}
	}
	return n, nil
}

// truncated is how many tasks one transaction deletes, or more if there are groups.
const truncated = 10 * pageSize

// truncate deletes tasks, as many as one transaction may, and reports whether these were all.
func (u *unit) truncate(dropped bool) (n int, done bool) {
	u.purges = true
	defer func() { u.purges = false }()
	groups := map[string]bool{}
	most := u.room(truncated)
	for done = true; done && n < most; {
		wanted := min(most-n, pageSize)
		page := must(u.v.List(driver.ListOptions{Limit: wanted}))
		done = u.each(page, func(r *Row) {
			switch {
			case r.Group == "":
				if r = u.reread(r); r == nil {
					return // it has followed a task of this page
				}
				if r.Follower != 0 { // in this transaction, because no other one would find it
					if next := u.follower(r.Follower, u.now); next != nil {
						u.delete(next, endOfTruncate(dropped), u.now)
						n++
					}
				}
				u.delete(r, endOfTruncate(dropped), u.now)
				n++
			case !groups[r.Group]: // as a whole, and so that nothing comes of it any more
				groups[r.Group] = true
				n += u.group(r.Group).Tasks
				check(u.v.SetGroup(&Group{Name: r.Group}))
				u.do(&work{What: deleteGroup, Name: []byte(r.Group), Dropped: dropped})
			}
		})
		if len(page) < wanted {
			return n, done && !u.workLeft()
		}
	}
	return n, false
}

// endOfTruncate returns how the tasks end of a queue that is truncated or dropped.
func endOfTruncate(dropped bool) error {
	if dropped {
		return driver.ErrDropped
	}
	return driver.ErrDeleted
}

// Drop implements [driver.Backend].
func (b *backend) Drop(ctx context.Context, unlessTaken bool) error {
	return b.steps(ctx, "Drop", call{exclusive: true}, func(u *unit) (bool, error) {
		if unlessTaken {
			if must(u.v.Counts())[driver.Taken] > 0 {
				return false, driver.ErrTaken
			}
			u.head.Paused, u.headChanged = true, true // nothing is to be taken before the last step
			u.onCommit(func() { unlessTaken = false })
		}
		if _, empty := u.truncate(true); !empty || !must(u.v.Drop()) {
			return false, nil
		}
		u.changed, u.dropped = true, true
		u.notify(driver.Notifier.Dropped)
		u.onCommit(u.q.forget)
		return true, nil
	})
}

// Outcome implements [driver.Backend].
func (b *backend) Outcome(ctx context.Context, uniqueKey string) (o driver.Outcome, err error) {
	err = b.call(ctx, "Wait", call{run: func(u *unit) error {
		u.followEnds() // first, so that nothing is missed
		if r := u.findUniqueKey(uniqueKey, false); r != nil {
			if o = u.life(r).OutcomeSoFar(driver.ID(r.ID)); !o.Done {
				u.poll()
			}
			return nil
		}
		if end := must(u.v.Outcome(uniqueKey)); end != nil && end.Until > u.now {
			o = driver.Outcome{ID: driver.ID(end.ID), Done: true, Err: end.error()}
			return nil
		}
		return fmt.Errorf("%w: unique key %q", driver.ErrNotFound, uniqueKey)
	}})
	return o, err
}

// Close implements [driver.Backend].
func (b *backend) Close() error {
	if b.wanted.AsIs {
		return nil
	}
	err := b.leave(context.Background(), "Close", b.handle(), 0)
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.openBy, b.notifier); i >= 0 {
		b.openBy = slices.Concat(b.openBy[:i], b.openBy[i+1:])
	}
	if errors.Is(err, driver.ErrDropped) {
		return nil
	}
	return err
}
