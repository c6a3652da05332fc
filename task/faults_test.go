package task

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task/memory"
)

// bubble runs f with a queue in memory, in virtual time.
func bubble(t *testing.T, o *Options[int], f func(ctx context.Context, q *Queue[int])) {
	bubbleIn(t, new(memory.Store), o, f)
}

func bubbleIn(
	t *testing.T, s Store, o *Options[int], f func(ctx context.Context, q *Queue[int]),
) {
	synctest.Test(t, func(t *testing.T) {
		q, err := Open(t.Context(), s, "q", o)
		require.NoError(t, err)
		defer func() { require.NoError(t, q.Close(t.Context())) }()
		f(t.Context(), q)
	})
}

func fill(t *testing.T, q *Queue[int], key string, n int, o PutOptions) {
	for i := range n {
		_, err := q.Put(t.Context(), key, i, o)
		require.NoError(t, err)
	}
}

// A hook that panics ends its call with an error that names it, and harms no other call.
func TestHooksThatPanic(t *testing.T) {
	oops := errors.New("oops")
	panics := true
	bubble(t, &Options[int]{
		Capacity: 2, WhenFull: fairq.EvictHeaviest, OnEvict: func(*Task[int]) { panic(oops) },
		Weight: func(string) int {
			if panics {
				panic(oops)
			}
			return 1
		},
	}, func(ctx context.Context, q *Queue[int]) {
		_, err := q.Put(ctx, "a", 1, PutOptions{})
		require.ErrorIs(t, err, ErrPanic)
		require.ErrorIs(t, err, oops)
		panics = false
		fill(t, q, "a", 2, PutOptions{})
		id, err := q.Put(ctx, "b", 1, PutOptions{}) // evicts an a
		var p *PanicError
		require.ErrorAs(t, err, &p)
		require.Equal(t, "Options.OnEvict", p.Func)
		require.NoError(t, q.Delete(ctx, id))
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, s.Len())
	})
}

// Functions that panic, or end the goroutine that calls them, keep no other one from being called,
// and lose nothing.
func TestHooksAmongOthers(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic": func() { panic("oops") }, "exit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			evicted, expired := 0, 0
			bubble(t, &Options[int]{
				Capacity: 3, WhenFull: fairq.EvictOldest,
				OnEvict:  func(*Task[int]) { evicted++; fail() },
				OnExpire: func(*Task[int]) { expired++; fail() },
			}, func(ctx context.Context, q *Queue[int]) {
				away := func(f func()) {
					done := make(chan struct{})
					go func() {
						defer close(done)
						f()
					}()
					<-done
					synctest.Wait()
				}
				put := func(n int) {
					batch := slices.Repeat([]Entry[int]{{Key: "a", Options: PutOptions{TTL: time.Hour}}}, n)
					away(func() { _, _ = q.PutBatch(ctx, batch) })
				}
				var called atomic.Int32
				watches := make([]*Watch[int], 6)
				for i := range watches {
					watches[i] = q.NewConsumer(Filter{}).Watch(func() { called.Add(1); fail() })
					_, armed, err := watches[i].Take(ctx, new(Task[int]))
					require.NoError(t, err)
					require.True(t, armed)
				}
				away(func() { _, _ = q.Put(ctx, "a", 1, PutOptions{TTL: time.Hour}) })
				require.EqualValues(t, 1, called.Load()) // the first that waits
				for _, w := range watches {
					w.Disarm()
				}
				put(5)
				require.Equal(t, 3, evicted)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				require.Equal(t, 3, expired)
				away(func() {
					defer func() { _ = recover() }()
					events := q.Events(ctx)
					put(1)
					for range events {
						fail()
					}
				})
				require.False(t, q.notifier.interest.Listens())
				require.NoError(t, q.Close(ctx))
			})
		})
	}
}

// hooked is a backend, not known to the package, with hooks around some calls. A Take that gets
// nothing is not hooked.
type hooked struct {
	driver.Store
	driver.Backend
	beforeLeave func() error
	beforeTake  func(consumer driver.Handle)
	afterTake   func(n int)
	beforePut   func()
	afterPut    func(error)
}

