package rows

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// notify makes deliver call f for all notifiers of the queue after the commit, in the order of the
// calls of notify. After a rollback f is not called.
func (u *unit) notify(f func(driver.Notifier)) {
	u.notices = append(u.notices, func(all []driver.Notifier) {
		for _, n := range all {
			f(n)
		}
	})
}

// notifyEvent makes deliver report an event after the commit. An EventCancel of a lease of this
// process is reported only once, although findCancelledGroups may find a group that this
// transaction has cancelled.
func (u *unit) notifyEvent(e *driver.Event) {
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
	u.begun = append(u.begun, ownLease{
		id: r.ID, lease: r.Since, consumer: r.Consumer, key: r.Key, group: r.Group,
	})
}

// leaseEnds notes that a lease of any process is over.
func (u *unit) leaseEnds(id, lease uint64) {
	u.over = append(u.over, driver.Lease{ID: driver.ID(id), Number: lease})
}

// canBeTaken notes that a task has become takeable.
func (u *unit) canBeTaken(priority int, kind string) {
	if !u.head.Paused {
		u.notify(func(n driver.Notifier) { n.Ready(priority, kind) })
	}
}

func (u *unit) ended(id uint64, o Outcome) {
	u.notify(func(n driver.Notifier) { n.Ended(driver.ID(id), o.error()) })
}

func (o *Outcome) error() error {
	if o.Result == Failed {
		return o.Err
	}
	return results[o.Result]
}

// results are the outcomes of tasks that have not failed.
var results = [...]error{
	Acked: nil, Deleted: driver.ErrDeleted, Expired: driver.ErrExpired, Dropped: driver.ErrDropped,
}

// event notes an event of a task, if the queue has listeners.
func (u *unit) event(what driver.EventType, r *Row, now int64, lease uint64) {
	if u.listens {
		record := u.record(r)
		u.notifyEvent(&driver.Event{Type: what, Time: timeOf(now), Lease: lease, Task: record.Info()})
	}
}

// wantsExpired reports whether a notifier wants expired tasks. It also asks the notifiers of calls
// that open the queue in this transaction: no later call will report these expired tasks to them.
func (u *unit) wantsExpired() bool {
	return u.q.any(driver.Notifier.WantsExpired) ||
		slices.ContainsFunc(u.opening, driver.Notifier.WantsExpired)
}

// expired notes an expired task. The first notifier that wants such tasks gets it.
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

// record returns the Record of a task.
func (u *unit) record(r *Row) driver.Record {
	record := driver.Record{
		ID: driver.ID(r.ID), Key: r.Key, Kind: r.Kind, Priority: r.Priority, Attempts: r.Attempts,
		Payload: r.Payload,
		Details: driver.Details{
			Created: r.Created, ReadyAt: r.ReadyAt, Until: r.Until, Expires: r.Expires, TTR: r.TTR,
			Cost: r.Cost, MaxAttempts: int32(r.MaxAttempts), State: r.State,
		},
	}
	if r.State == driver.Taken {
		record.Lease = r.Since
	}
	if r.Deadline != 0 && r.end() <= r.Expires { // the task expires by its deadline
		record.Expires = 0
	}
	if r.Consumer != 0 {
		record.Consumer = u.consumerName(r.Consumer)
	}
	if r.UniqueKey != "" || r.Group != "" || r.Role != 0 || r.Deadline != 0 || r.Err != nil ||
		r.Metadata != "" {
		record.Rare = &driver.Rare{
			UniqueKey: r.UniqueKey, Group: r.Group, Role: r.Role, Deadline: timeOfDeadline(r.Deadline),
			Err: r.Err, Metadata: decodeMetadata(r.Metadata),
		}
	}
	return record
}

// encodeMetadata returns metadata in the form of a [Row].
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

// notifiers returns the notifiers of all Queues of this process that have the queue open.
func (q *queue) notifiers() []driver.Notifier {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.openBy
}

func (q *queue) any(f func(driver.Notifier) bool) bool {
	return slices.ContainsFunc(q.notifiers(), f)
}

func (q *queue) listens() bool {
	return q.any(func(n driver.Notifier) bool { return n.Interest().Listens() })
}

func (q *queue) waits() bool {
	return q.any(func(n driver.Notifier) bool { return n.Interest().Waits() })
}

// awaited returns the tasks for whose end callers wait.
func (q *queue) awaited() (ids []uint64) {
	for _, n := range q.notifiers() {
		for _, id := range n.Awaited() {
			ids = append(ids, uint64(id))
		}
	}
	return ids
}

// deliver makes the changes that must wait for the commit. It first updates the state of the queue
// in this process, and then calls the notifiers: a notified caller may make its next call at once,
// and must find the new state. In a committer only one goroutine at a time calls deliver, so the
// queue needs no lock.
func (u *unit) deliver() {
	q := u.q
	if u.advanced {
		q.due = 0
	}
	q.due = sooner(q.due, u.due)
	for _, l := range u.plan.Lines {
		q.rounds[l.Priority] = u.currentRound(l.Priority)
	}
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
	for _, notify := range u.notices {
		notify(all)
	}
	for _, l := range u.over { // after the notices, which check earlier reports
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

// forget removes the queue, which was dropped, from the store.
func (q *queue) forget() {
	q.dropped = true
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	delete(q.store.queues, q.number)
}

// gone reports to the notifiers that another process has dropped the queue, and returns
// ErrDropped.
func (q *queue) gone() error {
	switch {
	case q.joined: // or the transaction belongs to another database
		Changed(q.store, q.number)
	case !q.dropped:
		q.forget()
		for _, n := range q.notifiers() {
			n.Dropped()
		}
	}
	return driver.ErrDropped
}
