package pool_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// testClass is a class of the pool under test, with its queue.
type testClass struct {
	name    string
	queue   *task.Queue[*chore]
	store   task.Store // nil if the queue is the pool's own
	slow    *database  // it, if its calls are transactions, else nil
	options task.Options[*chore]
	rivals  int // that wait in Take; protected by ledger.mu, as is held
	held    int // by rivals
	closed  bool
	rest    []*task.Task[*chore] // in the end
	stories map[task.ID]*story   // protected by ledger.mu
}

// story is what events tell about a task.
type story struct {
	put  task.Info
	what []task.EventType
}

// open opens the queues and the pool.
func (l *ledger) open() {
	r, o := l.rand, &l.options
	form := r.IntN(3) // New, Func, Func with classes
	if l.slow {
		form = 0
	}
	if form > 0 && r.IntN(2) == 0 {
		o.Queue.WhenFull = fairq.WhenFull(r.IntN(4))
	}
	if o.DeadLetters == nil {
		o.Queue.WhenFull = min(o.Queue.WhenFull, fairq.RejectOverShare)
	}
	if form > 0 && (o.Queue.WhenFull > fairq.Reject || r.IntN(2) == 0) {
		o.Queue.Capacity = 2 + r.IntN(10)
	}
	if form > 0 && r.IntN(3) == 0 {
		o.Queue.MaxInFlightPerKey = 1 + r.IntN(2)
	}
	own := func(name string) *testClass {
		return &testClass{name: name, options: task.Options[*chore]{
			MaxInFlightPerKey: o.Queue.MaxInFlightPerKey,
		}}
	}
	switch form {
	case 0:
		l.classes = []*testClass{l.openLine("")}
		l.p = pool.New(l.classes[0].queue, l.handle, o)
	case 1:
		l.classes = []*testClass{own("")}
	case 2:
		for i := range 1 + r.IntN(3) {
			name := string(rune('a' + i))
			c := pool.Class[*chore]{Name: name, Weight: r.IntN(4)}
			n := own(name)
			if i > 0 && r.IntN(3) == 0 {
				n = l.openLine(name)
				c.Queue = n.queue
			}
			l.classes = append(l.classes, n)
			o.Classes = append(o.Classes, c)
		}
	}
	if l.p == nil {
		l.p = pool.Func(l.handle, o)
	}
	for _, n := range l.classes {
		if n.store == nil {
			n.queue = l.p.Queue(n.name)
		}
		l.listen(n)
	}
}

// openLine opens a queue of the caller's.
func (l *ledger) openLine(name string) *testClass {
	r := l.rand
	n := &testClass{name: name, store: new(memory.Store)}
	if l.slow || r.IntN(3) == 0 {
		n.slow = l.openSlow()
		n.store = n.slow
		n.options.Codec = l
	}
	if r.IntN(2) == 0 {
		n.options.Capacity = 2 + r.IntN(10)
		if r.IntN(3) == 0 {
			n.options.WhenFull, n.options.OnEvict = fairq.EvictHeaviest, func(*task.Task[*chore]) {}
		}
	}
	if r.IntN(3) == 0 {
		n.options.MaxInFlightPerKey = 1 + r.IntN(2)
	}
	n.options.KeepPlace = r.IntN(3) == 0
	q, err := task.Open(l.ctx, n.store, "q", &n.options)
	require.NoError(l, err)
	n.queue = q
	return n
}

// openSlow makes a store whose calls take their time, or fail.
func (l *ledger) openSlow() *database {
	s := new(database)
	if l.slow {
		s.takes = time.Duration(1+l.rand.IntN(10)) * time.Millisecond
	}
	if l.rand.IntN(2) == 0 {
		r, often := rand.New(rand.NewPCG(l.rand.Uint64(), 23)), 2+l.rand.IntN(20)
		s.fails = func(string) bool { return r.IntN(often) == 0 }
	}
	return s
}

// fails reports whether calls of the store may fail. Then a task may never be settled, and its
// time may be over when look closes the queue.
func (n *testClass) fails() bool { return n.slow != nil && n.slow.fails != nil }

// Encode implements [task.Codec].
func (l *ledger) Encode(c *chore) ([]byte, error) {
	l.encoded.Store(c.id, c)
	return strconv.AppendInt(nil, int64(c.id), 10), nil
}

// Decode implements [task.Codec].
func (l *ledger) Decode(data []byte) (*chore, error) {
	id, err := strconv.Atoi(string(data))
	c, _ := l.encoded.Load(id)
	return c.(*chore), err
}

// quiet reports whether no transaction runs in any store, and no call waits because of an error.
func (l *ledger) quiet() bool {
	return !slices.ContainsFunc(l.classes,
		func(n *testClass) bool { return n.slow != nil && !n.slow.quiet() })
}

// listen writes down what happens to the tasks of a queue, until it is closed.
func (l *ledger) listen(n *testClass) {
	n.stories = map[task.ID]*story{}
	events := n.queue.Events(context.WithoutCancel(l.ctx))
	l.all.Go(func() {
		for e := range events {
			l.mu.Lock()
			s := n.stories[e.Task.ID]
			if s == nil {
				s = &story{put: e.Task}
				n.stories[e.Task.ID] = s
			}
			s.what = append(s.what, e.Type)
			l.mu.Unlock()
		}
	})
}

// look closes a queue of the caller's, so that no task is taken, and looks at its tasks.
func (l *ledger) look(n *testClass) {
	ctx := context.WithoutCancel(l.ctx)
	for here := 1; here > 0; { // a rival's call may be in the store, and its event would be missed
		time.Sleep(time.Millisecond)
		l.mu.Lock()
		here = n.rivals + n.held
		l.mu.Unlock()
	}
	synctest.Wait()
	require.NoError(l, n.queue.Close(ctx))
	q, err := task.Open(ctx, n.store, "q", &n.options)
	require.NoError(l, err)
	n.rest, err = q.List(ctx, task.ListOptions{Limit: math.MaxInt32})
	require.NoError(l, err)
	require.NoError(l, q.Close(ctx))
}

// rival takes a task from a queue of the caller's, that the pool drains.
func (l *ledger) rival(n *testClass, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 22))
	ctx, cancel := context.WithTimeout(l.ctx, time.Duration(r.IntN(300))*time.Millisecond)
	l.mu.Lock()
	n.rivals++
	l.mu.Unlock()
	l.all.Go(func() {
		defer cancel()
		consumer := n.queue.NewConsumer(task.Filter{})
		t, err := consumer.Take(ctx)
		l.mu.Lock()
		n.rivals--
		if err == nil {
			t.Payload.taken++
			t.Payload.interrupted = false
			n.held++
		}
		l.mu.Unlock()
		background := context.WithoutCancel(l.ctx)
		if err == nil {
			time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			if r.IntN(2) == 0 {
				if insist(func() error { return t.Ack(background) }) == nil {
					l.note(&t.Payload.acked)
				}
			} else {
				_ = insist(func() error {
					return t.Release(background, time.Duration(r.IntN(2)*20)*time.Millisecond)
				})
			}
			l.mu.Lock()
			n.held--
			l.mu.Unlock()
		} else if ctx.Err() == nil && !errors.Is(err, task.ErrClosed) && !errors.Is(err, errStore) {
			require.NoError(l, err)
		}
		if err := consumer.Close(background); err != nil {
			require.ErrorIs(l, err, task.ErrClosed)
		}
	})
}