func (h *hooked) Open(
	ctx context.Context, name string, s driver.Settings, n driver.Notifier,
) (b driver.Backend, err error) {
	h.Backend, err = new(memory.Store).Open(ctx, name, s, encoding{n})
	return h, err
}

func (h *hooked) Leave(ctx context.Context, consumer driver.Handle, after time.Duration) error {
	if h.beforeLeave != nil {
		if err := h.beforeLeave(); err != nil {
			return err
		}
	}
	return h.Backend.Leave(ctx, consumer, after)
}

func (h *hooked) Take(ctx context.Context, by *driver.Taker, into []driver.Record) (int, error) {
	if h.beforeTake != nil {
		h.beforeTake(by.Handle)
	}
	n, err := h.Backend.Take(ctx, by, into)
	if h.afterTake != nil {
		h.afterTake(n)
	}
	return n, err
}

func (h *hooked) TakeOne(ctx context.Context, by *driver.Taker) (driver.Attempt, error) {
	return driver.TakeOne(ctx, h, by)
}

func (h *hooked) SettleAndTakeOne(
	ctx context.Context, lease driver.Lease, how driver.Settlement, by *driver.Taker,
) (State, driver.Attempt, error) {
	return driver.SettleAndTakeOne(ctx, h, lease, how, by)
}

func (h *hooked) PutOne(ctx context.Context, task driver.New) (ID, *driver.Record, error) {
	return driver.PutOne(ctx, h, task)
}

func (h *hooked) Put(
	ctx context.Context, tasks []driver.New, ids []ID,
) (int, []driver.Record, error) {
	if h.beforePut != nil {
		h.beforePut()
	}
	n, evicted, err := h.Backend.Put(ctx, tasks, ids)
	if h.afterPut != nil {
		h.afterPut(err)
	}
	return n, evicted, err
}

// encoding hides from a Queue that its store is in memory, so payloads are encoded.
type encoding struct{ driver.Notifier }

func (encoding) InMemory() reflect.Type { return reflect.TypeFor[[]byte]() }

func hookedBubble(
	t *testing.T, o *Options[int], f func(ctx context.Context, q *Queue[int], h *hooked),
) {
	h := new(hooked)
	bubbleIn(t, h, o, func(ctx context.Context, q *Queue[int]) { f(ctx, q, h) })
}

// A Close that fails can be repeated.
func TestCloseFails(t *testing.T) {
	hookedBubble(t, nil, func(ctx context.Context, q *Queue[int], h *hooked) {
		fill(t, q, "a", 1, PutOptions{})
		c := q.NewConsumer(Filter{})
		_, err := c.Take(ctx)
		require.NoError(t, err)
		down := errors.New("down")
		h.beforeLeave = func() error { return down }
		require.ErrorIs(t, c.Close(ctx), down)
		require.ErrorIs(t, q.Close(ctx), down)
		h.beforeLeave = nil
		require.NoError(t, q.Close(ctx))
		s, err := h.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, s.Ready)
	})
}

// A task that is taken while its consumer is being closed is handed back.
func TestCloseWhileTaking(t *testing.T) {
	hookedBubble(t, nil, func(ctx context.Context, q *Queue[int], h *hooked) {
		fill(t, q, "a", 1, PutOptions{})
		c := q.NewConsumer(Filter{})
		h.beforeTake = func(driver.Handle) { require.NoError(t, c.Close(ctx)) }
		_, err := c.Take(ctx)
		require.ErrorIs(t, err, ErrClosed)
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, s.Ready)
	})
}

// A task that is put after a take found none, and before the take begins to wait, is not missed.
func TestPutWhileLooking(t *testing.T) {
	hookedBubble(t, nil, func(ctx context.Context, q *Queue[int], h *hooked) {
		looks := 0
		h.afterTake = func(n int) {
			if looks++; looks == 2 { // the first is made before the taker gets into line
				require.Zero(t, n)
				fill(t, q, "a", 1, PutOptions{})
			}
		}
		_, err := q.Take(ctx)
		require.NoError(t, err)
	})
}

