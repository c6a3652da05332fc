package rowstest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// testMany makes calls with more than a statement may have parameters, and more than fits in a
// batch.
func testMany(t *testing.T, db rows.DB) {
	const (
		n    = 1100
		many = 70_000
	)
	var ids, all []uint64
	for i := range many {
		all = append(all, uint64(1+i))
	}
	var consumer *rows.Consumer
	in(t, db, &rows.Plan{Exclusive: true, Numbers: n}, func(v rows.Calls) {
		for i := range n {
			ids = append(ids, insert(t, v, rows.Row{
				Key: fmt.Sprint(i), Kind: fmt.Sprint(i), UniqueKey: fmt.Sprint("a", i), Group: "g",
				Round: 1, Takeable: true,
			}))
			ok(t, "Put", v.Turns().Put(&rows.Turn{
				Line: rows.Line{Key: fmt.Sprint(i)}, Kind: fmt.Sprint(i), Round: 1, Takeable: true,
			}))
		}
		var err error
		consumer, err = v.AddConsumer("c", 0, 1)
		ok(t, "AddConsumer", err)
		count(t, "Ready of a View that has inserted", n, func() ([]*rows.Row, error) {
			return v.Rows(rows.ReadyRange(everything, 2*n))
		})
	})
	in(t, db, exclusively(), func(v rows.Calls) {
		count(t, "List with a Limit of 0", 100, func() ([]*rows.Row, error) {
			return v.List(driver.ListOptions{})
		})
		count(t, "List with a greater Limit", n, func() ([]*rows.Row, error) {
			return v.List(driver.ListOptions{Limit: n})
		})
		count(t, "InGroup", n, func() ([]*rows.Row, error) { return v.InGroup("g", 0, many) })
		kinds := make([]string, n)
		for i := range kinds {
			kinds[i] = fmt.Sprint(i)
		}
		count(t, "turns of many kinds", n, func() ([]*rows.Turn, error) {
			return v.Turns().Scan(rows.TurnRange(
				rows.Filter{MaxPriority: driver.MaxPriority, Kinds: kinds}, many))
		})
		numbers := append(all[:len(all):len(all)], consumer.Number)
		slices.Sort(numbers)
		numbers = slices.Compact(numbers)
		names, err := v.ConsumerNames(numbers)
		ok(t, "ConsumerNames", err)
		equal(t, "the name of the consumer", names[consumer.Number], "c")
		found, err := v.Renew(numbers, 5)
		ok(t, "Renew", err)
		if !slices.Equal(found, []uint64{consumer.Number}) {
			t.Errorf("Renew returned %d, want those that exist: %d", found, consumer.Number)
		}
		next, err := v.Times(true)
		ok(t, "Times", err)
		equal(t, "the deadline after Renew", next.Deadline, 5)
	})
	var lines []rows.Line
	for i := range n {
		lines = append(lines, rows.Line{Key: fmt.Sprint(i)})
	}
	last := rows.LastRange(1, lines...)
	in(t, db, &rows.Plan{Ranges: []rows.Range{
		rows.RowRange(false, rows.ForUpdate, all...),
		rows.ReadyRange(everything, n), last,
	}}, func(v rows.Calls) {
		count(t, "LastRange", n, func() ([]*rows.Row, error) { return v.Rows(last) })
		ready := func() ([]*rows.Row, error) { return v.Rows(rows.ReadyRange(everything, n)) }
		for _, r := range count(t, "Ready", n, ready) {
			r.State, r.Takeable, r.Consumer, r.Since = driver.Taken, false, consumer.Number, r.ID
			ok(t, "Take", v.Put(r))
		}
	})
	in(t, db, exclusively(), func(v rows.Calls) {
		taken := func() ([]*rows.Row, error) { return v.TakenBy(consumer.Number, many, false) }
		for i, r := range count(t, "TakenBy", n, taken) {
			equal(t, "the id of a row that is held", r.ID, ids[i])
			ok(t, "Delete", v.Delete(r))
		}
		tasks, err := v.Counts()
		ok(t, "Counts", err)
		equal(t, "the number of tasks", tasks[0], 0)
	})
}

// count makes a call that should return n rows.
func count[R any](t *testing.T, what string, n int, call func() ([]*R, error)) []*R {
	t.Helper()
	list, err := call()
	ok(t, what, err)
	equal(t, "the number of rows from "+what, len(list), n)
	return list
}
