package rowstest

import (
	"iter"
	"maps"
	"reflect"

	"github.com/fairq/fairq/store/internal/rows"
)

// table is the rows of a table, as a transaction sees them: those that are committed, but for its own. Rows are never
// changed, only replaced.
type table[K comparable, R any] struct {
	committed map[K]*R
	own       map[K]*R // nil if it has deleted them
}

func newTable[K comparable, R any]() table[K, R] { return table[K, R]{committed: map[K]*R{}} }

// begin returns the table for a transaction.
func (t *table[K, R]) begin() table[K, R] { return table[K, R]{t.committed, map[K]*R{}} }

// commit makes the transaction's rows those of all.
func (t *table[K, R]) commit() {
	for k, r := range t.own {
		if r == nil {
			delete(t.committed, k)
		} else {
			t.committed[k] = r
		}
	}
}

// changed tells whether the transaction's rows are others than before. A database need not notice a write that leaves all as it is.
func (t *table[K, R]) changed() bool {
	for k, r := range t.own {
		if !reflect.DeepEqual(r, t.committed[k]) {
			return true
		}
	}
	return false
}

// get returns a row, nil if there is none.
func (t *table[K, R]) get(k K) *R {
	if r, ok := t.own[k]; ok {
		return r
	}
	return t.committed[k]
}

// set writes a row, nil deletes it.
func (t *table[K, R]) set(k K, r *R) { t.own[k] = r }

func (t *table[K, R]) all() iter.Seq2[K, *R] { return t.merged(t.committed) }

// merged yields some of the committed rows as the transaction sees them, and all that it has written.
func (t *table[K, R]) merged(committed map[K]*R) iter.Seq2[K, *R] {
	return func(yield func(K, *R) bool) {
		for k, r := range committed {
			if _, ok := t.own[k]; !ok && !yield(k, r) {
				return
			}
		}
		for k, r := range maps.Clone(t.own) { // which may be changed meanwhile
			if r != nil && !yield(k, r) {
				return
			}
		}
	}
}

func (t *table[K, R]) keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range t.all() {
			if !yield(k) {
				return
			}
		}
	}
}

func (t *table[K, R]) values() iter.Seq[*R] {
	return func(yield func(*R) bool) {
		for _, r := range t.all() {
			if !yield(r) {
				return
			}
		}
	}
}

// taskTable is the table of tasks. It has two indexes, for tests of many tasks.
type taskTable struct {
	table[uint64, rows.Row]
	byKey       map[string]map[uint64]*rows.Row // what is committed
	byUniqueKey map[string]*rows.Row            // what is committed
}

func (t *taskTable) begin() taskTable { return taskTable{t.table.begin(), t.byKey, t.byUniqueKey} }

func (t *taskTable) commit() {
	for id, r := range t.own {
		if old := t.committed[id]; old != nil {
			delete(t.byUniqueKey, old.UniqueKey)
			if delete(t.byKey[old.Key], id); len(t.byKey[old.Key]) == 0 {
				delete(t.byKey, old.Key)
			}
		}
		if r == nil {
			continue
		}
		if t.byKey[r.Key] == nil {
			t.byKey[r.Key] = map[uint64]*rows.Row{}
		}
		t.byKey[r.Key][id] = r
	}
	for _, r := range t.own { // after those that are gone, which may have had the same
		if r != nil && r.UniqueKey != "" {
			t.byUniqueKey[r.UniqueKey] = r
		}
	}
	t.table.commit()
}

// of yields the tasks of a key.
func (t *taskTable) of(key string) iter.Seq[*rows.Row] {
	return func(yield func(*rows.Row) bool) {
		for _, r := range t.merged(t.byKey[key]) {
			if r.Key == key && !yield(r) {
				return
			}
		}
	}
}

// at returns the task with a unique key, nil if there is none.
func (t *taskTable) at(uniqueKey string) *rows.Row {
	for _, r := range t.own {
		if r != nil && r.UniqueKey == uniqueKey {
			return r
		}
	}
	if r := t.byUniqueKey[uniqueKey]; r != nil {
		return t.get(r.ID)
	}
	return nil
}

// queue is the rows of a queue.
type queue struct {
	head      table[struct{}, head]
	removed   table[struct{}, uint64] // a number from when ready tasks were removed last
	rounds    table[int, uint64]
	tasks     taskTable
	keys      table[string, rows.Key]
	served    table[rows.Line, uint64]
	consumers table[uint64, rows.Consumer]
	groups    table[string, rows.Group]
	outcomes  table[string, rows.Outcome]
	done      table[uint64, rows.Done]
}

// head is the row of the table of queues.
type head struct {
	settings   []byte
	paused     bool
	pausedKeys int
}

func newQueue(h *head) *queue {
	return &queue{
		head:   table[struct{}, head]{committed: map[struct{}]*head{{}: h}},
		rounds: newTable[int, uint64](), removed: newTable[struct{}, uint64](),
		tasks: taskTable{
			newTable[uint64, rows.Row](), map[string]map[uint64]*rows.Row{}, map[string]*rows.Row{},
		},
		keys:      newTable[string, rows.Key](),
		served:    newTable[rows.Line, uint64](),
		consumers: newTable[uint64, rows.Consumer](),
		groups:    newTable[string, rows.Group](),
		outcomes:  newTable[string, rows.Outcome](),
		done:      newTable[uint64, rows.Done](),
	}
}

// begin returns the queue for a transaction.
func (q *queue) begin() *queue {
	return &queue{
		q.head.begin(), q.removed.begin(), q.rounds.begin(), q.tasks.begin(), q.keys.begin(), q.served.begin(), q.consumers.begin(), q.groups.begin(),
		q.outcomes.begin(), q.done.begin(),
	}
}

func (q *queue) changed() bool {
	return q.head.changed() || q.removed.changed() || q.rounds.changed() || q.tasks.changed() || q.keys.changed() || q.served.changed() ||
		q.consumers.changed() || q.groups.changed() || q.outcomes.changed() || q.done.changed()
}

func (q *queue) commit() {
	for priority, round := range q.rounds.own { // a greater one stays
		if old := q.rounds.committed[priority]; old != nil && *old > *round {
			delete(q.rounds.own, priority)
		}
	}
	q.head.commit()
	q.removed.commit()
	q.rounds.commit()
	q.tasks.commit()
	q.keys.commit()
	q.served.commit()
	q.consumers.commit()
	q.groups.commit()
	q.outcomes.commit()
	q.done.commit()
}
