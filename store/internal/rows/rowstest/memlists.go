package rowstest

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

func (v *memView) Leases(consumer uint64) (map[uint64]uint64, error) {
	return get(v, "Leases", func() map[uint64]uint64 {
		leases := map[uint64]uint64{}
		for r := range v.all() {
			if r.State == task.Taken && r.Consumer == consumer {
				leases[r.ID] = r.Since
			}
		}
		return leases
	})
}

func (v *memView) HeldBy(consumer uint64, n int, payload bool) ([]*rows.Row, error) {
	return get(v, "HeldBy", func() []*rows.Row {
		return v.first(v.all(), n, payload, locked, func(r *rows.Row) bool { return r.State == task.Taken && r.Consumer == consumer }, bySince)
	})
}

func (v *memView) Buried(n int) ([]*rows.Row, error) {
	return get(v, "Buried", func() []*rows.Row {
		return v.first(v.all(), n, !withPayload, locked, func(r *rows.Row) bool { return r.State == task.Buried }, bySince)
	})
}

func (v *memView) InGroup(group string) ([]*rows.Row, error) {
	return get(v, "InGroup", func() []*rows.Row {
		must(group != "", "InGroup without a group")
		return v.first(v.all(), math.MaxInt, !withPayload, !locked, func(r *rows.Row) bool { return r.Group == group }, byID)
	})
}

func (v *memView) List(o task.ListOptions) ([]*rows.Row, error) {
	return get(v, "List", func() []*rows.Row {
		return v.first(v.all(), cmp.Or(o.Limit, 100), withPayload, !locked, func(r *rows.Row) bool {
			return (o.State == 0 || r.State == o.State) && (o.Key == nil || r.Key == *o.Key) && (o.Kind == nil || r.Kind == *o.Kind) &&
				(o.Group == "" || r.Group == o.Group) && r.ID > uint64(o.After)
		}, byID)
	})
}

func (v *memView) Lines(keys []string, parked int, payload bool) (found []rows.Key, ready []*rows.Row, err error) {
	err = v.do("Lines", func() {
		must(len(keys) > 0, "Lines of no keys")
		for _, key := range keys {
			if k := v.q.keys.get(key); k != nil {
				found = append(found, *k)
			}
			if parked > 0 {
				ready = append(ready, v.linesOf(key, parked, payload)...)
			}
		}
	})
	return found, ready, err
}

func (v *memView) linesOf(key string, most int, payload bool) []*rows.Row {
	type sort struct {
		priority int
		kind     string
	}
	seen := map[sort]int{}
	all := v.first(v.q.tasks.of(key), math.MaxInt, payload, !locked, func(r *rows.Row) bool {
		return r.State == task.Ready && (r.Round != 0 || !r.Takeable)
	}, byPlace)
	return slices.DeleteFunc(all, func(r *rows.Row) bool {
		s := sort{r.Priority, r.Kind}
		if r.Round == 0 {
			seen[s]++
		}
		return r.Round == 0 && seen[s] > most
	})
}

func (v *memView) Next(l rows.Line, round, seq uint64) (*rows.Row, error) {
	return get(v, "Next", func() *rows.Row {
		if all := v.after(l, round, seq, 1); len(all) > 0 {
			return all[0]
		}
		return nil
	})
}

// after returns the first n rows that Next may return.
func (v *memView) after(l rows.Line, round, seq uint64, n int) []*rows.Row {
	return v.first(v.q.tasks.of(l.Key), n, !withPayload, locked, func(r *rows.Row) bool {
		return r.Priority == l.Priority && r.State == task.Ready && r.Round > 0 &&
			(r.Round > round || r.Round == round && r.Seq > seq)
	}, byTurn)
}

func (v *memView) Hide(key string) error {
	return v.do("Hide", func() {
		for r := range v.q.tasks.of(key) {
			if r.Takeable {
				hidden := *r
				hidden.Takeable = false
				v.q.tasks.set(r.ID, &hidden)
			}
		}
	})
}

func (v *memView) Newest(key string) (*rows.Row, error) {
	return get(v, "Newest", func() *rows.Row {
		return v.one(v.q.tasks.of(key), !withPayload, !locked, func(r *rows.Row) bool { return r.Counted },
			func(a, b *rows.Row) int { return bySince(b, a) })
	})
}

