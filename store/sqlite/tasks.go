package sqlite

import (
	"cmp"
	"database/sql/driver"
	"math"
	"slices"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// readTask reads taskColumns.
func readTask(c *cells, r *rows.Row) {
	r.ID = c.uint() & maxID
	r.Key, r.Kind, r.UniqueKey = c.text(), c.text(), c.text()
	r.Role, r.Priority, r.Weight = task.Role(c.int()), int(c.int()), int(c.int())
	r.TTR, r.MaxAttempts, r.Created, r.Deadline = time.Duration(c.int()), int(c.int()), c.int(), c.int()
	r.Group, r.State, r.Takeable = c.text(), task.State(c.int()), c.bool()
	r.Round, r.Seq, r.Gap, r.Returned, r.Place = c.uint(), c.uint(), c.bool(), c.bool(), c.uint()
	r.Since, r.Counted = c.uint(), c.bool()
	r.Consumer, r.Attempts = c.uint(), int(c.int())
	r.ReadyAt, r.Until, r.Expires, r.Wake = c.int(), c.int(), c.int(), c.int()
	r.Err = c.error()
	r.Was = r.State
}

// tasks returns the rows of a statement that selects taskColumns, and with payload also that.
func (v *view) tasks(s statement, payload bool, values ...driver.Value) (all []*rows.Row, err error) {
	err = v.session.each(s, func(c *cells) {
		r := new(rows.Row)
		if readTask(c, r); payload {
			r.Payload = c.blob()
		}
		all = append(all, r)
	}, values...)
	return all, err
}

// one returns the first row, nil if there is none.
func one(all []*rows.Row, err error) (*rows.Row, error) {
	if len(all) == 0 {
		return nil, err
	}
	return all[0], err
}

func (v *view) Get(id uint64, payload bool) (*rows.Row, error) {
	if id > maxID {
		return nil, nil
	}
	return one(v.tasks(pick(payload, getPayload, getTask), payload, v.rowid(id)))
}

// Peek implements rows.View. Nobody else can change anything.
func (v *view) Peek(ids []uint64, payload bool) (found []*rows.Row, err error) {
	for _, id := range ids {
		r, err := v.Get(id, payload)
		if err != nil {
			return nil, err
		}
		if r != nil {
			found = append(found, r)
		}
	}
	return found, nil
}

// Locked implements rows.View.
func (v *view) Locked(rows.Filter) (bool, error) { return false, nil }

func (v *view) ByUniqueKey(address string, payload bool) (*rows.Row, error) {
	return one(v.tasks(pick(payload, addressPayload, addressTask), payload, v.queue, address))
}

func pick(b bool, yes, no statement) statement {
	if b {
		return yes
	}
	return no
}

// count counts a task that has got from one state to another; 0 stands for none.
func (v *view) count(from, to task.State) {
	n := &v.head.tasks
	if from != 0 {
		n[from]--
		n[0]--
	}
	if to != 0 {
		n[to]++
		n[0]++
	}
}

func (v *view) Insert(r *rows.Row) (err error) {
	if r.UniqueKey == "" && r.Group == "" && !r.Gap && !r.Returned && r.Consumer == 0 && r.Attempts == 0 && r.Err == nil {
		_, err = v.session.exec(insertPlain,
			v.rowid(r.ID), r.Key, r.Kind, int64(r.Priority), int64(r.Weight), int64(r.TTR), int64(r.MaxAttempts), r.Created, r.Deadline,
			int64(r.State), bit(r.Takeable), int64(r.Round), int64(r.Seq), int64(r.Place), int64(r.Since), bit(r.Counted),
			r.ReadyAt, r.Until, r.Expires, r.Wake, r.Payload, v.queue)
	} else {
		code, message := errorCells(r.Err)
		_, err = v.session.exec(insertTask,
			v.rowid(r.ID), r.Key, r.Kind, r.UniqueKey, int64(r.Role), int64(r.Priority), int64(r.Weight), int64(r.TTR),
			int64(r.MaxAttempts), r.Created, r.Deadline,
			r.Group, int64(r.State), bit(r.Takeable), int64(r.Round), int64(r.Seq), bit(r.Gap), bit(r.Returned), int64(r.Place), int64(r.Since),
			bit(r.Counted), int64(r.Consumer), int64(r.Attempts), r.ReadyAt, r.Until, r.Expires, r.Wake, code, message, r.Payload, v.queue)
	}
	if err != nil {
		return err
	}
	v.count(0, r.State)
	r.Was = r.State
	return nil
}

func (v *view) Update(r *rows.Row) error {
	code, message := errorCells(r.Err)
	n, err := v.session.exec(updateTask,
		r.Group, int64(r.State), bit(r.Takeable), int64(r.Round), int64(r.Seq), bit(r.Gap), bit(r.Returned), int64(r.Place), int64(r.Since),
		bit(r.Counted), int64(r.Consumer), int64(r.Attempts), r.ReadyAt, r.Until, r.Expires, r.Wake, code, message, v.rowid(r.ID))
	return v.updated(r, n, err)
}

// Take implements rows.View. It leaves the index by keys as it is.
func (v *view) Take(r *rows.Row) error {
	n, err := v.session.exec(takeTask, int64(r.State), bit(r.Takeable), int64(r.Since), bit(r.Counted),
		int64(r.Consumer), int64(r.Attempts), r.Until, r.Wake, v.rowid(r.ID))
	return v.updated(r, n, err)
}

func (v *view) updated(r *rows.Row, n int64, err error) error {
	if n > 0 {
		v.count(r.Was, r.State)
		r.Was = r.State
	}
	return err
}

func (v *view) Delete(r *rows.Row) error {
	n, err := v.session.exec(deleteTask, v.rowid(r.ID))
	if n > 0 {
		v.count(r.Was, 0)
	}
	return err
}

func (v *view) Ready(f rows.Filter, n int) ([]*rows.Row, error) {
	if f.Kinds == nil {
		return v.tasks(readyTasks, true, v.queue, int64(f.MaxPriority), int64(n))
	}
	var all []*rows.Row
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(f.Kinds))) {
		values := []driver.Value{v.queue, int64(f.MaxPriority), kind, int64(n)}
		s := readyKind
		if kind == "" {
			s, values = readyNoKind, append(values[:2], int64(n))
		}
		some, err := v.tasks(s, true, values...)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, byTurn)
	return all[:min(n, len(all))], nil
}

