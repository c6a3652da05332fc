package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// addresses returns a function that makes a new database.
func addresses(t *testing.T, store string) func(name string) string {
	dir := t.TempDir()
	if store == "sqlite" {
		return func(name string) string { return filepath.Join(dir, name+".db") }
	}
	return func(string) string { return pgtest.Shared(t).Database(t) + " pool_max_conns=20" }
}

// Each task, put in any way, is worked on exactly once.
func TestContestants(t *testing.T) {
	for store, all := range contestants {
		t.Run(store, func(t *testing.T) {
			address := addresses(t, store)
			for _, c := range all {
				t.Run(c.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					q, err := c.open(ctx, address(c.name))
					require.NoError(t, err)
					defer func() { require.NoError(t, q.close()) }()
					e := &entrant{contestant: c, queue: q, keys: 3}

					require.NoError(t, e.prepare(ctx, 7))
					require.NoError(t, q.clear(ctx))
					require.NoError(t, q.fill(ctx, 5, e.key))
					require.NoError(t, q.fill(ctx, 0, e.key))
					require.NoError(t, q.put(ctx, item{"a", payload(1)}))
					require.NoError(t, q.putBatch(ctx, []item{{"a", payload(2)}, {"b", payload(3)}}))
					if c.putsOnly {
						return
					}
					taken := map[int64]int{}
					if q, ok := q.(taker); ok {
						for range 3 {
							p, ack, err := q.take(ctx)
							require.NoError(t, err)
							require.NoError(t, ack(ctx))
							taken[number(p)]++
						}
					}
					var mu sync.Mutex
					var done sync.WaitGroup
					done.Add(12 - taken[0] - taken[1] - taken[2] - taken[3])
					stop, err := q.work(ctx, 2, worker{
						begin: func(p string) {
							mu.Lock()
							defer mu.Unlock()
							taken[number(p)]++
						},
						done: done.Done,
					})
					require.NoError(t, err)
					for n := int64(4); n < 8; n++ {
						require.NoError(t, q.put(ctx, item{"c", payload(n)}))
					}
					done.Wait()
					require.NoError(t, stop())
					require.Equal(t, map[int64]int{0: 5, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1}, taken)
				})
			}
		})
	}
}

// The command as a whole, with small numbers.
func TestRun(t *testing.T) {
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			if store == "postgres" {
				if testing.Short() {
					t.Skip("it takes long")
				}
				pgtest.Shared(t)
			}
			for _, mode := range []string{"", "fifo", "fair"} {
				o := &options{
					store: store, time: 100 * time.Millisecond, tasks: 100, count: 1, keys: 5,
					fifo: mode == "fifo", fair: mode == "fair",
					load: load{heavy: 200, light: 10, rate: 50, workers: 2, service: time.Millisecond},
				}
				require.NoError(t, o.parse("", "2", "0,100"))
				var out, progress bytes.Buffer
				require.NoError(t, run(t.Context(), o, &out, &progress), progress.String())
				t.Log(out.String())
				require.NotContains(t, out.String(), "| |\n", "no empty cell but in the first row")
				require.Contains(t, out.String(), "| ours |")
			}
		})
	}
}

func TestOptions(t *testing.T) {
	for _, bad := range []options{{time: -1}, {tasks: -1}} {
		require.Error(t, bad.parse("", "1", "0"))
	}
	o := options{store: "postgres", tasks: 1, count: 1, keys: 1, load: load{rate: 1}}
	require.ErrorContains(t, o.parse("", "0", "0"), `-callers: "0" is not a number of at least 1`)
	require.ErrorContains(t, o.parse("", "1", "x"), `-backlog: "x" is not a number of at least 0`)
	require.NoError(t, o.parse("", "", "0"))
	require.Equal(t, []int{1, 8, 100}, o.callers)
	require.NoError(t, o.parse("river,nobody", "", "0"))
	_, err := o.selected()
	require.ErrorContains(t, err, `there is no "nobody" with -store postgres`)
	o.store = "other"
	_, err = o.selected()
	require.ErrorContains(t, err, `"other" is neither sqlite nor postgres`)
}

func TestTable(t *testing.T) {
	tab := newTable("puts/s",
		[]*entrant{
			{contestant: contestant{name: "ours"}},
			{contestant: contestant{name: "a"}},
			{contestant: contestant{name: "b"}},
		})
	for _, round := range [][]float64{{1000, 1500, 500}, {3000, 1000, 600}, {2000, 1000, 10}} {
		tab.add("10 tasks", "ours", round[0])
		tab.add("10 tasks", "a", round[1])
		tab.add("10 tasks", "b", round[2])
	}
	tab.add("none", "a", 12.34)
	var out strings.Builder
	tab.print(&out)
	require.Equal(t, `
### puts/s

| | ours | a | b | ours : best other |
|---|---|---|---|---|
| 10 tasks | 2,000 | 1,000 | 500 | **2.00** (0.67 to 3.00) |
| none |  | 12.3 |  |  |
`, out.String())
}

func TestWaits(t *testing.T) {
	w := &waits{light: []time.Duration{1e6, 2e6, 3e6, 400e6}, unbegun: 1}
	require.Equal(t, "2", quantiles([]*waits{w}, 0.5))
	require.Equal(t, "more than 400", quantiles([]*waits{w}, 1))
}
