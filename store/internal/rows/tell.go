package rows

import (
	"slices"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// notice is something that those who have the queue open are told once the transaction is
// committed.
type notice struct {
	what     what
	priority int
	kind     string // or the key
	group    string
	id       uint64
	lease    uint64
	err      error
	event    *driver.Event
	record   *driver.Record
}

type what uint8

const (
	ready what = iota
	look
	room
	event
	ended
	expired
	dropped
	leaseBegun // a member has taken a task
	leaseOver
)

func (u *unit) notice(n notice) { u.notices = append(u.notices, n) }

// canBeTaken says that a task can be taken that could not be before.
func (u *unit) canBeTaken(r *Row) {
	if !u.head.Paused {
		u.notice(notice{what: ready, priority: r.Priority, kind: r.Kind})
	}
}

func (u *unit) ended(id uint64, o Outcome) {
	u.notice(notice{what: ended, id: id, err: o.error()})
}

func (o *Outcome) error() error {
	switch o.How {
	case Failed:
		return o.Err
	case Deleted:
		return driver.ErrDeleted
	case Expired:
		return driver.ErrExpired
	case Dropped:
		return driver.ErrDropped
	}
	return nil
}

// event tells what happened to a task, if somebody wants to know.
func (u *unit) event(what driver.EventType, r *Row, now int64, lease uint64) {
	if u.listens {
		e := &driver.Event{Type: what, Time: timeOf(now), Lease: lease}
		u.info(r, &e.Task)
		u.notice(notice{what: event, event: e})
	}
}

func (u *unit) wantsExpired() bool { return u.q.any(driver.Notifier.WantsExpired) }

// expired tells one of those who want to know that a task has expired.
func (u *unit) expired(r *Row) {
	if u.wantsExpired() {
		record := u.record(r)
		u.notice(notice{what: expired, record: &record})
	}
}

// record tells about a task.
func (u *unit) record(r *Row) driver.Record {
	record := driver.Record{Payload: r.Payload}
	if r.State == driver.Taken {
		record.Lease = driver.Lease{ID: driver.ID(r.ID), Number: r.Since}
	}
	u.info(r, &record.Info)
	return record
}

func (u *unit) info(r *Row, i *driver.Info) {
	ends := r.life().Ends()
	*i = driver.Info{
		ID: driver.ID(r.ID), Key: r.Key, Kind: r.Kind, UniqueKey: r.UniqueKey, Group: r.Group, Role: r.Role, State: r.State,
		Priority: r.Priority, Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, TTR: r.TTR, Created: timeOf(r.Created),
		ReadyAt: timeOf(r.ReadyAt), Until: timeOf(r.Until), Deadline: timeOfDeadline(r.Deadline), Expires: timeOf(ends), Err: r.Err,
	}
	if r.Deadline != 0 && max(nanos(r.Deadline), r.Created) == ends {
		i.Expires = i.Deadline
	}
	if r.Consumer != 0 {
		i.Consumer = u.consumerName(r.Consumer)
	}
}

func (u *unit) consumerName(number uint64) string {
	if name, ok := u.q.names[number]; ok {
		return name
	}
	return must(u.v.ConsumerNames([]uint64{number}))[number]
}

// notifiers returns those of all who have the queue open here.
func (q *queue) notifiers() (all []driver.Notifier) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range q.backends {
		all = append(all, b.notifier)
	}
	return all
}

func (q *queue) any(f func(driver.Notifier) bool) bool { return slices.ContainsFunc(q.notifiers(), f) }
func (q *queue) listens() bool                         { return q.any(driver.Notifier.Listens) }
func (q *queue) waits() bool                           { return q.any(driver.Notifier.Waits) }

// awaited returns the tasks whose end somebody waits for.
func (q *queue) awaited() (ids []uint64) {
	for _, n := range q.notifiers() {
		for _, id := range n.Awaited() {
			ids = append(ids, uint64(id))
		}
	}
	return ids
}

// tell tells what has happened. The transaction is committed.
func (u *unit) tell() {
	q := u.q
	if u.advanced {
		q.due = 0
	}
	q.due = sooner(q.due, u.due)
	for _, f := range u.after {
		f()
	}
	q.stats.Puts += u.stats.Puts
	q.stats.Takes += u.stats.Takes
	q.stats.Acks += u.stats.Acks
	q.stats.Releases += u.stats.Releases
	q.stats.Losses += u.stats.Losses
	q.stats.Buries += u.stats.Buries
	q.stats.Kicks += u.stats.Kicks
	q.stats.Touches += u.stats.Touches
	q.stats.Deletes += u.stats.Deletes
	q.stats.Expiries += u.stats.Expiries
	q.stats.Evicted += u.stats.Evicted
	q.stats.Refused += u.stats.Refused
	all := q.notifiers()
	for i := range u.notices {
		u.notices[i].tell(q, all)
	}
	if u.listens && len(q.held) > 0 { // for others may end a lease
		q.pollSoon()
	}
	q.next.Store(0)
	if at := sooner(q.due, q.beat); at != 0 { // that is a time of the database, which is not that of this process
		q.next.Store(time.Now().Add(time.Duration(at - u.now)).UnixNano())
	}
	if at := sooner(q.next.Load(), q.poll.Load()); at != 0 {
		for _, n := range all {
			n.Due(timeOf(at))
		}
	}
}

func (n *notice) tell(q *queue, all []driver.Notifier) {
	switch n.what {
	case leaseBegun:
		q.held[n.id] = held{lease: n.lease, key: n.kind, group: n.group}
		return
	case leaseOver:
		if q.held[n.id].lease == n.lease {
			delete(q.held, n.id)
		}
		return
	case expired:
		if i := slices.IndexFunc(all, driver.Notifier.WantsExpired); i >= 0 {
			all[i].Expired(*n.record)
		}
		return
	}
	if n.what == event && n.event.Type == driver.EventCancel {
		id := uint64(n.event.Task.ID)
		if h := q.held[id]; h.lease == n.event.Lease {
			h.cancelled = true
			q.held[id] = h
		}
	}
	for _, to := range all {
		switch n.what {
		case ready:
			to.Ready(n.priority, n.kind)
		case look:
			to.Look()
		case room:
			to.Room(n.kind)
		case event:
			to.Event(*n.event)
		case ended:
			to.Ended(driver.ID(n.id), n.err)
		case dropped:
			to.Dropped()
		}
	}
}

// forget forgets the queue, which was dropped.
func (q *queue) forget() {
	q.dropped = true
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	delete(q.store.queues, q.number)
}

// gone says that the queue was dropped by others.
func (q *queue) gone() error {
	switch {
	case q.joined: // or the transaction is one of another database
		q.store.Changed(q.number)
	case !q.dropped:
		q.forget()
		for _, n := range q.notifiers() {
			n.Dropped()
		}
	}
	return driver.ErrDropped
}
