package admit

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/fairshare"
	"github.com/fairq/fairq/internal/share"
	"github.com/fairq/fairq/internal/waitlist"
)

// Errors re-exported from package fairq.
var (
	// ErrFull is returned when too many calls wait or, by TryAcquire, when no permit is free. The
	// error is a [*fairq.FullError].
	ErrFull = fairq.ErrFull

	// ErrKeyFull is returned when too many calls of the key wait or, by TryAcquire, when the key
	// holds MaxPerKey permits. It is also an ErrFull.
	ErrKeyFull = fairq.ErrKeyFull

	// ErrClosed is returned after Close.
	ErrClosed = fairq.ErrClosed

	// ErrWeight is returned when Options.Weight returns a weight that is out of range.
	ErrWeight = fairq.ErrWeight

	// ErrCost is returned when a number of units is out of range, or there is no Options.Rate.
	ErrCost = fairq.ErrCost
)

var seed = maphash.MakeSeed()

// MaxUnits is the most units that a permit can need.
const MaxUnits int64 = 1 << 40

// Options configure a [Limiter]. The zero value of each field is its default.
type Options[K comparable] struct {
	// Weight returns the weight of a key, 1 to [fairq.MaxWeight]; nil means 1 for each. Each
	// Acquire calls it, without the lock held, so calls may overlap. If it returns anything else,
	// Acquire fails with [ErrWeight].
	Weight func(K) int

	// MaxPerKey limits the permits of one key, even while others are free. 0 means no limit but
	// that of the Limiter.
	MaxPerKey int

	// MaxWaiting limits the calls of Acquire that wait; 0 means no limit. Keys share the places by
	// the rule of [fairq.RejectOverShare], so one flooding key leaves half of them to others.
	MaxWaiting int

	// MaxWaitingPerKey limits the waiting calls of one key; 0 means no limit.
	MaxWaitingPerKey int

	// Rate is the units a second that all keys may use together: see [Limiter.AcquireN]. 0 means
	// no units.
	Rate float64

	// Burst limits the unused units that are kept; 0 means the units of one second, at least one.
	Burst float64
}

// Validate returns an error that names the field, its value and the limit, if the options do not
// make sense. Programs whose options come from their users call it, because New panics.
func (o Options[K]) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"MaxPerKey", o.MaxPerKey},
		{"MaxWaiting", o.MaxWaiting},
		{"MaxWaitingPerKey", o.MaxWaitingPerKey},
	} {
		if f.value < 0 {
			return fmt.Errorf("admit: Options.%s is %d; the least is 0, which means no limit", f.name,
				f.value)
		}
	}
	switch {
	case !(o.Rate >= 0) || o.Rate > float64(MaxUnits):
		return fmt.Errorf("admit: Options.Rate is %v; the limits are 0 and MaxUnits, %d, a second",
			o.Rate, MaxUnits)
	case !(o.Burst >= 0) || o.Burst > float64(MaxUnits):
		return fmt.Errorf("admit: Options.Burst is %v; the limits are 0 and MaxUnits, %d", o.Burst,
			MaxUnits)
	case o.Burst > 0 && o.Rate == 0:
		return fmt.Errorf("admit: Options.Burst is %v and Options.Rate is 0, so nothing has units",
			o.Burst)
	}
	return nil
}

// Limiter has a number of permits, and shares them between keys. Its zero value is not usable;
// [New] makes one. All methods may be called at any time by any goroutine. Keys not equal to
// themselves, such as NaN, all count as the same key.
type Limiter[K comparable] struct {
	options Options[K]
	epoch   time.Time // times are counted from here
	hashes  bool      // hashing a key may panic, as with an interface: not under the lock

	// mu protects all fields below. Under it nothing is sent and no user code runs.
	//
	// Whenever mu is free: if a key that may get a permit waits, then all permits are held, or
	// there is a Rate and the timer runs. So no wake-up is lost.
	mu      sync.Mutex
	shares  fairshare.Shares[K, line[K]]
	limit   int
	counts  Stats
	arrived uint64 // number of calls that have waited
	free    waitlist.List[call[K]]

	budget budget

	// admitted is the time of the last admission from the line, by the clock of shares. interval
	// is the moving average of the time between two admissions; a new value has weight 1/8.
	admitted, interval time.Duration
}

