//go:build unix

package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

const (
	batch = 64 // rows in a transaction
	keys  = 100
)

// openBench opens a database of its own with that many tasks in queue 1: a copy of the one in the
// file, if there is one.
func openBench(b *testing.B, file string, backlog int) *db {
	path := filepath.Join(b.TempDir(), "bench.db")
	data, err := os.ReadFile(file)
	if err == nil {
		f, err := os.Create(path)
		require.NoError(b, err)
		_, err = f.Write(data)
		require.NoError(b, err)
		require.NoError(b, f.Sync()) // or the first checkpoint pays for it
		require.NoError(b, f.Close())
	}
	d, err := openDB(context.Background(), path, options{synchronous: "normal"})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, d.close()) })
	if data != nil {
		return d
	}
	makeQueue(b, d)
	for i := 0; i < backlog; i += 10_000 {
		in(b, d, func(v rows.Calls) { insert(b, v, 10_000) })
	}
	_, err = d.conn.pragma("wal_checkpoint(truncate)")
	require.NoError(b, err)
	data, err = os.ReadFile(path)
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(file, data, 0o600))
	return d
}

var payload = make([]byte, 100)

// insert puts n tasks of some keys at the end of the queue.
func insert(b testing.TB, v rows.Calls, n int) {
	for range n {
		id, err := v.Number()
		if err != nil {
			b.Fatal(err)
		}
		err = v.Put(&rows.Row{
			ID: id, Key: fmt.Sprintf("customer-%d", id%keys), Priority: 100, Weight: 1, Payload: payload, TTR: 60e9, MaxAttempts: 10,
			Created: v.Now(), State: driver.Ready, Takeable: true, Round: 1 + id/keys, Seq: id, Place: id,
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func take(b testing.TB, v rows.Calls, n int) []*rows.Row {
	all, err := v.Ready(rows.Filter{MaxPriority: driver.MaxPriority}, n)
	if err != nil || len(all) != n {
		b.Fatal(len(all), err)
	}
	for _, r := range all {
		r.State, r.Takeable, r.Consumer, r.Attempts, r.Until, r.Wake = driver.Taken, false, 1, 1, v.Now()+60e9, v.Now()+60e9
		if r.Since, err = v.Number(); err == nil {
			err = v.Put(r)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return all
}

// benchmark times f, which is given what prepare returns, over an empty queue and over one with a
// backlog.
func benchmark(b *testing.B, prepare func(b *testing.B, d *db, n int) []*rows.Row, f func(d *db, n int, all []*rows.Row)) {
	for _, backlog := range []int{0, 1_000_000} {
		file := filepath.Join(b.TempDir(), "backlog.db")
		b.Run(fmt.Sprint("backlog=", backlog), func(b *testing.B) {
			if backlog > 0 && testing.Short() {
				b.Skip("it takes half a minute to make the backlog")
			}
			d := openBench(b, file, backlog)
			all := prepare(b, d, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu()
			f(d, b.N, all)
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu returns the time for which this process has run, which other processes have little influence
// on.
func cpu() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}

func prepareNothing(*testing.B, *db, int) []*rows.Row { return nil }

func prepareReady(b *testing.B, d *db, n int) []*rows.Row {
	for ; n > 0; n -= 10_000 {
		in(b, d, func(v rows.Calls) { insert(b, v, min(n, 10_000)) })
	}
	return nil
}

func prepareTaken(b *testing.B, d *db, n int) (all []*rows.Row) {
	prepareReady(b, d, n)
	for ; n > 0; n -= 10_000 {
		in(b, d, func(v rows.Calls) { all = append(all, take(b, v, min(n, 10_000))...) })
	}
	return all
}

// Each writes 64 rows a transaction; the figures are for one row.

func BenchmarkInsert(b *testing.B) {
	benchmark(b, prepareNothing, func(d *db, n int, _ []*rows.Row) {
		for ; n > 0; n -= batch {
			in(b, d, func(v rows.Calls) { insert(b, v, min(n, batch)) })
		}
	})
}

// BenchmarkTake reads the rows too.
func BenchmarkTake(b *testing.B) {
	benchmark(b, prepareReady, func(d *db, n int, _ []*rows.Row) {
		for ; n > 0; n -= batch {
			in(b, d, func(v rows.Calls) { take(b, v, min(n, batch)) })
		}
	})
}

func BenchmarkDelete(b *testing.B) {
	benchmark(b, prepareTaken, func(d *db, n int, all []*rows.Row) {
		for i := 0; i < n; i += batch {
			in(b, d, func(v rows.Calls) { remove(b, v, all[i:min(n, i+batch)]) })
		}
	})
}

// BenchmarkCycle inserts, takes and deletes each row, in transactions of their own.
func BenchmarkCycle(b *testing.B) {
	benchmark(b, prepareNothing, func(d *db, n int, all []*rows.Row) {
		for ; n > 0; n -= batch {
			in(b, d, func(v rows.Calls) { insert(b, v, min(n, batch)) })
			in(b, d, func(v rows.Calls) { all = take(b, v, min(n, batch)) })
			in(b, d, func(v rows.Calls) { remove(b, v, all) })
		}
	})
}

func remove(b testing.TB, v rows.Calls, all []*rows.Row) {
	for _, r := range all {
		if err := v.Delete(r); err != nil {
			b.Fatal(err)
		}
	}
}
