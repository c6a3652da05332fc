package memory

import (
	"maps"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// ready tells that a task can be taken that could not be before.
func (q *queue) ready(priority int, kind string) {
	if !q.paused {
		for _, n := range q.notifiers {
			n.Ready(priority, kind)
		}
	}
}

// look makes all who wait for a task look for one.
func (q *queue) look() {
	if !q.paused {
		for _, n := range q.notifiers {
			n.Look()
		}
	}
}

// expired tells one of those who want to know that a task has expired.
func (q *queue) expired(it *item) {
	i := slices.IndexFunc(q.notifiers, driver.Notifier.WantsExpired)
	if i >= 0 {
		var r driver.Record
		q.record(it, &r)
		q.notifiers[i].Expired(r)
	}
}

// record tells about a task; r is empty before.
func (q *queue) record(it *item, r *driver.Record) {
	q.info(it, &r.Info)
	r.Lease, r.Payload = driver.Lease{ID: it.id, Number: it.lease}, it.payload
}

// info tells about a task; info is empty before.
func (q *queue) info(it *item, info *driver.Info) {
	info.ID, info.Key, info.Kind, info.State = it.id, it.key.name, it.kind, it.State
	info.Priority, info.Attempts, info.MaxAttempts = int(it.priority), int(it.Attempts), int(it.MaxAttempts)
	info.TTR, info.Cost = it.TTR, int64(it.cost)
	info.Created = q.time(it.created)
	switch it.ReadyAt {
	case 0:
	case it.created: // as for most
		info.ReadyAt = info.Created
	default:
		info.ReadyAt = q.time(it.ReadyAt)
	}
	if it.Until != 0 {
		info.Until = q.time(it.Until)
	}
	if it.Expires != 0 {
		info.Expires = q.time(it.Expires)
	}
	if it.consumer != nil {
		info.Consumer = it.consumer.ID
	}
	if r := it.Rare; r != nil {
		info.UniqueKey, info.Err, info.Role, info.Group, info.Deadline = r.UniqueKey, r.Err, r.Role, it.groupName(), r.Deadline
		info.Metadata = maps.Clone(r.Metadata)
		if r.End != 0 && r.End == it.Ends() {
			info.Expires = r.Deadline
		}
	}
}

// event tells the notifiers what happened to a task, if they want to know.
func (q *queue) event(what driver.EventType, it *item, now int64, lease uint64) {
	for _, n := range q.notifiers {
		if n.Listens() {
			e := driver.Event{Type: what, Time: q.time(q.sure(now)), Lease: lease}
			q.info(it, &e.Task)
			n.Event(e)
		}
	}
}