// byTurn is the order in which tasks are taken.
func byTurn(a, b *rows.Row) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Round, b.Round), cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.Place, b.Place), cmp.Compare(a.ID, b.ID))
}

func (v *view) Last(l rows.Line, after uint64) (round uint64, n int, err error) {
	err = v.session.each(lastRound, func(c *cells) { round, n = c.uint(), int(c.int()) },
		v.queue, l.Key, int64(l.Priority), int64(after))
	return round, n, err
}

func (v *view) Due(now int64, n int, payload bool) ([]*rows.Row, error) {
	return v.tasks(pick(payload, duePayloads, dueTasks), payload, v.queue, now, int64(n))
}

func (v *view) NextWake() (int64, error) { return v.session.number(nextWake, v.queue) }

func (v *view) HeldBy(consumer uint64, n int, payload bool) ([]*rows.Row, error) {
	return v.tasks(pick(payload, heldPayloads, heldTasks), payload, v.queue, int64(consumer), int64(n))
}

func (v *view) Leases(consumer uint64) (map[uint64]uint64, error) {
	held, err := v.HeldBy(consumer, math.MaxInt, false)
	leases := make(map[uint64]uint64, len(held))
	for _, r := range held {
		leases[r.ID] = r.Since
	}
	return leases, err
}

func (v *view) Buried(n int) ([]*rows.Row, error) {
	return v.tasks(buriedTasks, false, v.queue, int64(n))
}

func (v *view) InGroup(group string) ([]*rows.Row, error) {
	return v.tasks(groupTasks, false, v.queue, group)
}

// List implements rows.View. But for a group's it goes through the tasks in the order of ids, and passes over those that are
// not wanted.
func (v *view) List(o task.ListOptions) ([]*rows.Row, error) {
	if o.Limit == 0 {
		o.Limit = 100
	}
	var key, kind driver.Value
	if o.Key != nil {
		key = *o.Key
	}
	if o.Kind != nil {
		kind = *o.Kind
	}
	values := []driver.Value{v.rowid(uint64(o.After)), v.rowid(maxID), int64(o.State), key, kind, int64(o.Limit)}
	if o.Group != "" {
		return v.tasks(listGroup, true, append(values, v.queue, o.Group)...)
	}
	return v.tasks(listTasks, true, values...)
}

// Lines implements rows.View.
func (v *view) Lines(keys []string, parked int, payload bool) (found []rows.Key, ready []*rows.Row, err error) {
	add := func(some []*rows.Row, err error) error {
		ready = append(ready, some...)
		return err
	}
	for _, key := range keys {
		err = v.session.each(selectKey, func(c *cells) { found = append(found, *readKey(c)) }, v.queue, key)
		if err == nil && parked > 0 {
			err = v.lines(key, func(priority int64) error {
				if err := add(v.tasks(frontedTasks, false, v.queue, key, priority)); err != nil {
					return err
				}
				return v.parkedKinds(key, priority, func(kind string) error {
					return add(v.tasks(parkedTasks, false, v.queue, key, priority, kind, int64(parked)))
				})
			})
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for i := 0; i < len(ready) && payload && err == nil; i++ {
		ready[i], err = v.Get(ready[i].ID, true)
	}
	return found, ready, err
}

// parkedKinds calls f with each kind that a line has parked tasks of. It jumps from one to the next.
func (v *view) parkedKinds(key string, priority int64, f func(kind string) error) error {
	for from := ""; ; from += "\x00" { // the next string there can be
		found := false
		err := v.session.each(parkedKind, func(c *cells) { found, from = true, c.text() }, v.queue, key, priority, from)
		if err != nil || !found {
			return err
		}
		if err := f(from); err != nil {
			return err
		}
	}
}

func (v *view) Next(l rows.Line, round, seq uint64) (*rows.Row, error) {
	return one(v.tasks(nextTask, false, v.queue, l.Key, int64(l.Priority), int64(round), int64(seq)))
}

// Hide implements rows.View. A row that is Takeable has a round.
func (v *view) Hide(key string) error {
	return v.lines(key, func(priority int64) error {
		_, err := v.session.exec(hideTasks, v.queue, key, priority)
		return err
	})
}

// lines calls f with each priority that a key has tasks in, the least first. It jumps from one to the next.
func (v *view) lines(key string, f func(priority int64) error) error {
	for priority := int64(math.MinInt64); ; {
		found := false
		err := v.session.each(linePriority, func(c *cells) {
			found = c.values[0] != nil
			priority = c.int()
		}, v.queue, key, priority)
		if err != nil || !found {
			return err
		}
		if err := f(priority); err != nil {
			return err
		}
	}
}

func (v *view) Newest(key string) (*rows.Row, error) {
	return one(v.tasks(newestTask, false, v.queue, key))
}

func (v *view) Oldest(key string) (*rows.Row, error) {
	return one(v.tasks(oldestTask, false, v.queue, key))
}
