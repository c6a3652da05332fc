package rowstest

import (
	"iter"
	"maps"
	"reflect"

	"github.com/fairq/fairq/store/internal/rows"
)

// table is the rows of a table, as a transaction sees them: those that are committed, but for its
// own. Rows are never changed, only replaced.
type table[K comparable, R any] struct {
	committed map[K]*R
	own       map[K]*R // nil if it has deleted them
}

func newTable[K comparable, R any]() table[K, R] { return table[K, R]{map[K]*R{}, map[K]*R{}} }

// begin returns the table for a transaction, or for a part of one, which sees what that has
// written.
func (t *table[K, R]) begin() table[K, R] { return table[K, R]{t.committed, maps.Clone(t.own)} }

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

// changed tells whether the transaction's rows are others than before. A database need not notice
// a write that leaves all as it is.
func (t *table[K, R]) changed() bool {
	for k, r := range t.own {
		if !reflect.DeepEqual(r, t.committed[k]) {
			return true
		}
	}
	return false
}

// written returns how many rows the transaction has written.
func (t *table[K, R]) written() int { return len(t.own) }

// get returns a row, nil if there is none.
func (t *table[K, R]) get(k K) *R {
	if r, ok := t.own[k]; ok {
		return r
	}
	return t.committed[k]
}

// set writes a row, nil deletes it.
func (t *table[K, R]) set(k K, r *R) { t.own[k] = r }

func (t *table[K, R]) all() iter.Seq2[K, *R] {
	return func(yield func(K, *R) bool) {
		for k, r := range t.committed {
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

func (t *table[K, R]) values() iter.Seq[*R] {
	return func(yield func(*R) bool) {
		for _, r := range t.all() {
			if !yield(r) {
				return
			}
		}
	}
}

// relation is one of the tables that package rows declares.
type relation[R any] struct {
	table[key, R]
	name   string
	schema rows.Schema[R]
}

// key is a primary key.
type key [2]any

func keyOf(fields ...any) (k key) {
	copy(k[:], fields)
	return k
}

func newRelation[R any](name string, schema rows.Schema[R]) relation[R] {
	return relation[R]{newTable[key, R](), name, schema}
}

func (t *relation[R]) begin() relation[R] { return relation[R]{t.table.begin(), t.name, t.schema} }

// key returns the primary key of a row.
func (t *relation[R]) key(r *R) key { return keyOf(t.schema[0].Place(r)...) }

// candidates yields all rows, or if only some keys are wanted those.
func (t *relation[R]) candidates(r *rows.Range) iter.Seq[*R] {
	if r.Index != t.schema[0].Index || r.Prefixes == nil {
		return t.values()
	}
	return func(yield func(*R) bool) {
		for _, p := range r.Prefixes {
			if row := t.get(keyOf(p...)); row != nil && !yield(row) {
				return
			}
		}
	}
}

// scan returns the rows of a range that free lets through, as they are kept.
func (t *relation[R]) scan(r *rows.Range, free func(key) bool) []*R {
	return t.schema.Select(r, func(yield func(*R) bool) {
		for row := range t.candidates(r) {
			if free(t.key(row)) && !yield(row) {
				return
			}
		}
	})
}

// queue is the rows of a queue.
type queue struct {
	head      table[struct{}, head]
	removed   table[struct{}, uint64] // a number from when ready tasks were removed last
	rounds    table[int, uint64]
	tasks     relation[rows.Row]
	keys      relation[rows.Key]
	served    relation[rows.Served]
	consumers relation[rows.Consumer]
	groups    relation[rows.Group]
	outcomes  relation[rows.Outcome]
	history   relation[rows.Ended]
}

// head is the row of the table of queues.
type head struct {
	settings   []byte
	paused     bool
	pausedKeys int
}

func newQueue(h *head) *queue {
	return &queue{
		head:   table[struct{}, head]{map[struct{}]*head{{}: h}, map[struct{}]*head{}},
		rounds: newTable[int, uint64](), removed: newTable[struct{}, uint64](),
		tasks: newRelation("Tasks", rows.Tasks),
		keys:  newRelation("Keys", rows.Keys), served: newRelation("Served", rows.ServedLines),
		consumers: newRelation("Consumers", rows.Consumers), groups: newRelation("Groups", rows.Groups),
		outcomes: newRelation("Outcomes", rows.Outcomes), history: newRelation("History", rows.History),
	}
}

// begin returns the queue for a transaction, or for a part of one.
func (q *queue) begin() *queue {
	return &queue{
		q.head.begin(), q.removed.begin(), q.rounds.begin(), q.tasks.begin(), q.keys.begin(), q.served.begin(), q.consumers.begin(),
		q.groups.begin(), q.outcomes.begin(), q.history.begin(),
	}
}

// anyTable is a table of whatever rows.
type anyTable interface {
	changed() bool
	written() int
	commit()
}

// all returns the tables.
func (q *queue) all() []anyTable {
	return []anyTable{&q.head, &q.removed, &q.rounds, &q.tasks, &q.keys, &q.served, &q.consumers, &q.groups, &q.outcomes, &q.history}
}

func (q *queue) changed() bool {
	for _, t := range q.all() {
		if t.changed() {
			return true
		}
	}
	return false
}

func (q *queue) commit() {
	for priority, round := range q.rounds.own { // a greater one stays
		if old := q.rounds.committed[priority]; old != nil && *old > *round {
			delete(q.rounds.own, priority)
		}
	}
	for _, t := range q.all() {
		t.commit()
	}
}
