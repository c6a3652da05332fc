package task

import (
	"fmt"

	"github.com/fairq/fairq/internal/driver"
)

// newTask makes the New of a task.
func (q *Queue[V]) newTask(n *driver.New, key string, payload V, options *PutOptions) error {
	if err := q.options.fill(n, key, options); err != nil {
		return err
	}
	if q.options.ShareTime {
		n.Cost, n.Learned = q.notifier.LearnedCost(key), true
	}
	var err error
	if n.Payload, err = q.encode(payload); err != nil {
		return fmt.Errorf("task: payload of key %q: %w", key, err)
	}
	return nil
}

// encode returns a payload as the store gets it.
func (q *Queue[V]) encode(payload V) (any, error) {
	if q.notifier.inMemory {
		return payload, nil
	}
	var data []byte
	var err error
	encode := func() { data, err = q.options.Codec.Encode(payload) }
	if panics := guard("Codec.Encode", encode); panics != nil {
		err = panics
	}
	return data, err
}

// expired gives a task that has expired to OnExpire.
func (q *Queue[V]) expired(r *driver.Record) {
	t, _ := q.show(r)
	q.options.OnExpire(t)
}

// show makes a Task of a record without a lease. If its payload cannot be decoded, it returns an
// error, which is also the Info.Err of the task.
func (q *Queue[V]) show(r *driver.Record) (*Task[V], error) {
	t := new(Task[V])
	t.show(r)
	err := q.fill(t, r.Payload)
	if err != nil {
		more, rare := t.details(), driver.Rare{}
		if r.Rare != nil {
			rare = *r.Rare
		}
		rare.Err = newError(err)
		more.Rare, t.more = &rare, &more
	}
	return t, err
}

// fill sets the payload of a task. It returns an error if the payload cannot be decoded.
func (q *Queue[V]) fill(t *Task[V], payload any) error {
	if q.notifier.inMemory {
		t.Payload, _ = payload.(V) // always a V, or nil if V is an interface
		return nil
	}
	return q.decode(t, payload)
}

// decode is the part of fill that queues in memory do not need.
func (q *Queue[V]) decode(t *Task[V], payload any) (err error) {
	data, _ := payload.([]byte)
	panics := guard("Codec.Decode", func() { t.Payload, err = q.options.Codec.Decode(data) })
	if panics != nil {
		err = panics
	}
	if err != nil {
		return fmt.Errorf("task: payload of task %d: %w", t.ID, err)
	}
	return nil
}