// call is a call of Acquire. It waits in the line of its key, and its Permit points to it
// afterwards. Released calls are reused.
type call[K comparable] struct {
	limiter    *Limiter[K]
	key        *fairshare.Key[K, line[K]]
	generation uint64 // of the Permit; others are void
	units      int64  // that it needs
	charged    float64

	came   time.Duration
	number uint64 // in order of arrival
}

// line has the waiting calls of a key, first come, first served, and the key's counters.
type line[K comparable] struct {
	waitlist.List[call[K]]
	admitted, refused uint64
	used              float64 // in nanoseconds, or units
}

// head returns the number of the first call.
func (l *line[K]) head() uint64 {
	if c := l.First(); c != nil {
		return c.Data.number
	}
	return 0
}

// Permit is the right to go on until it is released. It may be copied.
type Permit[K comparable] struct {
	call       *waitlist.Waiter[call[K]]
	generation uint64
}

// New returns a Limiter with limit permits. nil options are the defaults. New panics if the limit
// is below 1 or the options do not make sense.
func New[K comparable](limit int, options *Options[K]) *Limiter[K] {
	var o Options[K]
	if options != nil {
		o = *options
	}
	if err := o.Validate(); err != nil {
		panic(err)
	}
	if err := checkLimit(limit); err != nil {
		panic(err)
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = math.MaxInt
	}
	if o.MaxWaitingPerKey == 0 {
		o.MaxWaitingPerKey = math.MaxInt
	}
	if o.Burst == 0 {
		o.Burst = max(1, o.Rate)
	}
	l := &Limiter[K]{options: o, epoch: time.Now(), limit: limit}
	switch reflect.TypeFor[K]().Kind() {
	case reflect.Interface, reflect.Struct, reflect.Array:
		l.hashes = true
	}
	l.shares.MaxHeld, l.shares.Units = o.MaxPerKey, o.Rate > 0
	l.budget = budget{rate: o.Rate, burst: o.Burst, level: o.Burst}
	return l
}

func checkLimit(limit int) error {
	if limit < 1 {
		return fmt.Errorf("admit: the limit is %d; the least is 1", limit)
	}
	return nil
}

// Acquire waits for a permit. With a Rate it needs one unit. It returns the error of ctx if ctx is
// done first, even before the call; a [*fairq.FullError] if too many calls wait already;
// [ErrClosed] or [ErrWeight].
func (l *Limiter[K]) Acquire(ctx context.Context, key K) (Permit[K], error) {
	return l.acquire(ctx, key, 1)
}

// AcquireN waits for a permit and n units of the budget. The Limiter needs a Rate, and n is from 1
// to [MaxUnits]. The first call in the line is admitted when a permit is free and the budget's
// level is above 0. It takes all its units, so the level may fall below 0. No call passes it: an
// expensive request waits no longer than a cheap one, and may need more than Burst.
//
// In any T seconds the admitted requests need at most Burst + Rate * T units, and the units of one
// more request. Units used beyond the declared ones come on top: see [Permit.ReleaseUsed].
//
// Keys then share units instead of time. A key is not charged for units that it takes while no
// call waits, as long as the level stays above 0.
func (l *Limiter[K]) AcquireN(ctx context.Context, key K, n int64) (Permit[K], error) {
	if err := l.checkUnits(n, 1); err != nil {
		return Permit[K]{}, err
	}
	return l.acquire(ctx, key, n)
}

func (l *Limiter[K]) checkUnits(n, least int64) error {
	if l.budget.rate == 0 {
		return fmt.Errorf("%w: it is %d, and there are no units without Options.Rate", ErrCost, n)
	}
	if n < least || n > MaxUnits {
		return fmt.Errorf("%w: it is %d; the limits are %d and MaxUnits, %d", ErrCost, n, least,
			MaxUnits)
	}
	return nil
}

// TryAcquire takes a permit, and with a Rate one unit, if one is free and no waiting call could
// have it. Otherwise it returns a [*fairq.FullError], [ErrClosed] or [ErrWeight].
func (l *Limiter[K]) TryAcquire(key K) (Permit[K], error) {
	weight, err := l.weigh(key)
	if err != nil {
		return Permit[K]{}, err
	}
	c, _, err := l.enter(key, weight, 1, false)
	if err != nil {
		return Permit[K]{}, err
	}
	return Permit[K]{c, c.Data.generation}, nil
}

