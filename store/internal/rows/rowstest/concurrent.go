package rowstest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// testCancelled begins a transaction with a context that is over.
func testCancelled(t *testing.T, db rows.DB) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tx, err := db.Begin(ctx)
	if err == nil {
		_, err = tx.Queue("q", []byte("{}"))
		if err == nil {
			err = tx.Commit()
		}
		tx.Rollback()
	}
	if err == nil {
		t.Error("a transaction was committed though its context was over before")
	}
	if _, again := db.Again(err); again {
		t.Errorf("Again(%v) is true, though the context is over", err)
	}
	usable(t, db, false)
}

// testCancelledLater cancels the context of a transaction that has written.
func testCancelledLater(t *testing.T, db rows.DB) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tx, err := db.Begin(ctx)
	ok(t, "Begin", err)
	defer tx.Rollback()
	_, err = tx.Queue("q", []byte("{}"))
	ok(t, "Queue", err)
	cancel()
	err = tx.Commit()
	tx.Rollback()
	usable(t, db, err == nil)
}

// usable checks that there is the queue q, or that there is not, and that it can be made.
func usable(t *testing.T, db rows.DB, there bool) {
	t.Helper()
	tx := begin(t, db)
	q, err := tx.Queue("q", nil)
	ok(t, "Queue", err)
	equal(t, "whether the queue is there", q != nil, there)
	tx.Rollback()
	in(t, db, exclusively(), func(v rows.Calls) { insert(t, v, rows.Row{}) })
}

// testChanged checks that Changed is true when, and only when, another handle has written.
func testChanged(t *testing.T, db rows.DB) {
	r, isReopener := db.(reopener)
	if !isReopener {
		t.Skip("the DB has no method Reopen")
	}
	if by, isReporter := db.(reporter); isReporter && by.ReportsChanges() {
		t.Skip("it reports changes by itself")
	}
	other := r.Reopen(t)
	in(t, db, exclusively(), func(rows.Calls) {})
	changed := func(db rows.DB, want bool) {
		t.Helper()
		got, err := db.Changed(context.Background())
		ok(t, "Changed", err)
		equal(t, "Changed", got, want)
	}
	for _, db := range []rows.DB{db, other} { // ignore earlier changes
		_, err := db.Changed(context.Background())
		ok(t, "Changed", err)
	}
	changed(db, false)
	in(t, other, exclusively(), func(v rows.Calls) { insert(t, v, rows.Row{}) })
	changed(db, true)
	changed(db, false)
	in(t, other, exclusively(), func(v rows.Calls) { insert(t, v, rows.Row{}) })
	in(t, db, exclusively(), func(v rows.Calls) { insert(t, v, rows.Row{}) })
	changed(db, true)
	in(t, db, exclusively(), func(v rows.Calls) { insert(t, v, rows.Row{}) })
	changed(db, false)
	changed(other, true)
}

