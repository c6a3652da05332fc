package rowstest

import (
	"reflect"
	"testing"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// ReadAll calls all methods of Calls that read, each with all kinds of arguments: for tests that
// look at how a driver does it.
func ReadAll(t testing.TB, v rows.Calls) {
	values := map[reflect.Type][]any{
		reflect.TypeFor[string]():       {"key1"},
		reflect.TypeFor[[]string]():     {[]string{"key1", "key2"}},
		reflect.TypeFor[uint64]():       {uint64(5)},
		reflect.TypeFor[[]uint64]():     {[]uint64{5, 6}},
		reflect.TypeFor[int64]():        {int64(5)},
		reflect.TypeFor[int]():          {3},
		reflect.TypeFor[bool]():         {false, true},
		reflect.TypeFor[driver.State](): {driver.State(0), driver.Taken},
		reflect.TypeFor[rows.Line]():    {rows.Line{Key: "key1", Priority: 1}},
		reflect.TypeFor[rows.Filter](): {
			rows.Filter{MaxPriority: driver.MaxPriority},
			rows.Filter{MaxPriority: 5, Kinds: []string{"", "kind1", "kind2"}},
		},
		reflect.TypeFor[driver.ListOptions](): {
			driver.ListOptions{},
			driver.ListOptions{Group: "group1", After: 1},
			driver.ListOptions{State: driver.Taken},
			driver.ListOptions{State: driver.Buried, After: 1},
			driver.ListOptions{State: driver.Buried, Key: new("key1"), Kind: new("")},
			driver.ListOptions{State: driver.Buried, NextFirst: true},
			driver.ListOptions{State: driver.Delayed, NextFirst: true},
		},
	}
	written := map[string]bool{
		"Drop": true, "Save": true, "Fetch": true, "Rows": true, "AddConsumer": true,
		"DeleteConsumer": true,
		"SweepServed":    true, "SweepOutcomes": true, "SweepHistory": true, "Ended": true,
	}
	k, l := any("key1"), any("key2")
	ready := rows.ReadyRange(rows.Filter{MaxPriority: driver.MaxPriority}, 3)
	ready.From, ready.Payload, ready.Lock = rows.Tuple{int64(1), int64(5), int64(6)}, false,
		rows.NoLock
	next := rows.NextRange(rows.Line{Key: "key1", Priority: 1}, 5, 6)
	next.Lock = rows.NoLock
	for _, r := range []rows.Range{
		ready, next, rows.LastRange(5, rows.Line{Key: "key1", Priority: 1}),
		rows.LastRange(0, rows.Line{Key: "key1", Priority: 1}, rows.Line{Key: "key2"}),
		rows.FirstRange(rows.TaskPlace,
			[]rows.Tuple{{k, "kind1", int64(1)}, {l, "", int64(0)}}, 3, true),
		rows.FirstRange(rows.TaskPlace, []rows.Tuple{{k, "kind1"}}, 3, false),
		rows.FirstRange(rows.TaskPlace, []rows.Tuple{{k}, {l}}, 1, false),
	} {
		_, err := v.Rows(r)
		ok(t, "Rows", err)
	}
	free := rows.TurnRange(rows.Filter{Kinds: []string{"", "kind1"}}, 3)
	free.Lock = rows.NoLock
	for _, r := range []rows.Range{
		rows.TurnRange(rows.Filter{MaxPriority: driver.MaxPriority}, 3),
		rows.TurnRange(rows.Filter{MaxPriority: 5, Kinds: []string{"", "kind1"}}, 3), free,
		{Index: rows.TurnLine, Prefixes: []rows.Tuple{{k}, {l}}},
		{Index: rows.TurnLine, Prefixes: []rows.Tuple{{k, int64(1)}}},
	} {
		_, err := v.Turns().Scan(r)
		ok(t, "Turns", err)
	}
	all := reflect.ValueOf(v)
	for i := range all.NumMethod() {
		name, m := all.Type().Method(i).Name, all.Method(i)
		if written[name] {
			continue
		}
		calls := [][]reflect.Value{nil}
		for j := range m.Type().NumIn() {
			var more [][]reflect.Value
			for _, some := range calls {
				for _, x := range values[m.Type().In(j)] {
					more = append(more, append(some[:len(some):len(some)], reflect.ValueOf(x)))
				}
			}
			calls = more // none if it takes a row, to write it
		}
		for _, args := range calls {
			results := m.Call(args)
			if err, isError := results[len(results)-1].Interface().(error); isError {
				t.Fatalf("%s(%v): %v", name, args, err)
			}
		}
	}
	_, mark, err := v.Ended("")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = v.Ended(mark)
	if err != nil {
		t.Fatal(err)
	}
}