func (l *Limiter[K]) weigh(key K) (int, error) {
	if l.options.Weight == nil {
		return 1, nil
	}
	w := l.options.Weight(key)
	if w < 1 || w > fairq.MaxWeight {
		return 0, fmt.Errorf("%w: it is %d for key %#v; the limits are 1 and %d", ErrWeight, w, key,
			fairq.MaxWeight)
	}
	return w, nil
}

func (l *Limiter[K]) acquire(ctx context.Context, key K, units int64) (Permit[K], error) {
	done := ctx.Done() // before the permit exists: a user's context may panic
	if done != nil {
		if err := ctx.Err(); err != nil {
			return Permit[K]{}, err
		}
	}
	weight := 1
	if l.options.Weight != nil {
		var err error
		if weight, err = l.weigh(key); err != nil {
			return Permit[K]{}, err
		}
	}
	c, waits, err := l.enter(key, weight, units, true)
	if err != nil {
		return Permit[K]{}, err
	}
	if waits && !c.Wait(done, l.withdraw) {
		return Permit[K]{}, ctx.Err()
	}
	return Permit[K]{c, c.Data.generation}, nil
}

// hash panics if a key cannot be hashed.
func hash[K comparable](key K) { maphash.Comparable(seed, key) }

// enter takes a permit if no waiting call could have it. Otherwise it puts the call into the line,
// if the caller wants to wait.
func (l *Limiter[K]) enter(key K, weight int, units int64,
	wait bool,
) (c *waitlist.Waiter[call[K]], waits bool, err error) {
	if l.hashes {
		hash(key)
	}
	l.mu.Lock()
	k := l.shares.Find(key)
	if l.counts.Held < l.limit && l.shares.Len() == 0 && l.shares.MayHold(k) && !l.counts.Closed &&
		l.hasUnitsLocked() {
		k = l.shares.Add(k, key, weight)
		c = l.newCallLocked(k, units)
		l.shares.Hold(k)
		l.holdLocked(c, 0)
		l.mu.Unlock()
		return c, false, nil
	}
	c, woken, err := l.waitLocked(k, key, weight, units, wait)
	l.mu.Unlock()
	woken.Wake()
	return c, true, err
}

// waitLocked puts a call into the line, or returns why not. k is the key's state, or nil. The
// level may have risen above 0 since enter has looked at it. So waitLocked looks at the clock
// again, admits the calls that may go on, and returns them, to be woken.
func (l *Limiter[K]) waitLocked(k *fairshare.Key[K, line[K]], key K, weight int, units int64,
	wait bool,
) (c *waitlist.Waiter[call[K]], woken waitlist.Woken[call[K]], err error) {
	if l.counts.Closed {
		return nil, woken, ErrClosed
	}
	if err := l.checkRoomLocked(k, weight, wait); err != nil {
		l.counts.Refused++
		if k != nil {
			k.Data.refused++
		}
		return nil, woken, err
	}
	now := l.refillLocked()
	k = l.shares.Add(k, key, weight)
	c = l.newCallLocked(k, units)
	c.Arm()
	l.arrived++
	c.Data.came, c.Data.number = now, l.arrived
	k.Data.Add(c)
	l.counts.Waiting++
	l.shares.Wait(k, k.Data.head(), now)
	return c, l.admitLocked(now), nil
}

// checkRoomLocked returns the error of a call that may not wait, or nil.
func (l *Limiter[K]) checkRoomLocked(k *fairshare.Key[K, line[K]], weight int, wait bool) error {
	if !wait {
		if !l.shares.MayHold(k) {
			return &fairq.FullError{Len: k.Held(), Limit: l.options.MaxPerKey, PerKey: true}
		}
		return &fairq.FullError{Len: l.counts.Held, Limit: min(l.limit, l.counts.Held)}
	}
	waiting, limit := 0, l.options.MaxWaitingPerKey
	if k != nil {
		waiting = k.Waiting()
	}
	free := l.options.MaxWaiting - l.counts.Waiting
	if l.options.MaxWaiting < math.MaxInt {
		limit = int(min(int64(limit), share.Limit(weight, free)))
	}
	if waiting >= limit {
		return &fairq.FullError{Len: waiting, Limit: limit, PerKey: true}
	}
	if free <= 0 {
		return &fairq.FullError{Len: l.counts.Waiting, Limit: l.options.MaxWaiting}
	}
	return nil
}

// newCallLocked returns a call, reused if one is free.
func (l *Limiter[K]) newCallLocked(
	k *fairshare.Key[K, line[K]], units int64,
) *waitlist.Waiter[call[K]] {
	c := l.free.Pop()
	if c == nil {
		c = &waitlist.Waiter[call[K]]{Data: call[K]{limiter: l}}
	}
	c.Data.key, c.Data.units = k, units
	return c
}

