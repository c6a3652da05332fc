package rowstest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// in makes one transaction in the queue q, which is made if it is not there, and commits it.
func in(t *testing.T, db rows.DB, plan *rows.Plan, f func(v rows.Calls)) {
	t.Helper()
	tx, v := enter(t, db, plan)
	f(v)
	ok(t, "Commit", tx.Commit())
}

// enter begins a transaction and enters the queue q.
func enter(t *testing.T, db rows.DB, plan *rows.Plan) (rows.Tx, rows.Calls) {
	t.Helper()
	tx := begin(t, db)
	q, err := tx.Queue("q", []byte("{}"))
	ok(t, "Queue", err)
	v, err := tx.Enter(q.ID, plan)
	ok(t, "Enter", err)
	return tx, rows.Calls{View: v}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is %v; it should be %v", what, got, want)
	}
}

// exclusively returns a new Plan that promises nothing.
func exclusively() *rows.Plan { return &rows.Plan{Exclusive: true} }

// testHead checks when a Head may be the same again, and that it is right in any case.
func testHead(t *testing.T, db rows.DB) {
	var last *rows.Head
	look := func(db rows.DB, mayBeLast, paused bool, do func(v rows.Calls)) {
		t.Helper()
		in(t, db, exclusively(), func(v rows.Calls) {
			h := v.Head()
			equal(t, "Head.Paused", h.Paused, paused)
			if h == last && !mayBeLast {
				t.Fatal("Head is the same as before")
			}
			equal(t, "the second Head of a View", v.Head(), h)
			last = h
			do(v)
		})
	}
	set := func(paused bool) func(rows.Calls) {
		return func(v rows.Calls) { v.Head().Paused = paused; ok(t, "Save", v.Save()) }
	}
	nothing := func(rows.Calls) {}

	look(db, false, false, set(true))
	look(db, true, true, nothing)
	look(db, true, true, nothing)

	tx, v := enter(t, db, exclusively())
	last = v.Head()
	set(false)(v)
	tx.Rollback()
	look(db, false, true, nothing)

	r, isReopener := db.(reopener)
	if !isReopener {
		return
	}
	other, first := r.Reopen(t), last
	look(other, false, true, set(false))
	last = first
	look(db, false, false, set(true))
	look(other, false, true, nothing)
}

// testRounds checks that rounds are kept by priority.
func testRounds(t *testing.T, db rows.DB) {
	in(t, db, exclusively(), func(v rows.Calls) {
		v.Head().Rounds[0], v.Head().Rounds[driver.MaxPriority] = 1<<40, 1
		ok(t, "Save", v.Save())
	})
	in(t, db, &rows.Plan{}, func(v rows.Calls) {
		v.Head().Rounds[0]++
		ok(t, "Save", v.Save())
	})
	begin(t, db).Rollback() // so that the Head is read again
	in(t, db, exclusively(), func(v rows.Calls) {
		equal(t, "the round of the first priority", v.Head().Rounds[0], 1<<40+1)
		equal(t, "the round of the last priority", v.Head().Rounds[driver.MaxPriority], 1)
		equal(t, "the number of rounds", len(v.Head().Rounds), 2)
	})
}

// testParked checks that of what is parked Lines returns the first tasks of each kind, whether it
// was planned or not. Few random rows are of the same kind.
func testParked(t *testing.T, db rows.DB) {
	places := []uint64{5, 3, 9, 1, 7}
	in(t, db, exclusively(), func(v rows.Calls) {
		for _, kind := range []string{"", "x"} {
			for _, place := range places {
				insert(t, v, rows.Row{Key: "a", Kind: kind, Place: place})
			}
		}
	})
	const parked = 3
	a := []string{"a"}
	for _, plan := range []*rows.Plan{exclusively(), {Exclusive: true, Ranges: []rows.Range{rows.KeyRange(a), rows.FrontRange(a, false), rows.ParkedRange(a, parked, false)}}} {
		in(t, db, plan, func(v rows.Calls) {
			_, found, err := v.Lines([]string{"a"}, parked, false)
			ok(t, "Lines", err)
			for _, kind := range []string{"", "x"} {
				var got []uint64
				for _, r := range found {
					if r.Kind == kind {
						got = append(got, r.Place)
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, []uint64{1, 3, 5}) {
					t.Errorf("of kind %q Lines returned the tasks at %d; the first %d of %d are wanted", kind, got, parked, places)
				}
			}
		})
	}
}

// testPlan checks that what a Plan says changes no result, whether it is right or wrong.
func testPlan(t *testing.T, db rows.DB) {
	var ids []uint64
	in(t, db, exclusively(), func(v rows.Calls) {
		for i := range 5 {
			ids = append(ids, insert(t, v, rows.Row{Key: "a", Round: uint64(1 + i/2), Takeable: true, Payload: []byte{byte(i)}}))
		}
	})
	all := rows.Filter{MaxPriority: driver.MaxPriority}
	a, b := rows.Line{Key: "a"}, rows.Line{Key: "b"}
	get := func(payload bool, ids ...uint64) rows.Range { return rows.RowRange(payload, rows.ForUpdate, ids...) }
	for name, plan := range map[string]rows.Plan{
		"none":       {},
		"right":      {Counts: true, Numbers: 2, Ranges: []rows.Range{get(true, ids...), rows.ReadyRange(all, 3)}, LastRounds: []rows.Line{a, b}},
		"less":       {Numbers: 1, Ranges: []rows.Range{get(false, ids[0]), rows.ReadyRange(all, 1)}, LastRounds: []rows.Line{b}},
		"more":       {Counts: true, Numbers: 50, Ranges: []rows.Range{get(false, append([]uint64{0, 1 << 62}, ids...)...), rows.ReadyRange(all, 50)}, LastRounds: []rows.Line{a, a, b, {Key: "c"}}},
		"wrong":      {Ranges: []rows.Range{get(true, 0, 1<<62), rows.ReadyRange(rows.Filter{MaxPriority: -1}, 3)}, LastRounds: []rows.Line{{Key: "a", Priority: 1}}},
		"no kinds":   {Ranges: []rows.Range{rows.ReadyRange(rows.Filter{MaxPriority: driver.MaxPriority, Kinds: []string{}}, 3)}},
		"other kind": {Ranges: []rows.Range{rows.ReadyRange(rows.Filter{MaxPriority: driver.MaxPriority, Kinds: []string{"x"}}, 3)}},
	} {
		for _, exclusive := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				plan := plan
				plan.Exclusive = exclusive
				tx, v := enter(t, db, &plan)
				planned(t, v, ids)
				tx.Rollback()
			})
		}
	}
}

