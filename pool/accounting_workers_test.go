package pool_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestNewWorkersAccounting is TestAccounting for a FairQueue: each item that was pushed is handled
// once, or is left to somebody else.
func TestNewWorkersAccounting(t *testing.T) {
	forSeeds(t, func(t *testing.T, seed uint64) {
		d := newDrain(t, seed)
		d.run()
		if !t.Failed() {
			d.balance()
		}
	})
}

// errand is an item. It is protected by drain.mu.
type errand struct {
	id, key int
	how, by string
	lasts   time.Duration

	pushed  bool // the push has returned nil
	refused bool
	handled int
	failed  bool
	letters int
	bounced int // by the sink
	others  int // it was evicted, removed, drained, or popped by a rival
	left    int // in the queue in the end
}

// drain drives Workers, and knows what becomes of each item.
type drain struct {
	*testing.T
	rand    *rand.Rand
	ctx     context.Context
	stop    context.CancelFunc
	options pool.Options[*errand]
	queue   *fairq.FairQueue[int, *errand]
	w       *pool.Workers
	all     sync.WaitGroup

	mu        sync.Mutex // protects all that follows
	errands   []*errand
	running   int
	nested    int
	most      int // 0 means that it is being changed
	rivals    int
	forced    bool
	abandoned bool
	counts    pool.Stats // by Observer, and by handlers
}

func newDrain(t *testing.T, seed uint64) *drain {
	d := &drain{T: t, rand: rand.New(rand.NewPCG(seed, 31))}
	d.ctx, d.stop = context.WithCancel(t.Context())
	r, o := d.rand, &d.options
	o.Logger, o.AbandonAfter = quiet, time.Duration(1+r.IntN(500))*time.Millisecond
	add := func(n *uint64) {
		d.mu.Lock()
		defer d.mu.Unlock()
		*n++
	}
	type tk = *task.Task[*errand]
	o.Observer = pool.Observer[*errand]{
		Started:   func(context.Context, string, tk, time.Duration) { add(&d.counts.Started) },
		Succeeded: func(context.Context, string, tk, time.Duration) { add(&d.counts.Succeeded) },
		Failed:    func(context.Context, string, tk, time.Duration, error) { add(&d.counts.Failed) },
		DeadLetter: func(_ context.Context, letter *pool.DeadLetter[*errand], err error) {
			if err == nil {
				add(&d.counts.DeadLetters)
			}
		},
	}
	if r.IntN(3) > 0 {
		o.DeadLetters = d.sink
	}
	if r.IntN(2) == 0 {
		o.Workers = 1 + r.IntN(4)
		d.most = o.Workers
	} else {
		o.Scale = pool.Scale{Max: 1 + r.IntN(4), IdleTimeout: time.Duration(1+r.IntN(200)) * time.Millisecond}
		o.Scale.Min = r.IntN(o.Scale.Max + 1)
		d.most = o.Scale.Max
	}
	if r.IntN(3) == 0 {
		o.Policy.Timeout = time.Duration(5+r.IntN(50)) * time.Millisecond
	}
	q := &fairq.Options[int, *errand]{Capacity: []int{fairq.Unbounded, 1, 2 + r.IntN(10)}[r.IntN(3)], TrackWait: r.IntN(4) == 0, ShareTime: r.IntN(3) == 0}
	if q.Capacity > 1 && r.IntN(3) == 0 {
		q.KeyCapacity = 1 + r.IntN(q.Capacity)
	}
	if q.Capacity > 0 && r.IntN(3) == 0 {
		q.WhenFull, q.OnEvict = fairq.EvictHeaviest, func(_ int, e *errand) { d.others(e) }
	}
	d.queue = fairq.New(func(e *errand) int { return e.key }, q)
	d.w = pool.NewWorkers(d.queue, d.handle, o)
	return d
}

func (d *drain) others(errands ...*errand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range errands {
		e.others++
	}
}

func (d *drain) sink(_ context.Context, letter *pool.DeadLetter[*errand]) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := letter.Payload
	switch e.id % 4 {
	case 0:
		e.bounced++
		return errSink
	case 1:
		e.bounced++
		panic(errSink)
	}
	e.letters++
	return nil
}