// freeLocked makes a call ready to be used again. Its Permit is void.
func (l *Limiter[K]) freeLocked(c *waitlist.Waiter[call[K]]) {
	c.Data.generation++
	if l.free.Len() < 16+l.counts.Held+l.counts.Waiting {
		l.free.Add(c)
	}
}

// holdLocked records that a call gets a permit.
func (l *Limiter[K]) holdLocked(c *waitlist.Waiter[call[K]], now time.Duration) {
	l.counts.Held++
	l.counts.Admitted++
	c.Data.key.Data.admitted++
	if l.budget.rate > 0 {
		l.takeLocked(c, now)
	}
}

// withdraw takes a call whose context is done out of the line. It returns false if another
// goroutine gave it a permit at the same moment: the hand-over wins.
func (l *Limiter[K]) withdraw(c *waitlist.Waiter[call[K]]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := c.Data.key
	if !k.Data.Remove(c) {
		return false
	}
	l.counts.Waiting--
	l.shares.Leave(k, k.Data.head(), time.Since(l.epoch))
	l.freeLocked(c)
	return true
}

// admitLocked gives free permits to waiting calls, and returns the calls to wake.
func (l *Limiter[K]) admitLocked(now time.Duration) (woken waitlist.Woken[call[K]]) {
	for l.counts.Held < l.limit && l.shares.Len() > 0 {
		if l.budget.rate > 0 && l.budget.level <= 0 {
			l.armLocked()
			break
		}
		k := l.shares.Next()
		c := k.Data.Pop()
		l.counts.Waiting--
		l.shares.Admit(k, k.Data.head(), now)
		l.holdLocked(c, now)
		clock := l.shares.Clock(now)
		if gap := clock - l.admitted; l.interval == 0 {
			l.interval = gap
		} else {
			l.interval += (gap - l.interval) / 8
		}
		l.admitted = clock
		woken.Add(c)
	}
	return woken
}

// Release gives the permit back. Only the first Release of a Permit, or of a copy, has an effect.
// It panics for the zero Permit.
func (p Permit[K]) Release() { p.release(-1) }

// ReleaseUsed is Release for a permit of a Limiter with a Rate, and reports the units really used,
// 0 to [MaxUnits]. The difference to the units of AcquireN goes back to the budget and the key, or
// is taken from them. If n is out of range, or there is no Rate, it releases the permit as Release
// does and returns [ErrCost].
func (p Permit[K]) ReleaseUsed(n int64) error {
	var err error
	if p.call != nil {
		if err = p.call.Data.limiter.checkUnits(n, 0); err != nil {
			n = -1
		}
	}
	p.release(n)
	return err
}

// release gives the permit back. used is the number of used units, or -1 for the declared number.
func (p Permit[K]) release(used int64) {
	c := p.call
	if c == nil {
		panic("admit: Release of a zero Permit")
	}
	l := c.Data.limiter
	l.mu.Lock()
	if c.Data.generation != p.generation {
		l.mu.Unlock()
		return
	}
	k := c.Data.key
	var now time.Duration
	var units float64
	if l.budget.rate > 0 {
		now = l.refillLocked()
		units = l.settleLocked(c, used)
	} else if l.shares.NeedsNow(k) {
		now = time.Since(l.epoch)
	}
	l.counts.Held--
	l.freeLocked(c)
	k.Data.used += l.shares.Release(k, units, now)
	if l.shares.Len() == 0 {
		l.mu.Unlock()
		return
	}
	woken := l.admitLocked(now)
	l.mu.Unlock()
	woken.Wake()
}

// SetLimit changes the number of permits. If more are held, it takes effect as they come back. It
// returns an error if n is below 1.
func (l *Limiter[K]) SetLimit(n int) error {
	if err := checkLimit(n); err != nil {
		return err
	}
	l.mu.Lock()
	l.limit = n
	woken := l.admitLocked(l.refillLocked())
	l.mu.Unlock()
	woken.Wake()
	return nil
}

// Close makes further calls of Acquire and TryAcquire fail with [ErrClosed]. Waiting calls get
// their permits as before. Closing a closed Limiter does nothing.
func (l *Limiter[K]) Close() {
	l.mu.Lock()
	l.counts.Closed = true
	l.mu.Unlock()
}