func (v *memView) Oldest(key string) (*rows.Row, error) {
	return get(v, "Oldest", func() *rows.Row {
		return v.one(v.q.tasks.of(key), !withPayload, !locked, func(r *rows.Row) bool { return r.Counted }, bySince)
	})
}

func (v *memView) SetKey(k *rows.Key) error {
	return v.do("SetKey", func() {
		row := clone(k)
		if k.Tasks[0] == 0 && !k.Paused {
			row = nil
		}
		v.q.keys.set(k.Key, row)
	})
}

func (v *memView) Heaviest() (*rows.Key, error) {
	return get(v, "Heaviest", func() *rows.Key {
		var heaviest *rows.Key
		for k := range v.q.keys.values() {
			if heaviest == nil || cmp.Or(cmp.Compare(k.Load, heaviest.Load), cmp.Compare(heaviest.Key, k.Key)) > 0 {
				heaviest = k
			}
		}
		return clone(heaviest)
	})
}

func (v *memView) KeyStats(n int) ([]rows.Key, error) {
	return get(v, "KeyStats", func() []rows.Key {
		stats := map[string]rows.Key{}
		for key, k := range v.q.keys.all() {
			if k.Paused {
				stats[key] = rows.Key{Key: key, Paused: true}
			}
		}
		for r := range v.all() {
			k := stats[r.Key]
			k.Key = r.Key
			k.Tasks[0]++
			k.Tasks[r.State]++
			stats[r.Key] = k
		}
		list := slices.SortedFunc(maps.Values(stats), func(a, b rows.Key) int {
			return cmp.Or(cmp.Compare(b.Tasks[0], a.Tasks[0]), cmp.Compare(a.Key, b.Key))
		})
		return list[:min(n, len(list))]
	})
}

func (v *memView) Keys() (int, error) {
	return get(v, "Keys", func() int {
		keys := map[string]bool{}
		for r := range v.all() {
			keys[r.Key] = true
		}
		return len(keys)
	})
}

func (v *memView) Served(l rows.Line) (uint64, error) {
	return get(v, "Served", func() uint64 {
		if r := v.q.served.get(l); r != nil {
			return *r
		}
		return 0
	})
}

func (v *memView) SetServed(l rows.Line, r uint64) error {
	return v.do("SetServed", func() { v.q.served.set(l, &r) })
}

func (v *memView) SweepServed(priority int, before uint64, n int) error {
	return v.do("SweepServed", func() {
		sweep(&v.q.served, n, func(l rows.Line, r *uint64) bool { return l.Priority == priority && *r < before })
	})
}

// sweep deletes n of the rows that match.
func sweep[K comparable, R any](t *table[K, R], n int, match func(K, *R) bool) {
	for k, r := range t.all() {
		if n > 0 && match(k, r) {
			t.set(k, nil)
			n--
		}
	}
}

// clone copies a row, nil if there is none.
func clone[R any](r *R) *R {
	if r == nil {
		return nil
	}
	return new(*r)
}

func (v *memView) Head() *rows.Head { return v.head }

func (v *memView) Save() error {
	return v.do("Save", func() {
		h, q := v.head, v.q
		for priority, round := range h.Rounds {
			if old := q.rounds.get(priority); old == nil || round > *old {
				q.rounds.set(priority, &round)
			}
		}
		if h.Removed != v.removed && v.tx.db.Shared {
			q.removed.set(struct{}{}, new(v.newNumber()))
			v.removed = h.Removed
		}
		old := q.head.get(struct{}{})
		if !bytes.Equal(h.Settings, old.settings) || h.Paused != old.paused || h.PausedKeys != old.pausedKeys {
			q.head.set(struct{}{}, &head{bytes.Clone(h.Settings), h.Paused, h.PausedKeys})
		}
	})
}

func (v *memView) SetSettings(settings []byte) error {
	return v.do("SetSettings", func() {
		row := *v.q.head.get(struct{}{})
		row.settings = bytes.Clone(settings)
		v.q.head.set(struct{}{}, &row)
		v.head.Settings = bytes.Clone(settings)
	})
}

func (v *memView) Drop() error {
	return v.do("Drop", func() {
		v.dropped = true
		for name, id := range v.tx.names.all() {
			if *id == v.id {
				v.tx.names.set(name, nil)
			}
		}
		v.tx.queues.set(v.id, nil)
		delete(v.tx.db.heads, v.id)
	})
}