// handle is the handler.
func (d *drain) handle(ctx context.Context, e *errand) error {
	d.mu.Lock()
	e.handled++
	d.running++
	if d.most > 0 && d.running > d.most {
		d.Errorf("%d handlers run, where %d may", d.running, d.most)
	}
	d.mu.Unlock()
	failed := true
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		e.failed = failed
		d.running--
	}()
	switch e.by {
	case "sleep":
		time.Sleep(e.lasts)
	case "ctx":
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-after(e.lasts):
		}
	case "yield":
		d.enter(-1)
		pool.Yield(ctx, func() { time.Sleep(e.lasts) })
		d.enter(1)
	}
	switch e.how {
	case "fail":
		return errChore
	case "panic":
		d.enter(0)
		panic(errChore)
	case "exit":
		runtime.Goexit()
	case "broken":
		return tellsNothing()
	}
	failed = false
	return nil
}

// enter says that a handler is in Yield, or is not any more, or, with 0, that it panics.
func (d *drain) enter(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running += n
	d.nested -= n
	if n == 0 {
		d.counts.Panics++
	}
	if n > 0 && d.most > 0 && d.running > d.most && !d.forced {
		d.Errorf("%d handlers run after one came back, where %d may", d.running, d.most)
	}
}

func (d *drain) newErrand(r *rand.Rand) *errand {
	e := &errand{
		key: r.IntN(3), how: []string{"done", "done", "done", "fail", "panic", "exit", "broken"}[r.IntN(7)],
		by: []string{"none", "sleep", "ctx", "yield"}[r.IntN(4)], lasts: time.Duration(r.IntN(50)) * time.Millisecond,
	}
	if r.IntN(20) == 0 {
		e.lasts *= 20
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e.id = len(d.errands)
	d.errands = append(d.errands, e)
	return e
}

func (d *drain) pushed(e *errand, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.pushed, e.refused = err == nil, err != nil
	if err != nil && !errors.Is(err, fairq.ErrFull) && !errors.Is(err, fairq.ErrClosed) && !errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, context.Canceled) {
		d.Errorf("a strange error: %v", err)
	}
}

// produce pushes items, in all ways that there are.
func (d *drain) produce(r *rand.Rand) {
	for range 5 + r.IntN(30) {
		e := d.newErrand(r)
		switch r.IntN(5) {
		case 0:
			d.pushed(e, d.queue.Push(e))
		case 1:
			ticket, err := d.queue.Add(e)
			d.pushed(e, err)
			if _, ok := d.queue.Remove(ticket); ok {
				d.others(e)
			}
		case 2:
			batch := []*errand{e, d.newErrand(r), d.newErrand(r)}
			n, err := d.queue.PushBatch(batch)
			for i, e := range batch {
				if i < n {
					d.pushed(e, nil)
				} else {
					d.pushed(e, err)
				}
			}
		default:
			ctx, cancel := context.WithTimeout(d.ctx, time.Duration(r.IntN(300))*time.Millisecond)
			d.pushed(e, d.queue.PushWait(ctx, e))
			cancel()
		}
		if r.IntN(2) == 0 {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
	}
}

func (d *drain) rival() {
	ctx, cancel := context.WithTimeout(d.ctx, time.Duration(d.rand.IntN(100))*time.Millisecond)
	d.mu.Lock()
	d.rivals++
	d.mu.Unlock()
	d.all.Go(func() {
		defer cancel()
		e, err := d.queue.PopWait(ctx)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.rivals--
		if err == nil {
			e.others++
		}
	})
}

func (d *drain) run() {
	var producers sync.WaitGroup
	for i := range 1 + d.rand.IntN(4) {
		r := rand.New(rand.NewPCG(d.rand.Uint64(), uint64(i)))
		producers.Go(func() { d.produce(r) })
	}
	closes := d.rand.IntN(3) == 0
	for range 5 + d.rand.IntN(30) {
		d.interfere()
		if d.rand.IntN(2) == 0 {
			time.Sleep(time.Duration(d.rand.IntN(40)) * time.Millisecond)
		}
		synctest.Wait()
		d.check()
		if d.Failed() {
			break
		}
	}
	if d.rand.IntN(2) == 0 { // until all is done
		producers.Wait()
		d.w.Resume()
		if closes {
			d.queue.Close()
		}
		d.all.Wait()
		require.NoError(d, d.w.Wait(d.ctx))
		require.Zero(d, d.queue.Len())
		d.mu.Lock()
		require.Zero(d, d.running+d.nested)
		d.mu.Unlock()
	}
	d.shutdown()
	d.stop()
	if closes {
		d.queue.Close()
	}
	producers.Wait()
	d.all.Wait()
}

func (d *drain) interfere() {
	r := d.rand
	switch r.IntN(12) {
	case 0:
		d.w.Pause()
	case 1, 2:
		d.w.Resume()
	case 3:
		most := r.IntN(5)
		d.mu.Lock()
		d.most = 0
		d.mu.Unlock()
		require.NoError(d, d.w.SetWorkers(r.IntN(most+1), most))
		synctest.Wait()
		d.mu.Lock()
		if d.w.Stats().Started == d.counts.Succeeded+d.counts.Failed+uint64(d.running+d.nested) {
			d.most = most
			if most == 0 {
				d.most = max(d.options.Workers, d.options.Scale.Max)
			}
		}
		d.mu.Unlock()
	case 4, 5:
		d.rival()
	case 6:
		if r.IntN(4) == 0 {
			d.others(d.queue.Drain()...)
		}
	case 7:
		if r.IntN(4) == 0 {
			d.others(d.queue.RemoveKey(r.IntN(3))...)
		}
	}
}

// check runs when nothing moves: nobody waits for what is there.
func (d *drain) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, q := d.w.Stats(), d.queue.Stats()
	if d.abandoned || d.forced || d.Failed() {
		return
	}
	require.Equal(d, d.running, s.Running, "%+v", s)
	require.Equal(d, d.nested, s.Nested, "%+v", s)
	loaded := q.Capacity == fairq.MaxLen || float64(q.Len+q.WaitingPush) >= math.Ceil(0.75*float64(q.Capacity))
	free := s.Idle > 0 || s.Workers == 0 || s.Workers < s.Min || s.Workers < s.Max && loaded
	takes := !s.Paused && !s.Closed || s.Closed && s.Nested > 0
	require.False(d, q.Len > 0 && takes && free, "nobody takes an item: %+v, %+v", s, q)
	require.False(d, q.Len > 0 && d.rivals > 0, "a rival waits for what is there")
}

