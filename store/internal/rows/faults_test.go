package rows_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

var errBroken = errors.New("the database is broken")

// If one call of a shared transaction fails in the database, the other calls succeed. If the
// transaction fails, all its calls fail.
func TestSharedTransaction(t *testing.T) {
	for name, c := range map[string]struct {
		op          string
		first, last int // which calls of op fail
		err         error
		failed      int // calls
		begun       int // transactions
	}{
		"Call": {"Tasks.Put", 2, 2, errBroken, 1, 2},
		// The second call fails first, then the first one, then the third one.
		"Calls":   {"Tasks.Put", 2, 4, errBroken, 3, 3},
		"Enter":   {"Enter", 1, 1, errBroken, 3, 1},
		"Begin":   {"Begin", 1, 1, errBroken, 3, 1},
		"Commit":  {"Commit", 1, 1, errBroken, 3, 1},
		"Again":   {"Commit", 1, 9, rowstest.ErrAgain, 0, 10},
		"TooLong": {"Tasks.Put", 1, 1000, rowstest.ErrAgain, 3, 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &slow{rowstest.NewDB(time.Now), make(chan struct{}, 1)}
				db.gate <- struct{}{}
				q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
					task.Options[string]{})
				<-db.gate
				go func() { _, _, _ = q.TryTake(t.Context()) }() // it leads
				synctest.Wait()
				errs := make(chan error, 3)
				for i := range 3 {
					go func() {
						_, err := q.Put(t.Context(), "a", strconv.Itoa(i), task.PutOptions{})
						errs <- err
					}()
				}
				synctest.Wait()
				calls, leads := map[string]int{}, true
				db.Fail(func(op string) error {
					if leads { // alone
						leads = op != "Commit"
						return nil
					}
					if calls[op]++; op == c.op && c.first <= calls[op] && calls[op] <= c.last {
						return c.err
					}
					return nil
				})
				db.gate <- struct{}{}
				failed := 0
				for range 3 {
					if err := <-errs; err != nil {
						require.ErrorIs(t, err, c.err)
						failed++
					}
				}
				synctest.Wait()
				db.Fail(nil)
				require.Equal(t, c.failed, failed)
				require.Equal(t, c.begun, calls["Begin"])
				require.Len(t, q.names(), 3-failed)
				stats, err := q.Stats(t.Context())
				require.NoError(t, err)
				require.EqualValues(t, 3-failed, stats.Puts)
			})
		})
	}
}

// A transaction that takes too long is given up.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q := openQueue(t,
			rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Hour, Timeout: time.Second}),
			task.Options[string]{})
		tx, err := db.Reopen().Begin(t.Context())
		require.NoError(t, err)
		begun := time.Now()
		_, err = q.Put(t.Context(), "a", "a", task.PutOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begun))
		tx.Rollback()
		q.put("a")
		require.Equal(t, []string{"a ready"}, q.names())
	})
}

// chaos is a few queues that many use at once.
type chaos struct {
	*testing.T
	queues [2]*task.Queue[int]

	mu      sync.Mutex // protects what follows
	did     [2]task.Stats
	put     map[int]bool              // payloads; false if that has failed
	holds   map[int]int               // by payload: how often it was taken and not handed back
	gone    map[int]bool              // payloads that were acked
	events  map[task.EventType]uint64 // that readers have got
	refused map[bool]int              // failed calls, by whether they were cancelled
	unknown [2]task.Stats             // Puts and Takes that returned ErrUnknown
}

// While calls of the database fail and callers cancel, a call without an error has taken effect
// once, and a call with an error has not. After an ErrUnknown the next call finds out.
func TestFaults(t *testing.T) {
	for name, shared := range map[string]bool{"Exclusive": false, "Shared": true} {
		t.Run(name, func(t *testing.T) {
			refused := map[bool]int{}
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					c := newChaos(t, shared, seed)
					c.refused = refused
					c.run(seed)
				})
			}
			require.NotZero(t, refused[false])
			require.NotZero(t, refused[true])
		})
	}
}

func newChaos(t *testing.T, shared bool, seed uint64) *chaos {
	c := &chaos{
		T: t, put: map[int]bool{}, holds: map[int]int{}, gone: map[int]bool{},
		events: map[task.EventType]uint64{},
	}
	db := rowstest.NewDB(time.Now)
	db.Shared = shared
	var broken atomic.Bool
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 0))
	db.Fail(func(string) error {
		mu.Lock()
		defer mu.Unlock()
		switch n := rnd.IntN(400); {
		case !broken.Load() || n > 4:
			return nil
		case n > 0:
			return rowstest.ErrAgain
		}
		return errBroken
	})
	s := rows.New(db, rows.Options{MaxPayload: 100, History: time.Hour, Poll: time.Second})
	for i := range c.queues {
		o := &task.Options[int]{}
		if i == 1 && seed%2 == 0 { // its transactions need it for themselves
			o.MaxInFlightPerKey = 3
		}
		q, err := task.Open(t.Context(), s, "q"+strconv.Itoa(i), o)
		require.NoError(t, err)
		c.queues[i] = q
		events := q.Events(t.Context())
		go func() {
			for e := range events {
				c.mu.Lock()
				c.events[e.Type]++
				c.mu.Unlock()
			}
		}()
		t.Cleanup(func() {
			broken.Store(false)
			require.NoError(t, q.Close(context.Background()))
		})
	}
	broken.Store(true)
	t.Cleanup(func() {
		broken.Store(false)
		c.checkHistory(s)
	})
	return c
}

