package rows

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// tell has all who have the queue open told something once the transaction is committed, in the
// order of these calls. If it is not, they are told nothing.
func (u *unit) tell(f func(driver.Notifier)) {
	u.notices = append(u.notices, func(all []driver.Notifier) {
		for _, n := range all {
			f(n)
		}
	})
}

// tellEvent tells an event; that the group of a lease of this process is cancelled only once, for
// findCancelledGroups may find what the same transaction has cancelled.
func (u *unit) tellEvent(e *driver.Event) {
	u.notices = append(u.notices, func(all []driver.Notifier) {
		id, leases := uint64(e.Task.ID), u.q.ownLeases
		if h := leases[id]; e.Type == driver.EventCancel && h.lease == e.Lease {
			if h.cancelled {
				return
			}
			h.cancelled = true
			leases[id] = h
		}
		for _, n := range all {
			n.Event(*e)
		}
	})
}

// leaseBegins notes that a consumer of this process holds a task from now on.
func (u *unit) leaseBegins(r *Row) {
	u.begun = append(u.begun, ownLease{id: r.ID, lease: r.Since, consumer: r.Consumer, key: r.Key, group: r.Group})
}

// leaseEnds notes that a lease is over, whoever had it.
func (u *unit) leaseEnds(id, lease uint64) {
	u.over = append(u.over, driver.Lease{ID: driver.ID(id), Number: lease})
}

// canBeTaken notes that a task can be taken that could not be before.
func (u *unit) canBeTaken(r *Row) {
	if !u.head.Paused {
		priority, kind := r.Priority, r.Kind
		u.tell(func(n driver.Notifier) { n.Ready(priority, kind) })
	}
}

func (u *unit) ended(id uint64, o Outcome) {
	u.tell(func(n driver.Notifier) { n.Ended(driver.ID(id), o.error()) })
}

func (o *Outcome) error() error {
	if o.Result == Failed {
		return o.Err
	}
	return results[o.Result]
}

// results are the outcomes of tasks that have not failed.
var results = [...]error{Acked: nil, Deleted: driver.ErrDeleted, Expired: driver.ErrExpired, Dropped: driver.ErrDropped}

// event notes what happened to a task, if somebody wants to know.
func (u *unit) event(what driver.EventType, r *Row, now int64, lease uint64) {
	if u.listens {
		record := u.record(r)
		u.tellEvent(&driver.Event{Type: what, Time: timeOf(now), Lease: lease, Task: record.Info()})
	}
}

// wantsExpired tells whether somebody wants to know what has expired; who is just opening the queue
// does too, for nobody else will be told.
func (u *unit) wantsExpired() bool {
	return u.q.any(driver.Notifier.WantsExpired) || slices.ContainsFunc(u.opening, driver.Notifier.WantsExpired)
}

// expired notes that a task has expired, for one of those who want to know.
func (u *unit) expired(r *Row) {
	if u.wantsExpired() {
		record := u.record(r)
		u.notices = append(u.notices, func(all []driver.Notifier) {
			if i := slices.IndexFunc(all, driver.Notifier.WantsExpired); i >= 0 {
				all[i].Expired(record)
			}
		})
	}
}

// record tells about a task.
func (u *unit) record(r *Row) driver.Record {
	record := driver.Record{
		ID: driver.ID(r.ID), Key: r.Key, Kind: r.Kind, Priority: r.Priority, Attempts: r.Attempts, Payload: r.Payload,
		Details: driver.Details{
			Created: r.Created, ReadyAt: r.ReadyAt, Until: r.Until, Expires: r.Expires, TTR: r.TTR, Cost: r.Cost,
			MaxAttempts: int32(r.MaxAttempts), State: r.State,
		},
	}
	if r.State == driver.Taken {
		record.Lease = r.Since
	}
	if r.Deadline != 0 && r.end() <= r.Expires { // it ends before it would expire
		record.Expires = 0
	}
	if r.Consumer != 0 {
		record.Consumer = u.consumerName(r.Consumer)
	}
	if r.UniqueKey != "" || r.Group != "" || r.Role != 0 || r.Deadline != 0 || r.Err != nil || r.Metadata != "" {
		record.Rare = &driver.Rare{
			UniqueKey: r.UniqueKey, Group: r.Group, Role: r.Role, Deadline: timeOfDeadline(r.Deadline), Err: r.Err,
			Metadata: decodeMetadata(r.Metadata),
		}
	}
	return record
}

// encodeMetadata returns metadata as it is in a [Row].
func encodeMetadata(m map[string]string) string {
	if m == nil {
		return ""
	}
	return string(must(json.Marshal(m)))
}

func decodeMetadata(s string) (m map[string]string) {
	if s != "" {
		check(json.Unmarshal([]byte(s), &m))
	}
	return m
}

func (u *unit) consumerName(number uint64) string {
	if name, ok := u.q.names[number]; ok {
		return name
	}
	return must(u.v.ConsumerNames([]uint64{number}))[number]
}

// notifiers returns those of all who have the queue open here.
func (q *queue) notifiers() []driver.Notifier {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.openBy
}

func (q *queue) any(f func(driver.Notifier) bool) bool { return slices.ContainsFunc(q.notifiers(), f) }

func (q *queue) listens() bool {
	return q.any(func(n driver.Notifier) bool { return n.Interest().Listens() })
}

func (q *queue) waits() bool {
	return q.any(func(n driver.Notifier) bool { return n.Interest().Waits() })
}

// awaited returns the tasks whose end somebody waits for.
func (q *queue) awaited() (ids []uint64) {
	for _, n := range q.notifiers() {
		for _, id := range n.Awaited() {
			ids = append(ids, uint64(id))
		}
	}
	return ids
}

// deliver does what must wait for the commit: it changes what this process knows of the queue, and
// tells those who have it open what has happened. In this order: whoever is told makes his next
// call perhaps at once, and that must find what is known to be right. Only the committer's leader
// comes here, one at a time, so the queue needs no lock.
func (u *unit) deliver() {
	q := u.q
	if u.advanced {
		q.due = 0
	}
	q.due = sooner(q.due, u.due)
	for _, f := range u.afterCommit {
		f()
	}
	for _, l := range u.begun {
		q.ownLeases[l.id] = l
	}
	q.mu.Lock()
	q.stats = u.stats
	q.mu.Unlock()
	all := q.notifiers()
	for _, tell := range u.notices {
		tell(all)
	}
	for _, l := range u.over { // after the notices, which look whether something was told before
		if id := uint64(l.ID); q.ownLeases[id].lease == l.Number {
			delete(q.ownLeases, id)
		}
	}
	if u.listens && len(q.ownLeases) > 0 { // others may end their leases
		q.startPolling()
	}
	q.dueAt.Store(0)
	if at := sooner(q.due, q.renewAt); at != 0 { // by the clock of the database, not of this process
		q.dueAt.Store(time.Now().Add(time.Duration(at - u.now)).UnixNano())
	}
	if at := sooner(q.dueAt.Load(), q.pollAt.Load()); at != 0 {
		for _, n := range all {
			n.Due(timeOf(at))
		}
	}
}

// forget lets the store know no more of the queue, which was dropped.
func (q *queue) forget() {
	q.dropped = true
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	delete(q.store.queues, q.number)
}

// gone tells those who have the queue open that it was dropped by others, and returns ErrDropped.
func (q *queue) gone() error {
	switch {
	case q.joined: // or the transaction is one of another database
		Changed(q.store, q.number)
	case !q.dropped:
		q.forget()
		for _, n := range q.notifiers() {
			n.Dropped()
		}
	}
	return driver.ErrDropped
}
