package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Each task, put in any way, is worked on exactly once.
func TestContestants(t *testing.T) {
	for store, s := range stores {
		t.Run(store, func(t *testing.T) {
			for _, c := range s.contestants {
				t.Run(c.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					address := filepath.Join(t.TempDir(), "test.db")
					switch store {
					case "postgres":
						address = pgtest.Shared(t).Database(t)
					case "redis":
						needRedis(t)
						server, err := startRedis(ctx, false)
						require.NoError(t, err)
						defer server.stop()
						address, err = server.create(ctx, c.name)
						require.NoError(t, err)
					}
					q, err := c.open(ctx, address)
					require.NoError(t, err)
					defer func() { require.NoError(t, q.close()) }()

					require.NoError(t, q.put(ctx, item{"a", payload(0)}))
					require.NoError(t, q.clear(ctx))
					want, taken := map[int]int{}, map[int]int{}
					for n := range 10 {
						require.NoError(t, q.put(ctx, item{"a", payload(n)}))
						want[n] = 1
					}
					require.NoError(t, q.putBatch(ctx, []item{{"a", payload(0)}, {"b", payload(1)}}))
					want[0], want[1] = 2, 2
					if c.putsOnly {
						return
					}
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
					done.Add(12 - 3*min(1, len(taken)))
					stop, err := q.work(ctx, 2, worker{
						begin: func(p string) {
							mu.Lock()
							defer mu.Unlock()
							taken[number(p)]++
						},
						done: done.Done,
					})
					require.NoError(t, err)
					done.Wait()
					require.NoError(t, stop())
					require.Equal(t, want, taken)
				})
			}
		})
	}
}

// needRedis skips a test if there is no server to start.
func needRedis(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
}

// The command as a whole, with small numbers.
func TestRun(t *testing.T) {
	for store := range stores {
		t.Run(store, func(t *testing.T) {
			if store == "postgres" {
				if testing.Short() {
					t.Skip("it takes long")
				}
				pgtest.Shared(t)
			}
			if store == "redis" {
				needRedis(t)
			}
			for _, mode := range []string{"", "fifo", "fair"} {
				o := &options{
					store: store, time: 100 * time.Millisecond, tasks: 100, count: 1,
					fifo: mode == "fifo", fair: mode == "fair",
					load: load{heavy: 200, light: 10, rate: 50, workers: 2, service: time.Millisecond},
				}
				require.NoError(t, o.setBacklogs("0,100"))
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
	o := options{store: "other"}
	require.EqualError(t, o.setBacklogs("1,x"), `"x" is not a number of at least 0`)
	require.EqualError(t, run(t.Context(), &o, nil, nil),
		`-store: "other" is not sqlite, postgres or redis`)
}

func TestTable(t *testing.T) {
	ours, a, b := &entrant{}, &entrant{}, &entrant{}
	ours.name, a.name, b.name = "ours", "a", "b"
	tab := &table{trial{name: "puts/s"}, []*entrant{ours, a, b}, nil, map[cell][]float64{}}
	for _, round := range [][]float64{{1000, 1500, 500}, {3000, 1000, 600}, {2000, 1000, 10}} {
		for i, c := range tab.columns {
			tab.add("10 tasks", c, round[i])
		}
	}
	tab.add("none", a, 12.34)
	var out bytes.Buffer
	tab.print(&out)
	require.Equal(t, `
### puts/s

| | ours | a | b | ours : best other |
|---|---|---|---|---|
| 10 tasks | 2,000 | 1,000 | 500 | **2.0** (0.67 to 3.0) |
| none |  | 12.3 |  |  |
`, out.String())
}

func TestQuantiles(t *testing.T) {
	r := &fairRun{waits: []float64{1, 400, 2, 3, 4}, unbegun: map[int]time.Time{9: {}}}
	require.Equal(t, "3", quantiles([]*fairRun{r}, 0.5))
	require.Equal(t, "more than 400", quantiles([]*fairRun{r}, 1))
}
