package rowstest

import (
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// keys makes a call that is about the table of keys.
func (v *views) keys() {
	key := v.values.of(v.values.keys)
	switch v.rnd.IntN(4) {
	case 0, 1:
		k := rows.Key{Key: key, Weight: 1 + v.rnd.IntN(3), Load: v.rnd.IntN(4), Paused: v.chance(2)}
		for range v.rnd.IntN(3) {
			s := pick(v.rnd, task.Ready, task.Delayed, task.Taken, task.Buried, task.Held)
			n := pick(v.rnd, 1, 1<<29)
			k.Tasks[s] += n
			k.Tasks[0] += n
		}
		v.write(func(w rows.Calls) error {
			k := k
			defer func() { k = rows.Key{} }()
			return w.SetKey(&k)
		}, "SetKey(%#v)", k)
	case 2:
		v.keyRows([]string{key}, 0)
		v.heaviest()
	case 3:
		v.keyStats(v.values.count())
	}
}

// heaviest allows for ties.
func (v *views) heaviest() {
	v.note("Heaviest")
	got, err := v.got.Heaviest()
	v.must("Heaviest", err)
	want, err := v.want.Heaviest()
	v.must("Heaviest of the model", err)
	if got != nil && want != nil && got.Load == want.Load {
		if k := v.model.q.keys.get(keyOf(got.Key)); k != nil {
			want = k
		}
	}
	v.equal("Heaviest", got, want)
}

// keyStats allows for ties, and does not look at weights and loads.
func (v *views) keyStats(n int) {
	v.note("KeyStats(%d)", n)
	got, err := v.got.KeyStats(n)
	v.must("KeyStats", err)
	all, err := v.want.KeyStats(1 << 30)
	v.must("KeyStats of the model", err)
	if len(got) != min(n, len(all)) {
		v.fail("KeyStats(%d) returned %d keys; there are %d:\n\t%s\n\t%s", n, len(got), len(all), show(got), show(all))
	}
	seen := map[string]bool{}
	for i, k := range got {
		at := slices.IndexFunc(all, func(w rows.Key) bool { return w.Key == k.Key })
		if at < 0 || k.Tasks != all[at].Tasks || k.Paused != all[at].Paused || k.Tasks[0] != all[i].Tasks[0] || seen[k.Key] {
			v.fail("KeyStats(%d) returned\n\t%s\nthe model:\n\t%s", n, show(got), show(all))
		}
		seen[k.Key] = true
	}
}

func (v *views) served() {
	l, r := v.values.line(), max(1, v.values.round()) // one that is 0 could not be told from one that is not there
	switch v.rnd.IntN(3) {
	case 0:
		v.write(func(w rows.Calls) error { return w.Served().Put(&rows.Served{Line: l, Round: r}) }, "SetServed(%#v, %d)", l, r)
	case 1:
		read(v, func(w rows.Calls) (uint64, error) { return w.ServedIn(l) }, "Served(%#v)", l)
	case 2:
		n := v.values.count()
		v.note("SweepServed(%d, %d, %d)", l.Priority, r, n)
		swept(v, n, &v.model.q.served, func(s *rows.Served) bool { return s.Priority == l.Priority && s.Round < r },
			func() error { return v.got.SweepServed(l.Priority, r, n) },
			func(s *rows.Served) (bool, error) {
				round, err := v.got.ServedIn(s.Line)
				return round != 0, err
			})
	}
}

// swept calls a sweep of the driver, which may choose which rows to delete, and deletes the same ones of the model.
func swept[R any](v *views, n int, t *relation[R], due func(*R) bool, call func() error, there func(*R) (bool, error)) {
	v.must("sweep", call())
	var all, gone int
	for k, r := range t.all() {
		is, err := there(r)
		v.must("reading what is left", err)
		switch isDue := due(r); {
		case isDue && is:
			all++
		case isDue:
			all++
			gone++
			t.set(k, nil)
		}
	}
	if gone != min(n, all) {
		v.fail("a sweep of %d rows deleted %d of %d", n, gone, all)
	}
}

func (v *views) groups() {
	name := v.values.of(v.values.groups)
	if v.chance(2) {
		read(v, func(w rows.Calls) (*rows.Group, error) { return w.Group(name) }, "Group(%q)", name)
		return
	}
	g := rows.Group{
		Name: name, Started: v.chance(2), Cancelled: v.chance(2), Tasks: v.rnd.IntN(3), Members: v.rnd.IntN(3),
	}
	v.write(func(w rows.Calls) error {
		g := g
		defer func() { g = rows.Group{} }()
		return w.SetGroup(&g)
	}, "SetGroup(%#v)", g)
}

func (v *views) outcomes() {
	uniqueKey := v.values.of(v.values.uniqueKeys)
	switch v.rnd.IntN(6) {
	case 0, 1:
		o := rows.Outcome{UniqueKey: uniqueKey, ID: v.rowID(), How: rows.How(v.rnd.IntN(5)), Until: v.values.time()}
		if o.How == rows.Failed {
			o.Err = v.values.failure()
		}
		v.write(func(w rows.Calls) error {
			o := o
			defer func() { o = rows.Outcome{} }()
			return w.SetOutcome(&o)
		}, "SetOutcome(%s)", show(&o))
	case 2:
		read(v, func(w rows.Calls) (*rows.Outcome, error) { return w.Outcome(uniqueKey) }, "Outcome(%q)", uniqueKey)
	case 3:
		read(v, rows.Calls.Times, "Times")
	case 4:
		now, n := v.values.now(), v.values.count()
		v.note("SweepOutcomes(%d, %d)", now, n)
		swept(v, n, &v.model.q.outcomes, func(o *rows.Outcome) bool { return o.Until != 0 && o.Until <= now },
			func() error { return v.got.SweepOutcomes(now, n) },
			func(o *rows.Outcome) (bool, error) {
				o, err := v.got.Outcome(o.UniqueKey)
				return o != nil, err
			})
	}
}

// history makes a call that is about tasks that are gone.
func (v *views) history() {
	switch v.rnd.IntN(5) {
	case 0, 1:
		id := v.number()
		d := rows.Done{
			ID: id, Key: v.values.of(v.values.keys), Kind: v.values.of(v.values.kinds), Payload: v.values.payload(),
			Attempts: v.rnd.IntN(3), Created: v.values.time(), Finished: v.values.time(), How: rows.How(v.rnd.IntN(5)),
			Err: v.values.reason(), Until: v.values.time(),
		}
		if v.chance(2) {
			d.UniqueKey = v.values.of(v.values.uniqueKeys)
		}
		v.write(func(w rows.Calls) error {
			d := d
			defer func() { d = rows.Done{} }()
			return w.History().Put(&d)
		}, "History.Put(%s)", show(&d))
	case 2:
		after, n := pick(v.rnd, 0, v.rowID()), v.values.count()
		read(v, func(w rows.Calls) ([]*rows.Done, error) { return w.Done(after, n) }, "Done(%d, %d)", after, n)
	case 3:
		read(v, rows.Calls.Times, "Times")
	case 4:
		now, n := v.values.now(), v.values.count()
		v.note("SweepDone(%d, %d)", now, n)
		swept(v, n, &v.model.q.history, func(d *rows.Done) bool { return d.Until != 0 && d.Until <= now },
			func() error { return v.got.SweepDone(now, n) },
			func(d *rows.Done) (bool, error) {
				list, err := v.got.Done(d.ID-1, 1)
				return len(list) > 0 && list[0].ID == d.ID, err
			})
	}
}