// shutdown shuts down, once or several times at once.
func (d *drain) shutdown() {
	var all sync.WaitGroup
	for i := range 1 + d.rand.IntN(3) {
		limited := i == 0 || d.rand.IntN(2) == 0
		limit, pause := time.Duration(d.rand.IntN(200))*time.Millisecond, time.Duration(d.rand.IntN(50))*time.Millisecond
		all.Go(func() {
			time.Sleep(pause)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if limited {
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			d.mu.Lock()
			d.forced = d.forced || limited
			d.mu.Unlock()
			err := d.w.Shutdown(ctx)
			d.mu.Lock()
			defer d.mu.Unlock()
			if errors.As(err, new(*pool.AbandonedError)) {
				d.abandoned = true
			} else {
				require.Zero(d, d.running+d.nested, "handlers run after Shutdown")
			}
			if err != nil {
				require.ErrorIs(d, err, context.DeadlineExceeded)
			}
		})
	}
	all.Wait()
	require.NoError(d, d.w.Shutdown(context.Background()))
}

// balance accounts for all items, when all is over.
func (d *drain) balance() {
	for { // those who waited for room have gone, so once would do
		rest := d.queue.Drain()
		if len(rest) == 0 {
			break
		}
		for _, e := range rest {
			e.left++
		}
	}
	handled, letters, failed := 0, 0, 0
	for _, e := range d.errands {
		handled += e.handled
		letters += e.letters
		sent := e.letters + e.bounced
		if e.failed {
			failed++
		}
		places := e.handled + e.others + e.left
		switch {
		case e.pushed == e.refused:
			d.Errorf("not pushed at all: %+v", e)
		case e.pushed && places != 1, e.refused && places != 0:
			d.Errorf("handled or left to others %d times: %+v", places, e)
		case d.options.DeadLetters == nil && sent != 0, d.options.DeadLetters != nil && e.failed != (sent == 1) || sent > 1:
			d.Errorf("%d letters: %+v", sent, e)
		}
	}
	s, o := d.w.Stats(), &d.counts
	require.Equal(d, []uint64{o.Started, o.Succeeded, o.Failed, o.Panics, uint64(letters)}, []uint64{s.Started, s.Succeeded, s.Failed, s.Panics, s.DeadLetters})
	require.Equal(d, []int{handled, failed}, []int{int(s.Started), int(s.Failed)})
	require.Zero(d, s.Workers+s.Idle+s.Nested+slices.Max([]int{d.running, d.nested}))
	require.Equal(d, s.Started, s.Succeeded+s.Failed)
}
