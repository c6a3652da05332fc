package kv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// TestTuple compares the order of tuples with the order of their encodings, and decodes elements.
func TestTuple(t *testing.T) {
	var all []rows.Tuple
	for range 3000 {
		tuple := rows.Tuple{randomInt(), randomString(), randomString(), randomInt()}
		all = append(all, tuple)
		b := appendTuple(nil, tuple)
		for n := range tuple {
			require.Equal(t, len(appendTuple(nil, tuple[:n])), sizeOf(b, n), "%q", b)
			require.Equal(t, appendTuple([]byte{}, tuple[len(tuple)-n:]), last(b, n))
		}
		require.Equal(t, len(b), sizeOf(b, 9))
		require.LessOrEqual(t, sizeOf(b[rand.IntN(len(b)):], 3), len(b)) // even of damaged bytes
		if n := tuple[0].(int64); n >= 0 {
			require.EqualValues(t, n, uintAt(b))
		}
	}
	compare := func(a, b rows.Tuple) int {
		return cmp.Or(cmp.Compare(a[0].(int64), b[0].(int64)), cmp.Compare(a[1].(string), b[1].(string)),
			cmp.Compare(a[2].(string), b[2].(string)), cmp.Compare(a[3].(int64), b[3].(int64)))
	}
	for range 300_000 {
		a, b := all[rand.IntN(len(all))], all[rand.IntN(len(all))]
		x, y := appendTuple(nil, a), appendTuple(nil, b)
		require.Equal(t, compare(a, b), bytes.Compare(x, y), "%q %q", a, b)
		in := compare(append(slices.Clone(b[:2]), a[2:]...), a) == 0
		begin := appendTuple(nil, b[:2])
		require.Equal(t, in, bytes.Compare(x, begin) >= 0 && bytes.Compare(x, prefixEnd(begin)) < 0)
	}
}

func randomInt() int64 {
	some := []int64{0, 1, 255, 256, math.MaxInt64, math.MinInt64, rand.Int64() >> rand.IntN(64)}
	n := some[rand.IntN(len(some))]
	if rand.IntN(2) == 0 {
		n = -n
	}
	return n
}

func randomString() string {
	b := make([]byte, rand.IntN(4))
	for i := range b {
		b[i] = "\x00\x01a\xfe\xff"[rand.IntN(5)]
	}
	return string(b)
}

// set gives each field of a row another value, so that the test notices a forgotten field.
func set[R any](row *R, n int) *R {
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		n++
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		case reflect.Slice:
			v.SetBytes(fmt.Append(nil, "bytes", n))
		case reflect.String:
			v.SetString(fmt.Sprint("s", n))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Array:
			v.Index(1).SetInt(int64(n))
			v.Index(0).SetInt(int64(n)) // the sum
		case reflect.Uint8, reflect.Uint64:
			v.SetUint(uint64(n))
		case reflect.Float64:
			v.SetFloat(float64(n) / 8)
		default:
			v.SetInt(int64(n))
		}
	}
	fill(reflect.ValueOf(row).Elem())
	return row
}

