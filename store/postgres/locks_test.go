package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/task"
)

// locker makes random calls in a queue whose transactions lock keys.
type locker struct {
	*testing.T
	*task.Queue[int]
	store *Store
	*locked
}

// locked is what all lockers know.
type locked struct {
	mu      sync.Mutex // protects what follows
	next    int        // payload
	put     int
	done    map[int]int // by payload, how often its task was acked
	unknown int         // calls with an unknown outcome
}

// Processes that make random calls for the same keys do not wait for each other in a circle, and
// each task is done once.
func TestNoDeadlock(t *testing.T) {
	url := pgtest.Own(t, "fsync=off").URL("postgres")
	for name, o := range map[string]task.Options[int]{
		"limit": {MaxInFlightPerKey: 1}, "rate": {KeyRate: task.Rate{Limit: 300, Burst: 5}},
		"kinds": {KeyCapacity: 30}, "places": {KeepPlace: true, MaxInFlightPerKey: 2},
	} {
		t.Run(name, func(t *testing.T) {
			all := &locked{done: map[int]int{}}
			end := time.Now().Add(2 * time.Second)
			if long, err := time.ParseDuration(os.Getenv("FAIRQ_LOAD")); err == nil {
				end = time.Now().Add(long)
			}
			var queues []*locker
			var wg sync.WaitGroup
			for range 4 {
				s, err := Open(t.Context(), url, nil)
				require.NoError(t, err)
				q, err := task.Open(t.Context(), s, name, &o)
				require.NoError(t, err)
				l := &locker{t, q, s, all}
				queues = append(queues, l)
				for range 6 {
					wg.Go(func() {
						for time.Now().Before(end) && !t.Failed() {
							l.step()
						}
					})
				}
			}
			wg.Wait()
			for _, l := range queues[1:] {
				require.NoError(t, l.Close(context.Background()))
				require.NoError(t, l.store.Close())
			}
			left, err := queues[0].Count(t.Context(), task.ListOptions{})
			require.NoError(t, err)
			done, twice := 0, 0
			for _, n := range all.done {
				done++
				if n > 1 {
					twice++
				}
			}
			t.Logf("put %d, done %d, left %d, unknown %d", all.put, done, left, all.unknown)
			require.Zero(t, twice, "tasks that were done twice")
			require.InDelta(t, all.put, done+left, float64(all.unknown))
			require.NoError(t, queues[0].Drop(t.Context()))
			require.NoError(t, queues[0].store.Close())
		})
	}
	c, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer c.Close(t.Context())
	var deadlocks int
	require.NoError(t, c.QueryRow(t.Context(),
		"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

// step makes some calls.
func (l *locker) step() {
	ctx, cancel := l.Context(), context.CancelFunc(func() {})
	if rand.N(20) == 0 {
		ctx, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond))
	}
	defer cancel()
	key := fmt.Sprint("k", rand.N(12))
	switch n := rand.N(100); {
	case n < 25:
		l.puts(ctx, key)
	case n < 90:
		l.work(ctx)
	case n < 91:
		l.ok(l.PauseKey(ctx, key))
	case n < 95:
		l.ok(l.ResumeKey(ctx, key))
	case n < 96:
		l.ok(l.HoldKey(ctx, key, rand.N(20*time.Millisecond)))
	case n < 97:
		_, err := l.Upcoming(ctx, 5)
		l.ok(err)
	case n < 98:
		_, err := l.Stats(ctx)
		l.ok(err)
	default:
		_, err := l.Kick(ctx, task.ListOptions{Limit: 3})
		l.ok(err)
	}
}

// ok checks an error, and reports whether there is none.
func (l *locker) ok(err error) bool {
	for _, expected := range []error{
		context.DeadlineExceeded, task.ErrLeaseLost, fairq.ErrFull, task.ErrNotFound, task.ErrUnknown,
	} {
		if errors.Is(err, expected) {
			return false
		}
	}
	if err != nil {
		l.Error(err)
	}
	return err == nil
}

func (l *locker) puts(ctx context.Context, key string) {
	o := task.PutOptions{Priority: rand.N(3), Kind: [...]string{"", "", "x"}[rand.N(3)]}
	if rand.N(10) == 0 {
		o.Delay = rand.N(50 * time.Millisecond)
	}
	l.mu.Lock()
	l.next += 2
	first := l.next
	l.mu.Unlock()
	ids, err := l.PutBatch(ctx, []task.Entry[int]{
		{Key: key, Payload: first, Options: o},
		{Key: fmt.Sprint("k", rand.N(12)), Payload: first + 1, Options: o},
	})
	l.ok(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.put += len(ids); errors.Is(err, task.ErrUnknown) {
		l.unknown += 2
	}
}

func (l *locker) work(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	tasks, err := l.TakeBatch(soon, 1+rand.N(3))
	if !l.ok(err) {
		return
	}
	switch rand.N(8) {
	case 0: // in another order than that of the keys, in a transaction of the caller's
		err := l.store.InTx(ctx, l.store.db.pool, func(ctx context.Context, _ pgx.Tx) error {
			for _, t := range tasks {
				if err := t.Ack(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		for _, t := range tasks {
			l.acked(t, err)
		}
	case 1:
		for _, t := range tasks {
			l.ok(t.Release(ctx, rand.N(10*time.Millisecond)))
		}
	case 2:
		for _, t := range tasks {
			l.ok(t.Bury(ctx, errors.New("oops")))
		}
	default:
		for _, t := range tasks {
			l.acked(t, t.Ack(ctx))
		}
	}
}

// acked notes that a task was acked, or may have been.
func (l *locker) acked(t *task.Task[int], err error) {
	fine := l.ok(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if fine {
		l.done[t.Payload]++
	} else if !errors.Is(err, task.ErrLeaseLost) {
		l.unknown++
	}
}
