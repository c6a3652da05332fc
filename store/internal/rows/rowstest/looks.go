package rowstest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/store/internal/rows"
)

// enterer returns a function that enters a queue without locking its row.
func enterer(t *testing.T, db rows.DB) func() (rows.Tx, rows.Calls) {
	tx := begin(t, db)
	q, err := tx.Queue("q", []byte("{}"))
	ok(t, "Queue", err)
	ok(t, "Commit", tx.Commit())
	return func() (rows.Tx, rows.Calls) {
		tx := begin(t, db)
		v, err := tx.Enter(q.ID, &rows.Plan{})
		ok(t, "Enter", err)
		return tx, rows.Calls{View: v}
	}
}

// testEnded checks that no caller misses an outcome, even if transactions commit in another order
// than they write.
func testEnded(t *testing.T, db rows.DB) {
	write := func(v rows.Calls, uniqueKey string, id uint64, until int64) {
		ok(t, "SetOutcome",
			v.SetOutcome(&rows.Outcome{
				UniqueKey: uniqueKey, ID: id, Result: rows.Failed,
				Err: &driver.Error{Message: uniqueKey}, Until: until,
			}))
	}
	enter, mark := enterer(t, db), ""
	in := func(f func(v rows.Calls)) {
		t.Helper()
		tx, v := enter()
		f(v)
		ok(t, "Commit", tx.Commit())
	}
	ended := func(want ...uint64) {
		t.Helper()
		var found []uint64
		in(func(v rows.Calls) {
			list, next, err := v.Ended(mark)
			ok(t, "Ended", err)
			for _, o := range list {
				found = append(found, o.ID)
				equal(t, "Result", o.Result, rows.Failed)
				equal(t, "the length of the message", len(o.Err.Message), 1)
			}
			mark = next
		})
		for _, id := range want {
			if !slices.Contains(found, id) {
				t.Fatalf("Ended returned %v, without %d", found, id)
			}
		}
	}
	in(func(v rows.Calls) { write(v, "a", 1, 5) })
	ended()
	in(func(v rows.Calls) { write(v, "b", 2, 5) })
	ended(2)
	in(func(v rows.Calls) { write(v, "a", 3, 5); write(v, "b", 2, 0) })
	ended(3)
	in(func(v rows.Calls) {
		o, err := v.Outcome("b")
		ok(t, "Outcome", err)
		equal(t, "whether there is an outcome", o != nil, false)
	})
	if db.Traits().Exclusive {
		return
	}
	first, v := enter()
	write(v, "c", 4, 5)
	_, _, err := v.CountKeys("", 1) // so that it is sent
	ok(t, "CountKeys", err)
	second, w := enter()
	write(w, "d", 5, 5)
	_, _, err = w.CountKeys("", 1)
	ok(t, "CountKeys", err)
	in(func(v rows.Calls) { write(v, "e", 6, 5) })
	ended(6)
	ok(t, "Commit", second.Commit())
	ended(5)
	ok(t, "Commit", first.Commit())
	ended(4)
}

// testLocked checks that reads without a lock lock nothing, and that they see locked rows.
func testLocked(t *testing.T, db rows.DB) {
	if db.Traits().Exclusive {
		t.Skip("no two transactions run at the same time")
	}
	var id uint64
	in(t, db, exclusively(), func(v rows.Calls) {
		id = insert(t, v, rows.Row{Key: "a", UniqueKey: "x", Round: 1, Takeable: true})
	})
	enter := enterer(t, db)
	tx, v := enter()
	free := func(want bool) {
		t.Helper()
		other, w := enter()
		defer other.Rollback()
		list, err := w.Rows(rows.ReadyRange(everything, 1))
		ok(t, "Ready", err)
		equal(t, "rows of Ready", len(list) == 1, want)
		any := rows.ReadyRange(everything, 1)
		any.Payload, any.Lock = false, rows.NoLock
		list, err = w.Rows(any)
		ok(t, "Ready without a lock", err)
		equal(t, "rows of Ready without a lock", len(list), 1)
	}
	found, err := v.Peek([]uint64{id, 1 << 60}, true)
	ok(t, "Peek", err)
	equal(t, "rows of Peek", len(found), 1)
	_, err = v.ByUniqueKey("x", false)
	ok(t, "ByUniqueKey", err)
	free(true)
	mine, err := v.Get(id, false)
	ok(t, "Get", err)
	other, w := enter()
	list, err := w.Rows(rows.ReadyRange(everything, 1))
	ok(t, "Ready", err)
	if len(list) == 1 { // it finds conflicts when it commits
		ok(t, "Put", v.Put(mine))
		ok(t, "Put", w.Put(list[0]))
		ok(t, "Commit", other.Commit())
		_, again := db.Again(tx.Commit())
		equal(t,
			"Again of the Commit of who has read a row that another one has written since", again, true)
	} else {
		other.Rollback()
		free(false)
	}
	tx.Rollback()
	tx, _ = enter()
	free(true)
	tx.Rollback()
}

