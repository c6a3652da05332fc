package memory

import (
	"maps"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// ready tells that a task can be taken that could not be before.
func (q *queue) ready(priority int, kind string) {
	if q.waits && !q.paused && !q.all.blocked {
		for _, n := range q.notifiers {
			n.Ready(priority, kind)
		}
	}
}

// look makes all who wait for a task look for one.
func (q *queue) look() {
	if q.waits && !q.paused && !q.all.blocked {
		for _, n := range q.notifiers {
			n.Look()
		}
	}
}

// expired tells one of those who want to know that a task has expired.
func (q *queue) expired(it *item) {
	i := slices.IndexFunc(q.notifiers, notifier.WantsExpired)
	if i >= 0 {
		q.notifiers[i].Expired(q.record(it))
	}
}

// attempt tells about a task that was just taken, into a zero Attempt.
func (q *queue) attempt(it *item, a *driver.Attempt) {
	a.ID, a.Key, a.Kind, a.Priority = it.id, it.key.name, it.kind, int(it.priority)
	a.Attempts, a.Payload, a.Lease, a.Created = int(it.Attempts), it.payload, it.lease, q.unix(it.created)
	if it.ReadyAt != it.created || it.Until|it.Expires|int64(it.TTR)|int64(it.MaxAttempts) != 0 || it.cost != 1 || it.Rare != nil {
		a.More = new(q.record(it).Details)
	}
}

// record tells about a task.
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
			UniqueKey: rare.UniqueKey, Group: it.groupName(), Role: rare.Role, Deadline: rare.Deadline, Err: rare.Err,
			Metadata: maps.Clone(rare.Metadata),
		}
		if rare.End != 0 && rare.End == it.Ends() {
			r.Expires = 0
		}
	}
	return r
}

// info is what is told of a task but to those who take it.
func (q *queue) info(it *item) driver.Info {
	r := q.record(it)
	return r.Info()
}

// event tells the notifiers what happened to a task, if they want to know.
func (q *queue) event(what driver.EventType, it *item, now int64, lease uint64) {
	if q.listens {
		q.tell(what, it, now, lease)
	}
}

// tell is not in event, so that this can be inlined.
func (q *queue) tell(what driver.EventType, it *item, now int64, lease uint64) {
	for _, n := range q.notifiers {
		if n.interest.Listens() {
			n.Event(driver.Event{Type: what, Time: q.time(q.clock(now)), Lease: lease, Task: q.info(it)})
		}
	}
}
