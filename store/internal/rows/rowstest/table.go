package rowstest

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

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

// place returns where a row stands in an index, nil if it is not in it.
func (t *relation[R]) place(i rows.Index, r *R) rows.Tuple {
	for _, s := range t.schema {
		if s.Index == i {
			return s.Place(r)
		}
	}
	panic("rowstest: a Range of an index that the table of " + t.name + " does not have")
}

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
	type hit struct {
		row      *R
		at, rest rows.Tuple // the rest is what follows the prefix
		key      rows.Tuple
	}
	var hits []hit
	for row := range t.candidates(r) {
		at := t.place(r.Index, row)
		n := 0
		if len(r.Prefixes) > 0 {
			n = len(r.Prefixes[0])
		}
		in := at != nil && (r.Prefixes == nil || slices.ContainsFunc(r.Prefixes, func(p rows.Tuple) bool { return at.Compare(p) == 0 }))
		if one, ok := any(row).(*rows.Row); ok && !r.Only.Match(one) || !in || !free(t.key(row)) {
			continue
		}
		bounded := at[n+r.Each:]
		if bounded.Compare(r.From) >= 0 && (r.To == nil || bounded.Compare(r.To) < 0) {
			hits = append(hits, hit{row, at, at[n:], t.schema[0].Place(row)})
		}
	}
	slices.SortFunc(hits, func(a, b hit) int {
		c := a.rest.Compare(b.rest)
		if r.Desc {
			c = -c
		}
		return cmp.Or(c, a.key.Compare(b.key))
	})
	var found []*R
	limited := map[string]int{} // by what Limit is for
	for _, h := range hits {
		group := ""
		if r.Each > 0 {
			group = fmt.Sprintf("%q", h.at[:len(h.at)-len(h.rest)+r.Each])
		}
		if limited[group]++; r.Limit == 0 || limited[group] <= r.Limit {
			found = append(found, h.row)
		}
	}
	return found
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
	history   relation[rows.Done]
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