// Room that comes between a refusal and the wait for room is not missed.
func TestRoomWhileTrying(t *testing.T) {
	for _, o := range []Options[int]{{Capacity: 1}, {KeyCapacity: 1}} {
		hookedBubble(t, &o, func(ctx context.Context, q *Queue[int], h *hooked) {
			id, err := q.Put(ctx, "a", 0, PutOptions{})
			require.NoError(t, err)
			refused := 0
			h.afterPut = func(err error) {
				if err == nil {
					return
				}
				if refused++; refused == 2 {
					require.NoError(t, q.Delete(ctx, id))
				}
			}
			_, err = q.PutWait(ctx, "a", 0, PutOptions{})
			require.NoError(t, err)
		})
	}
}

// A taker does not miss a task that is put while another taker, which does not want it, looks.
func TestPutWhileAnotherLooks(t *testing.T) {
	hookedBubble(t, nil, func(ctx context.Context, q *Queue[int], h *hooked) {
		q.notifier.takers.oneAtATime = true
		kinds := make(chan string, 1)
		for _, f := range []string{"x", "y"} {
			go func() {
				if one, err := q.NewConsumer(Filter{Kinds: []string{f}}).Take(ctx); err == nil {
					kinds <- one.Kind
				}
			}()
			synctest.Wait()
		}
		looks := 0
		h.afterTake = func(int) {
			if looks++; looks == 1 {
				fill(t, q, "a", 1, PutOptions{Kind: "y"})
			}
		}
		q.notifier.Ready(0, "x") // for a task that is already taken
		require.Equal(t, "y", <-kinds)
	})
}

// A taker that is woken for a task, and does not want it any more when it looks, leaves it to
// others.
func TestFilterBeforeLooking(t *testing.T) {
	for _, kind := range []string{"a", "d"} { // another one, and none
		filterBeforeLooking(t, kind)
	}
}

func filterBeforeLooking(t *testing.T, kind string) {
	bubble(t, nil, func(ctx context.Context, q *Queue[int]) {
		fill(t, q, "k", 1, PutOptions{Kind: "a"})
		first, second := q.NewConsumer(Filter{Kinds: []string{"b"}}),
			q.NewConsumer(Filter{Kinds: []string{"b", "c"}})
		kinds := make(chan string, 2)
		for _, c := range []*Consumer[int]{first, second} {
			go func() {
				if one, err := c.Take(ctx); err == nil {
					kinds <- one.Kind
				}
			}()
			synctest.Wait()
		}
		fill(t, q, "k", 1, PutOptions{Kind: "b"})
		first.SetFilter(Filter{Kinds: []string{kind}})
		synctest.Wait()
		var taken []string
		for len(kinds) > 0 {
			taken = append(taken, <-kinds)
		}
		require.Contains(t, taken, "b",
			"the first has taken it before it got the filter, or leaves it to the second")
	})
}

// lockingContext is a context of somebody whose methods do more than they should.
type lockingContext struct {
	context.Context
	call func()
}

func (c lockingContext) Value(key any) any {
	c.call()
	return c.Context.Value(key)
}

// Methods of a lease's parent context may use the queue.
func TestContextOfOthers(t *testing.T) {
	bubble(t, nil, func(ctx context.Context, q *Queue[int]) {
		fill(t, q, "a", 1, PutOptions{})
		one, err := q.Take(ctx)
		require.NoError(t, err)
		parent := lockingContext{ctx, func() {
			if _, err := q.Stats(ctx); !errors.Is(err, ErrClosed) { // it may be called at the very end
				require.NoError(t, err)
			}
		}}
		lease, cancel := one.Context(parent)
		defer cancel()
		require.NoError(t, one.Ack(ctx))
		<-lease.Done()
		require.ErrorIs(t, context.Cause(lease), ErrLeaseLost)
	})
}

func TestNewError(t *testing.T) {
	require.Nil(t, newError(nil))
	inner := &Error{Code: 404, Message: "not found"}
	require.Equal(t, &Error{Code: 404, Message: "fetching: not found"},
		newError(fmt.Errorf("fetching: %w", inner)))
	require.Equal(t, inner, newError(inner))
	require.NotSame(t, inner, newError(inner))
	require.NotNil(t, newError((*Error)(nil)))
}
