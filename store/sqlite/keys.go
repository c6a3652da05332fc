package sqlite

import (
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

func readKey(c *cells) *rows.Key {
	k := &rows.Key{Key: c.text(), Weight: int(c.int())}
	readStates(c, k)
	k.Load, k.Paused = int(c.int()), c.bool()
	return k
}

func readStates(c *cells, k *rows.Key) {
	for state := task.Ready; state <= task.Held; state++ {
		k.Tasks[state] = int(c.int())
		k.Tasks[0] += k.Tasks[state]
	}
}

func (v *view) SetKey(k *rows.Key) error {
	if k.Tasks[0] == 0 && !k.Paused {
		_, err := v.session.exec(deleteKey, v.queue, k.Key)
		return err
	}
	n := &k.Tasks
	_, err := v.session.exec(setKey, v.queue, k.Key, int64(k.Weight), int64(n[task.Ready]), int64(n[task.Delayed]),
		int64(n[task.Taken]), int64(n[task.Buried]), int64(n[task.Held]), int64(k.Load), bit(k.Paused))
	return err
}

func (v *view) Heaviest() (k *rows.Key, err error) {
	err = v.session.each(heaviestKey, func(c *cells) { k = readKey(c) }, v.queue)
	return k, err
}

// KeyStats implements rows.View. It reads all tasks of the queue.
func (v *view) KeyStats(n int) ([]rows.Key, error) {
	var all []rows.Key
	err := v.session.each(keyStats, func(c *cells) {
		k := rows.Key{Key: c.text()}
		readStates(c, &k)
		all = append(all, k)
	}, v.queue, int64(n))
	if err != nil {
		return nil, err
	}
	index := make(map[string]int, len(all))
	for i := range all {
		index[all[i].Key] = i
	}
	err = v.session.each(keyPaused, func(c *cells) {
		key := c.text()
		if i, ok := index[key]; ok {
			all[i].Paused = true
		} else if len(all) < n { // or there are enough that have tasks; it has none, or too few
			all = append(all, rows.Key{Key: key, Paused: true})
		}
	}, v.queue)
	return all, err
}

func (v *view) Keys() (int, error) {
	n, err := v.session.number(countKeys, v.queue)
	return int(n), err
}

func (v *view) Served(l rows.Line) (uint64, error) {
	n, err := v.session.number(selectServed, v.queue, int64(l.Priority), l.Key)
	return uint64(n), err
}

func (v *view) SetServed(l rows.Line, r uint64) error {
	_, err := v.session.exec(setServed, v.queue, int64(l.Priority), l.Key, int64(r))
	return err
}

func (v *view) SweepServed(priority int, before uint64, n int) error {
	_, err := v.session.exec(sweepServed, v.queue, int64(priority), int64(before), int64(n))
	return err
}
