package memory

import (
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/driver"
)

// ready reports that a task has become takeable.
func (q *queue) ready(priority int, kind string) {
	if q.waits && !q.paused && !q.all.blocked {
		for _, n := range q.notifiers {
			n.Ready(priority, kind)
		}
	}
}

// look makes all waiting takers look for a task.
func (q *queue) look() {
	if q.waits && !q.paused && !q.all.blocked {
		for _, n := range q.notifiers {
			n.Look()
		}
	}
}

// expired reports an expired task to the first notifier that wants it.
func (q *queue) expired(it *item) {
	i := slices.IndexFunc(q.notifiers, notifier.WantsExpired)
	if i >= 0 {
		q.notifiers[i].Expired(q.record(it))
	}
}

// attempt fills in a zero Attempt for a task that was just taken.
func (q *queue) attempt(it *item, a *driver.Attempt) {
	a.ID, a.Key, a.Kind, a.Priority = it.id, it.key.name, it.kind, int(it.priority)
	a.Attempts, a.Payload, a.Lease, a.Created = int(it.Attempts), it.payload,
		it.lease, q.unix(it.created)
	if it.ReadyAt != it.created || it.cost != 1 || it.Rare != nil ||
		it.Until|it.Expires|int64(it.TTR)|int64(it.MaxAttempts) != 0 {
		a.More = new(q.record(it).Details)
	}
}

// record returns the Record of a task.
func (q *queue) record(it *item) (r driver.Record) {
	r.ID, r.Key, r.Kind, r.Priority = it.id, it.key.name, it.kind, int(it.priority)
	r.Attempts, r.Payload = int(it.Attempts), it.payload
	r.Lease, r.Created, r.ReadyAt = it.lease, q.unix(it.created), q.unix(it.ReadyAt)
	r.Until, r.Expires, r.TTR = q.unix(it.Until), q.unix(it.Expires), it.TTR
	r.Cost, r.MaxAttempts, r.State = int64(it.cost), it.MaxAttempts, it.State
	if it.consumer != nil {
		r.Consumer = it.consumer.ID
	}
	if rare := it.Rare; rare != nil {
		r.Rare = &driver.Rare{
			UniqueKey: rare.UniqueKey, Group: it.groupName(), Role: rare.Role,
			Deadline: rare.Deadline, Err: rare.Err, Metadata: maps.Clone(rare.Metadata),
		}
		if rare.End != 0 && rare.End == it.Ends() {
			r.Expires = 0
		}
	}
	return r
}

// info returns the Info of a task.
func (q *queue) info(it *item) driver.Info {
	r := q.record(it)
	return r.Info()
}

// event reports an event of a task to the notifiers that listen.
func (q *queue) event(what driver.EventType, it *item, now int64, lease uint64) {
	if q.listens {
		q.report(what, it, now, lease)
	}
}

// report is not a part of event, so that event can be inlined.
func (q *queue) report(what driver.EventType, it *item, now int64, lease uint64) {
	for _, n := range q.notifiers {
		if n.interest.Listens() {
			n.Event(driver.Event{
				Type: what, Time: q.time(q.clock(now)), Lease: lease, Task: q.info(it),
			})
		}
	}
}