// crowd runs f in some goroutines, on all handles.
func crowd(t *testing.T, db rows.DB, f func(worker int, db rows.DB) error) {
	handles := []rows.DB{db}
	if r, ok := db.(reopener); ok {
		handles = append(handles, r.Reopen(t))
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if err := f(i, handles[i%len(handles)]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// attempt makes a transaction in the queue q, again and again while it should.
func attempt(db rows.DB, plan *rows.Plan, f func(v rows.Calls) error) error {
	for {
		err := once(db, plan, f)
		if err == nil {
			return nil
		}
		if _, again := db.Again(err); !again {
			return err
		}
	}
}

func once(db rows.DB, plan *rows.Plan, f func(v rows.Calls) error) error {
	q, err := find(db)
	if err != nil {
		return err
	}
	tx, err := db.Begin(context.Background())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	v, err := tx.Enter(q.ID, plan)
	if err != nil {
		return err
	}
	if err := f(rows.Calls{View: v}); err != nil {
		return err
	}
	return tx.Commit()
}

// find finds the queue q, in a transaction of its own: until its end no other one can find it.
func find(db rows.DB) (*rows.Queue, error) {
	tx, err := db.Begin(context.Background())
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	q, err := tx.Queue("q", nil)
	if err != nil || q == nil {
		return nil, fmt.Errorf("Queue: %v, %w", q, err)
	}
	return q, nil
}

// testConcurrent takes rows in transactions that are not exclusive and run at the same time. Each
// row must be taken once, and all must be counted.
func testConcurrent(t *testing.T, db rows.DB) {
	const n = 60
	in(t, db, exclusively(), func(v rows.Calls) {
		for i := range n {
			insert(t, v, rows.Row{Key: fmt.Sprint("k", i%3), Round: uint64(1 + i), Takeable: true})
		}
	})
	var mu sync.Mutex // protects taken
	taken := map[uint64]int{}
	crowd(t, db, func(_ int, db rows.DB) error {
		for range n { // others may have locked all that is left
			var ids []uint64
			err := attempt(db, &rows.Plan{
				Numbers: 1,
				Ranges:  []rows.Range{rows.ReadyRange(everything, 2)},
			}, func(v rows.Calls) error {
				ids = nil
				list, err := v.Rows(rows.ReadyRange(everything, 2))
				if err != nil {
					return err
				}
				for _, r := range list {
					r.State, r.Takeable, r.Attempts = driver.Taken, false, r.Attempts+1
					if r.Since, err = v.Number(); err != nil {
						return err
					}
					if err := v.Put(r); err != nil {
						return err
					}
					ids = append(ids, r.ID)
				}
				return nil
			})
			if err != nil {
				return err
			}
			mu.Lock()
			for _, id := range ids {
				taken[id]++
			}
			mu.Unlock()
		}
		return nil
	})
	equal(t, "the number of rows that were taken", len(taken), n)
	for id, times := range taken {
		if times != 1 {
			t.Errorf("row %d was taken %d times", id, times)
		}
	}
	in(t, db, exclusively(), func(v rows.Calls) {
		tasks, err := v.Counts()
		ok(t, "Counts", err)
		equal(t, "Counts", tasks, [driver.Held + 1]int{0: n, driver.Taken: n})
	})
}

// rowOfKey returns the row of a key in the table of keys, nil if there is none.
func rowOfKey(v rows.Calls, key string) (*rows.Key, error) {
	return first(v.Keys().Scan(rows.KeyRange([]string{key})))
}

// first returns the first row, nil if there is none.
func first[R any](found []*R, err error) (*R, error) {
	if len(found) == 0 {
		return nil, err
	}
	return found[0], err
}

// testExclusive changes one task in transactions that run at the same time. Some are exclusive,
// and need not lock the task; others are not, and lock it. The exclusive ones also change the row
// of a key and the Head. No change may be lost.
func testExclusive(t *testing.T, db rows.DB) {
	const n, alone = 20, 3 // alone is the number of workers whose transactions are exclusive
	var id uint64
	in(t, db, exclusively(), func(v rows.Calls) { id = insert(t, v, rows.Row{}) })
	add := func(v rows.Calls, r *rows.Row, err error) error {
		if err != nil {
			return err
		}
		r.Attempts++
		runtime.Gosched() // for others to come in between
		return v.Put(r)
	}
	crowd(t, db, func(worker int, db rows.DB) error {
		isAlone := worker < alone
		for range n {
			err := attempt(db, &rows.Plan{Exclusive: isAlone}, func(v rows.Calls) error {
				if !isAlone {
					r, err := v.Get(id, false)
					return add(v, r, err)
				}
				k, err := rowOfKey(v, "k")
				if err != nil {
					return err
				}
				if k == nil {
					k = &rows.Key{Key: "k"}
				}
				rows.Count(&k.Tasks, 0, driver.Ready)
				if err := v.SetKey(k); err != nil {
					return err
				}
				r, err := first(v.Peek([]uint64{id}, false))
				if err := add(v, r, err); err != nil {
					return err
				}
				v.Head().PausedKeys++
				return v.Save()
			})
			if err != nil {
				return fmt.Errorf("worker %d: %w", worker, err)
			}
		}
		return nil
	})
	in(t, db, exclusively(), func(v rows.Calls) {
		k, err := rowOfKey(v, "k")
		ok(t, "Keys", err)
		equal(t, "the number in the key", k.Tasks[0], alone*n)
		equal(t, "Head.PausedKeys", v.Head().PausedKeys, alone*n)
		r, err := v.Get(id, false)
		ok(t, "Get", err)
		equal(t, "the number in the task", r.Attempts, 6*n)
	})
}
