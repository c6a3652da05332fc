package rows_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// A large operation takes several transactions in a database that limits the writes of one.
func TestSteps(t *testing.T) {
	for name, o := range map[string]task.Options[string]{
		"Plain": {}, "Counts": {Capacity: 1000, KeyCapacity: 500},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, db := t.Context(), rowstest.NewDB(time.Now)
				db.MaxWrites = 60
				s := rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second, History: time.Hour})
				q := openQueue(t, s, o)
				var puts sync.WaitGroup
				for i := range 200 { // at the same time, so in few transactions
					puts.Go(func() {
						_, err := q.Put(ctx, "k"+strconv.Itoa(i%7), "p",
							task.PutOptions{UniqueKey: "u" + strconv.Itoa(i)})
						require.NoError(t, err)
					})
				}
				puts.Wait()
				c := q.NewConsumer(task.Filter{})
				take := func(n int) (all []*task.Task[string]) {
					for range n {
						a, ok, err := c.TryTake(ctx)
						require.NoError(t, err)
						require.True(t, ok)
						all = append(all, a)
					}
					return all
				}
				for _, a := range take(50) {
					require.NoError(t, a.Bury(ctx, nil))
				}
				n, err := q.Kick(ctx, task.ListOptions{Limit: 45})
				require.NoError(t, err)
				require.Equal(t, 45, n)
				take(70)
				require.NoError(t, c.Close(ctx))
				stats, err := q.Stats(ctx)
				require.NoError(t, err)
				require.Equal(t, []int{195, 0, 5}, []int{stats.Ready, stats.Taken, stats.Buried})

				for i := range 100 { // all due at once
					_, err := q.Put(ctx, "d", "p",
						task.PutOptions{TTL: time.Minute, UniqueKey: "d" + strconv.Itoa(i)})
					require.NoError(t, err)
				}
				time.Sleep(2 * time.Minute)
				n, err = q.Truncate(ctx)
				require.NoError(t, err)
				require.Equal(t, 200, n)
				require.NoError(t, q.Drop(ctx))
			})
		})
	}
}

// A transaction that conflicts with another one is tried again after a pause, longer each time.
func TestTriesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Pause = 10 * time.Millisecond
		q := openQueue(t, open(db), task.Options[string]{})
		var begun []time.Time
		db.Fail(func(op string) error {
			if op == "Begin" {
				begun = append(begun, time.Now())
			}
			if op == "Commit" && len(begun) < 8 {
				return rowstest.ErrAgain
			}
			return nil
		})
		q.put("a1")
		db.Fail(nil)
		require.Len(t, begun, 8)
		pause := db.Pause
		for i, at := range begun[1:] {
			waited := at.Sub(begun[i])
			require.GreaterOrEqual(t, waited, pause/2)
			require.LessOrEqual(t, waited, pause)
			pause = min(2*pause, 200*time.Millisecond)
		}
	})
}

// skewed is a database whose processes use their own clocks.
type skewed struct{ *rowstest.DB }

func (s skewed) Traits() rows.Traits {
	t := s.DB.Traits()
	t.Skew = time.Minute
	return t
}

// A process is not taken for dead, nor is its lease over, while its clock may just be late. For
// itself its lease ends on time.
func TestSkew(t *testing.T) {
	for _, o := range []task.Options[string]{
		{Grace: time.Second},
		{Grace: time.Second, TTR: time.Second},
		{Grace: 2 * time.Minute, TTR: time.Second},
	} {
		testSkew(t, o)
	}
}

func testSkew(t *testing.T, o task.Options[string]) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		in := rows.Options{MaxPayload: 100, Poll: time.Second}
		one := openQueue(t, rows.New(skewed{db}, in), o)
		other := openQueue(t, rows.New(skewed{db.Reopen()}, in), o)
		one.put("a1")
		a := one.take("a1")
		time.Sleep(o.TTR)
		if o.TTR > 0 {
			require.ErrorIs(t, a.Touch(t.Context(), 0), task.ErrLeaseLost)
			one.take("a1")
		}
		db.Kill()
		begun := time.Now()
		// The end of this delay makes other look for dead processes.
		_, err := other.Put(t.Context(), "b", "b1", task.PutOptions{Delay: 5 * time.Second, TTR: -1})
		require.NoError(t, err)
		for _, want := range []string{"b1", "a1"} {
			a, err := other.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, a.Payload)
		}
		require.Greater(t, time.Since(begun), time.Minute)
		require.Less(t, time.Since(begun), time.Minute+5*time.Second)
	})
}