func (c *chaos) run(seed uint64) {
	synctest.Wait()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() { c.work(i, rand.New(rand.NewPCG(seed, uint64(i)+1))) })
	}
	all.Wait()
	time.Sleep(5 * time.Minute) // renewed leases stay
	c.check()
}

// work makes the calls of one goroutine.
func (c *chaos) work(number int, rnd *rand.Rand) {
	which := number % 2
	q := c.queues[which]
	consumer := q.NewConsumer(task.Filter{})
	var held []*task.Task[int]
	for i := range 40 {
		ctx, cancel := context.WithCancel(c.Context())
		if rnd.IntN(4) == 0 {
			go func() {
				runtime.Gosched()
				cancel()
			}()
		}
		payload, op := number*1000+i, rnd.IntN(10)
		var taken *task.Task[int]
		if op > 6 && len(held) > 0 {
			taken, held = held[0], held[1:]
		}
		var err error
		switch {
		case op < 4:
			_, err = q.Put(ctx, strconv.Itoa(rnd.IntN(3)), payload, task.PutOptions{})
			c.note(err, func() {
				c.did[which].Puts++
				c.put[payload] = true
			})
			if errors.Is(err, task.ErrUnknown) {
				c.note(nil, func() {
					c.unknown[which].Puts++
					if _, known := c.put[payload]; !known { // the task may exist
						c.put[payload] = false
					}
				})
			}
		case op < 7:
			var ok bool
			if taken, ok, err = consumer.TryTake(ctx); ok {
				held = append(held, taken)
				c.note(err, func() {
					c.did[which].Takes++
					c.holds[taken.Payload]++
					c.put[taken.Payload] = true
				})
			} else if errors.Is(err, task.ErrUnknown) {
				c.note(nil, func() { c.unknown[which].Takes++ })
			}
		case taken != nil && op == 7:
			err = known(taken.Return, ctx)
			c.note(err, func() {
				c.did[which].Releases++
				c.holds[taken.Payload]--
			})
		case taken != nil:
			err = known(taken.Ack, ctx)
			c.note(err, func() {
				c.did[which].Acks++
				c.holds[taken.Payload]--
				c.gone[taken.Payload] = true
			})
		}
		if err != nil && op > 6 {
			held = append(held, taken)
		}
		if err != nil && !errors.Is(err, errBroken) && !errors.Is(err, rowstest.ErrAgain) &&
			!errors.Is(err, context.Canceled) {
			c.Errorf("error %v", err)
		}
		cancel()
	}
}

// known settles a task. If the outcome is unknown, it settles again to find out.
func known(settle func(context.Context) error, ctx context.Context) error {
	err := settle(ctx)
	for unknown := errors.Is(err, task.ErrUnknown); unknown && err != nil; {
		if err = settle(context.WithoutCancel(ctx)); errors.Is(err, task.ErrLeaseLost) {
			return nil
		}
	}
	return err
}

func (c *chaos) note(err error, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		done()
	} else {
		c.refused[errors.Is(err, context.Canceled)]++
	}
}

func (c *chaos) check() {
	there := map[int]bool{}
	sum := map[task.EventType]uint64{}
	for i, q := range c.queues {
		var list []*task.Task[int]
		for err := errBroken; err != nil; {
			list, err = q.List(c.Context(), task.ListOptions{Limit: 10000})
		}
		for _, t := range list {
			require.False(c, there[t.Payload], "task %d is there twice", t.Payload)
			there[t.Payload] = true
			_, put := c.put[t.Payload]
			require.True(c, put, "the Put of task %d has failed", t.Payload)
			require.Equal(c, c.holds[t.Payload] == 1, t.Info().State == task.Taken,
				"task %d is %v, and held %d times", t.Payload, t.Info().State, c.holds[t.Payload])
		}
		var s task.Stats
		for err := errBroken; err != nil; {
			s, err = q.Stats(c.Context())
		}
		// These have taken effect, and their callers got ErrUnknown.
		puts, takes := s.Puts-c.did[i].Puts, s.Takes-c.did[i].Takes
		require.LessOrEqual(c, puts, c.unknown[i].Puts)
		require.LessOrEqual(c, takes, c.unknown[i].Takes)
		got := task.Stats{
			Puts: s.Puts - puts, Takes: s.Takes - takes, Acks: s.Acks,
			Releases: s.Releases - takes, Losses: s.Losses,
		}
		require.Equal(c, c.did[i], got)
		sum[task.EventPut] += s.Puts
		sum[task.EventTake] += s.Takes
		sum[task.EventAck] += s.Acks
		sum[task.EventRelease] += s.Releases
	}
	for payload, put := range c.put {
		require.True(c, !put || c.gone[payload] != there[payload], "task %d", payload)
	}
	require.Equal(c, sum, c.events)
}

// checkHistory checks that the history has each acked task once, and no other.
func (c *chaos) checkHistory(s *rows.Store) {
	ended := map[string]int{}
	for i := range c.queues {
		list, err := s.History(context.Background(), "q"+strconv.Itoa(i), 0, 1000)
		require.NoError(c, err)
		for _, e := range list {
			ended[string(e.Payload)]++
		}
	}
	require.Len(c, ended, len(c.gone))
	for payload := range c.gone {
		require.Equal(c, 1, ended[strconv.Itoa(payload)])
	}
}