// testLocksKeys checks transactions that lock keys. They must pass over each other's tasks, turns
// and rows of keys, or wait for each other. They may write all rows of a key that they have
// locked.
func testLocksKeys(t *testing.T, db rows.DB) {
	if db.Traits().Exclusive || db.Traits().Optimistic {
		t.Skip("no transaction locks keys")
	}
	put := func(v rows.Calls, key string, tasks int) {
		t.Helper()
		k := &rows.Key{Key: key, Wait: life.Wait{Hold: 1, Until: 1, Waits: true}}
		k.Tasks[0] = tasks
		ok(t, "SetKey", v.SetKey(k))
	}
	turn := func(v rows.Calls, key string, round uint64) {
		t.Helper()
		ok(t, "Put", v.Turns().Put(&rows.Turn{
			Line: rows.Line{Key: key}, Kind: "k", Round: round, Leads: true, Takeable: true,
		}))
	}
	ids := map[string]uint64{}
	in(t, db, exclusively(), func(v rows.Calls) {
		for i, key := range []string{"a", "b", "c"} {
			ids[key] = insert(t, v, rows.Row{
				Key: key, Round: uint64(1 + i), Takeable: true, Wake: 1,
			})
			put(v, key, 1)
			turn(v, key, uint64(1+i))
		}
	})
	q, err := find(db)
	ok(t, "Queue", err)
	begin := func(locks ...string) (rows.Tx, rows.Calls) {
		t.Helper()
		tx, v, err := enterWith(context.Background(), db, q.ID, locks)
		ok(t, "Enter", err)
		t.Cleanup(tx.Rollback)
		return tx, v
	}
	first, v := begin("a", "new")
	for what, look := range map[string]func(w rows.Calls) (n int, err error){
		"Ready": func(w rows.Calls) (int, error) {
			found, err := w.Rows(rows.ReadyRange(everything, 5))
			return len(found), err
		},
		"turns": func(w rows.Calls) (int, error) {
			found, err := w.Turns().Scan(rows.TurnRange(everything, 5))
			return len(found), err
		},
		"turns of kinds": func(w rows.Calls) (int, error) {
			found, err := w.Turns().Scan(rows.TurnRange(rows.Filter{Kinds: []string{"k", "l"}}, 5))
			return len(found), err
		},
		"Due": func(w rows.Calls) (int, error) {
			found, err := w.Due(1, 5, false)
			return len(found), err
		},
		"DueKeys": func(w rows.Calls) (int, error) {
			found, err := w.DueKeys(1, 5)
			return len(found), err
		},
	} {
		second, w := begin()
		n, err := look(w)
		ok(t, what, err)
		equal(t, "the number of "+what, n, 2)
		third, x := begin()
		n, err = look(x)
		ok(t, what, err)
		equal(t, "the number of "+what+" beside that", n, 0)
		third.Rollback()
		second.Rollback()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := enterWith(ctx, db, q.ID, []string{"a"}); err == nil {
		t.Error("a key is locked twice")
	}
	found, err := v.Peek([]uint64{ids["a"]}, false)
	ok(t, "Peek", err)
	found[0].Attempts = 7
	ok(t, "Put", v.Put(found[0]))
	put(v, "a", 2)
	put(v, "new", 1)
	turn(v, "a", 7)
	turn(v, "new", 8)
	ok(t, "Commit", first.Commit())
	last, v := begin("a", "b", "new")
	found, err = v.Peek([]uint64{ids["a"]}, false)
	ok(t, "Peek", err)
	equal(t, "Attempts", found[0].Attempts, 7)
	turns, err := v.Turns().Scan(rows.TurnRange(everything, 5))
	ok(t, "turns", err)
	for i, round := range []uint64{2, 3, 7, 8} {
		equal(t, "the round of a turn", turns[i].Round, round)
	}
	ok(t, "Commit", last.Commit())
}

// enterWith enters a queue in a transaction that locks keys.
func enterWith(
	ctx context.Context, db rows.DB, queue uint64, locks []string,
) (tx rows.Tx, v rows.Calls, err error) {
	if tx, err = db.Begin(ctx); err != nil {
		return nil, v, err
	}
	if v.View, err = tx.Enter(queue, &rows.Plan{LocksKeys: true, Locks: locks}); err != nil {
		tx.Rollback()
	}
	return tx, v, err
}

// testHead checks that what only grows of a Head does so, in whatever order transactions are
// committed.
func testHead(t *testing.T, db rows.DB) {
	if db.Traits().Exclusive {
		t.Skip("no two transactions run at the same time")
	}
	enter := enterer(t, db)
	grown := func(tx rows.Tx) {
		t.Helper()
		ok(t, "Commit", tx.Commit())
		tx, v := enter()
		defer tx.Rollback()
		equal(t, "the round", v.Head().Rounds[0], 9)
	}
	one, v := enter()
	two, w := enter()
	for i, h := range []rows.Calls{v, w} {
		h.Head().Rounds[0] = uint64(5 + 4*i)
		ok(t, "Save", h.Save())
		_, _, err := h.CountKeys("", 1) // a driver that buffers writes sends them
		ok(t, "CountKeys", err)
	}
	grown(two)
	grown(one)
}