// planned makes the calls of testPlan, in such an order that what was fetched ahead gets old.
func planned(t *testing.T, v rows.Calls, ids []uint64) {
	all := rows.Filter{MaxPriority: driver.MaxPriority}
	last := func(want uint64, rowsWant int) {
		t.Helper()
		round, n, err := v.LastRound(rows.Line{Key: "a"}, 0)
		ok(t, "LastRound", err)
		equal(t, "the last round", round, want)
		equal(t, "the number of rows in it", n, rowsWant)
	}
	ready := func(n int, want ...uint64) {
		t.Helper()
		list, err := v.Ready(all, n)
		ok(t, "Ready", err)
		var got []uint64
		for _, r := range list {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("Ready returned %d; it should be %d", got, want)
		}
	}
	row := func(id uint64) *rows.Row {
		t.Helper()
		r, err := v.Get(id, true)
		ok(t, "Get", err)
		if r == nil || string(r.Payload) != string([]byte{byte(slices.Index(ids, id))}) {
			t.Fatalf("Get returned %+v", r)
		}
		return r
	}
	r := row(ids[0])
	r.Takeable, r.Round = false, 9
	ok(t, "Update", v.Put(r))
	last(9, 1)
	ready(3, ids[1:4]...)
	equal(t, "the round after Update", row(ids[0]).Round, 9)
	ok(t, "Delete", v.Delete(row(ids[1])))
	ready(3, ids[2:5]...)
	r, err := v.Get(ids[1], true)
	ok(t, "Get", err)
	equal(t, "what Get returned after Delete", r, nil)
	for range 3 {
		insert(t, v, rows.Row{Key: "a", Round: 9})
	}
	last(9, 4)
	tasks, err := v.Counts()
	ok(t, "Counts", err)
	equal(t, "the number of tasks", tasks[0], 7)
	ready(10, ids[2:]...)
}

// insert inserts a row that is Ready, and returns its number.
func insert(t *testing.T, v rows.Calls, r rows.Row) uint64 {
	t.Helper()
	n, err := v.Number()
	ok(t, "Number", err)
	r.ID, r.Seq, r.State, r.Weight = n, n, driver.Ready, 1
	ok(t, "Insert", v.Put(&r))
	return n
}

// testNumbers checks that the numbers of a handle grow, whatever becomes of the transaction, and
// that no two transactions that were committed have the same.
func testNumbers(t *testing.T, db rows.DB) {
	handles := []rows.DB{db}
	if r, ok := db.(reopener); ok {
		handles = append(handles, r.Reopen(t))
	}
	in(t, db, exclusively(), func(rows.Calls) {})
	seen, last := map[uint64]bool{}, make([]uint64, len(handles))
	for i := range 40 {
		h := i / 2 % len(handles)
		tx, v := enter(t, handles[h], &rows.Plan{Numbers: i % 3})
		var given []uint64
		for range 1 + i%7*30 {
			n, err := v.Number()
			ok(t, "Number", err)
			if n <= last[h] || seen[n] {
				t.Fatalf("Number is %d; the last one of this handle was %d; one that was committed had it: %v", n, last[h], seen[n])
			}
			last[h] = n
			given = append(given, n)
		}
		if i%3 == 0 {
			tx.Rollback()
			continue
		}
		ok(t, "Commit", tx.Commit())
		for _, n := range given {
			seen[n] = true
		}
	}
}

func testAgain(t *testing.T, db rows.DB) {
	for _, err := range []error{nil, context.Canceled, context.DeadlineExceeded, errors.New("no"), driver.ErrDropped} {
		if _, again := db.Again(err); again {
			t.Errorf("Again(%v) is true", err)
		}
	}
}