// fill puts rows into each table of queue 1.
func fill(t *testing.T, m *memory) {
	db := open(t, m)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Queue("queue", []byte("settings"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	tx, err = db.Begin(t.Context())
	require.NoError(t, err)
	v, err := tx.Enter(1, &rows.Plan{})
	require.NoError(t, err)
	for state := driver.Ready; state <= driver.Held; state++ {
		r := set(new(rows.Row), 100*int(state))
		r.Was, r.State, r.Takeable, r.InLine = 0, state, state == driver.Ready, false
		put(t, v.Tasks(), rows.TaskID, r)
	}
	inLine := set(new(rows.Row), 600)
	inLine.Was, inLine.State, inLine.Takeable = 0, driver.Ready, false
	put(t, v.Tasks(), rows.TaskID, inLine)
	put(t, v.Turns(), rows.TurnLine, set(new(rows.Turn), 0))
	k := set(new(rows.Key), 0)
	k.Oldest = 0 // the table does not store it
	put(t, v.Keys(), rows.KeyName, k)
	put(t, v.Served(), rows.ServedLine, set(new(rows.Served), 0))
	put(t, v.Consumers(), rows.ConsumerNumber, set(new(rows.Consumer), 0))
	put(t, v.Groups(), rows.GroupName, set(new(rows.Group), 0))
	o := set(new(rows.Outcome), 0)
	o.Written = 1<<clockBits | 1<<countBits // its number: the first of process 1
	put(t, v.Outcomes(), rows.OutcomeKey, o)
	put(t, v.History(), rows.HistoryID, set(new(rows.Ended), 0))
	h := v.Head()
	h.Paused, h.PausedKeys, h.Rounds[7] = true, 3, 300
	require.NoError(t, v.Save())
	require.NoError(t, tx.Commit())
}

// put puts a row, and checks that a scan returns the same row.
func put[R any](t *testing.T, table rows.Table[R], primary rows.Index, r *R) {
	require.NoError(t, table.Put(r))
	all, err := table.Scan(rows.Range{Index: primary, Desc: true, Payload: true})
	require.NoError(t, err)
	require.Contains(t, all, r)
}

// TestLayout fails if keys or values differ from those of existing databases. If they must, the
// layout needs a new version.
func TestLayout(t *testing.T) {
	m := newMemory()
	synctest.Test(t, func(t *testing.T) { fill(t, m) }) // with the same times in each run
	var b strings.Builder
	for _, e := range span(m.entries, &all) {
		fmt.Fprintf(&b, "%x %x\n", e.Key, e.Value)
	}
	const file = "testdata/layout"
	if os.Getenv("FAIRQ_WRITE_LAYOUT") != "" {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(want), "\r", ""), b.String())
}

func TestKeepSchema(t *testing.T) {
	m := newMemory()
	_, err := Open(t.Context(), "memory", Buffered{m}, Options{KeepSchema: true})
	require.EqualError(t, err, "memory: open: there is no store")
	require.Empty(t, m.entries)
	for _, keep := range []bool{false, true} {
		db, err := Open(t.Context(), "memory", Buffered{m}, Options{KeepSchema: keep})
		require.NoError(t, err)
		db.Close()
	}
}

// TestDamaged changes one value after the other: reads return errors, and do not panic.
func TestDamaged(t *testing.T) {
	m := newMemory()
	fill(t, m)
	whole := m.entries
	for _, e := range span(whole, &all) {
		if len(e.Value) == 0 {
			continue
		}
		values := [][]byte{
			{},
			e.Value[:len(e.Value)-1], append(bytes.Clone(e.Value), 0),
			bytes.Repeat([]byte{0xff}, 20),
		}
		for j, b := range e.Value {
			for _, other := range []byte{0, b ^ byte(1+rand.IntN(255))} {
				values = append(values, bytes.Clone(e.Value))
				values[len(values)-1][j] = other
			}
		}
		for _, value := range values {
			m.entries = maps.Clone(whole)
			m.entries[string(e.Key)] = string(value)
			if err := readAll(t, m); err != nil {
				require.ErrorContains(t, err, "memory: ")
			}
		}
	}
	m.entries = maps.Clone(whole)
	row := string(appendTuple(nil, rows.Tuple{int64(1), int64(rows.TaskID)}))
	maps.DeleteFunc(m.entries, func(key, _ string) bool { return strings.HasPrefix(key, row) })
	require.ErrorIs(t, readAll(t, m), errDamaged) // index entries lead to deleted rows
}

func readAll(t *testing.T, m *memory) error {
	db, err := Open(t.Context(), "memory", Buffered{m}, Options{})
	if err != nil {
		return err
	}
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback()
	if _, err := tx.Queue("queue", nil); err != nil {
		return err
	}
	v, err := tx.Enter(1, &rows.Plan{})
	if v == nil || err != nil {
		return err
	}
	c := rows.Calls{View: v}
	_, e1 := c.List(driver.ListOptions{})
	_, e2 := c.KeyStats(100)
	_, e3 := v.Turns().Scan(rows.TurnRange(rows.Filter{MaxPriority: 999}, 9))
	_, e4 := c.Ready(rows.Filter{MaxPriority: 999}, 9)
	_, e5 := c.Times(true)
	_, e6 := c.Rows(rows.LastRange(0, rows.Line{Key: "s101", Priority: 106}))
	_, _, e7 := c.Ended("0")
	_, e8 := c.HistoryAfter(0, 9)
	return errors.Join(e1, e2, e3, e4, e5, e6, e7, e8)
}

// TestErrors makes one call of the engine after the other fail. A failed transaction writes
// nothing.
func TestErrors(t *testing.T) {
	m := newMemory()
	fill(t, m)
	db := open(t, m)
	failure := errors.New("failure")
	work := func(tx rows.Tx) error {
		if _, err := tx.Queue("another", []byte("{}")); err != nil {
			return err
		}
		v, err := tx.Enter(1, &rows.Plan{})
		if err != nil {
			return err
		}
		v.Head().Paused = true
		v.Head().Rounds[7]++
		c := rows.Calls{View: v}
		all, e2 := c.List(driver.ListOptions{})
		for _, r := range all {
			e2 = errors.Join(e2, c.Delete(r))
		}
		e3 := c.SetOutcome(&rows.Outcome{UniqueKey: "a", Until: 9})
		e4 := c.SweepHistory(math.MaxInt64-1, 9)
		_, e5 := v.Drop()
		return errors.Join(e2, e3, e4, e5)
	}
	for n, failed := 0, true; failed; n++ {
		before, calls := m.entries, 0
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		m.fail = func(string) error {
			if calls++; calls == n+1 {
				return failure
			}
			return nil
		}
		err = work(tx)
		failed = calls > n
		committed := tx.Commit()
		if failed = failed || committed != nil; failed {
			require.ErrorIs(t, committed, failure)
			require.ErrorContains(t, committed, "memory: ")
		} else {
			require.NoError(t, err)
		}
		m.fail = nil
		tx.Rollback()
		if failed {
			require.Equal(t, before, m.entries)
		}
	}
	_, err := db.Begin(cancelled(t))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "memory: begin: ")
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestSkips counts the skips of a task that is skipped again and again, and forgets other tasks.
func TestSkips(t *testing.T) {
	var p skips
	for i := range uint64(5 * maxSkipped) {
		p.add(i + 9)
		if i%1000 == 0 && i < 3*maxSkipped {
			p.add(1)
		}
	}
	require.Zero(t, p.count(9))
	require.Zero(t, p.count(1))
	require.Equal(t, 1, p.count(5*maxSkipped+8))
	for range 7 {
		p.add(1)
	}
	for i := range uint64(maxSkipped - 1) {
		p.add(i + 9)
	}
	require.Equal(t, 7, p.count(1))
	p.add(1)
	require.Equal(t, 8, p.count(1))
	require.LessOrEqual(t, len(p.now)+len(p.before), 2*maxSkipped)
}

// TestLikely reads one of two likely tasks ahead. The other one stays as it is.
func TestLikely(t *testing.T) {
	l := &local{likelyNext: [][]byte{{1}, {2}}}
	(&view{}).addPayloadKeys(l.likelyTasks(1), &rows.Range{Payload: true})
	require.Equal(t, [][]byte{{1}, {2}}, l.likelyNext)
}

// entered returns a filled Map, and a View of its queue.
func entered(t *testing.T) (*memory, rows.View) {
	m := newMemory()
	fill(t, m)
	tx, err := open(t, m).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(tx.Rollback)
	v, err := tx.Enter(1, &rows.Plan{})
	require.NoError(t, err)
	return m, v
}

// TestTaken takes a task by a copy of its row that is older than the stored row.
func TestTaken(t *testing.T) {
	_, v := entered(t)
	c := rows.Calls{View: v}
	ready := rows.Filter{MaxPriority: 1000} // as fill has numbers for priorities
	old, err := c.Ready(ready, 1)
	require.NoError(t, err)
	moved, err := c.Ready(ready, 1)
	require.NoError(t, err)
	moved[0].Round++
	require.NoError(t, c.Put(moved[0]))
	old[0].State, old[0].Takeable, old[0].Consumer = driver.Taken, false, 9
	require.NoError(t, c.Put(old[0]))
	now, err := c.Get(old[0].ID, false)
	require.NoError(t, err)
	require.Equal(t, moved[0].Round, now.Round)
	require.EqualValues(t, 9, now.Consumer)
}

// TestPayloads reads the payloads of a list as a span, not one by one.
func TestPayloads(t *testing.T) {
	m, v := entered(t)
	m.keys = 0
	list, err := rows.Calls{View: v}.List(driver.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list, 6)
	require.NotEmpty(t, list[5].Payload)
	require.Zero(t, m.keys)

	// The numbers of the paused keys are read without the other tasks.
	require.NoError(t, v.Keys().Put(&rows.Key{Key: list[2].Key, Paused: true}))
	stats, err := v.KeyStats(0)
	require.NoError(t, err)
	require.Len(t, stats, 2)
	require.Equal(t, 1, stats[0].Tasks[0])
	require.Equal(t, 1, m.keys, "of one task")
}
