package fairq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fairDriver makes the same calls on a FairQueue and on the model. All waiting calls are in one
// bubble, so the driver knows when each has returned or blocked.
type fairDriver struct {
	*testing.T
	q       *FairQueue[float64, int]
	m       *fairModel
	nan     bool // key 0 is NaN
	evicted []int
	tickets map[int]Ticket
	added   []int // the keys of tickets
	flight  []int // items that were popped and whose cost was not reported
	earlier Queue[float64, int]
	outline int // items when earlier was made

	ended    chan call
	cancels  map[int]context.CancelCauseFunc
	consumer int // the number of the last PopWait, which is negative
}

type call struct {
	number int
	outcome
}

// driveFair decodes data to a configuration, from the first three bytes, and to calls. It compares
// the queue with the model.
func driveFair(t *testing.T, data []byte) {
	if len(data) < 3 || len(data) > 300 {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		mode, size := data[1], data[2]
		p, limit := pricing{share: true}, 0
		if n := int(data[0]) % (len(pricings) + 3); n < len(pricings) {
			p = pricings[n]
		} else {
			limit = []int{0, 1, 3}[n-len(pricings)]
		}
		d := newFairDriver(t, p, mode, size, limit)
		for i, b := range data[3:] {
			time.Sleep(time.Microsecond << (b % 32))
			d.step(b&7, int(b>>3), int(b>>3)%(2+int(size>>5)), 100*i, mode&64 != 0)
			d.m.handOver()
			d.compare(i)
		}
		d.q.Close()
		d.m.close()
		d.compare(len(data))
	})
}

func newFairDriver(t *testing.T, p pricing, mode, size byte, limit int) *fairDriver {
	o := Options[float64, int]{
		Capacity: 1 + int(size&15), TrackWait: mode&16 != 0, ShareTime: p.share,
		MaxInFlightPerKey: limit,
	}
	if mode&128 != 0 {
		o.Capacity *= 8
	}
	if mode&2 != 0 {
		o.KeyCapacity = 1 + o.Capacity/2
		if mode&64 != 0 {
			o.KeyCapacity = 1 + o.Capacity/5 // so that many wait for their key
		}
	}
	weights := map[int]int{}
	if mode&4 != 0 {
		for k := range 9 {
			weights[k] = 1 + k%3
		}
		o.Weight = func(k float64) int { return max(1, weights[numberOf(k)]) }
	}
	if p.maxCost > 0 {
		o.Cost = func(item int) int64 { return int64(p.cost(item)) }
	}
	o.Quantum, o.SettleCosts = int64(p.quantum), p.settle
	if size&32 != 0 {
		o.CountKeys = 10 // all of them
	}
	d := &fairDriver{
		T: t, nan: size&16 != 0, tickets: map[int]Ticket{}, ended: make(chan call, 1000),
		cancels: map[int]context.CancelCauseFunc{},
	}
	if mode&8 != 0 {
		o.WhenFull = EvictHeaviest
		if mode&32 != 0 {
			o.WhenFull = EvictOldest
		}
		o.OnEvict = func(key float64, item int) {
			require.Equal(t, d.m.keyOf[item], numberOf(key))
			d.evicted = append(d.evicted, item)
		}
	}
	if mode&8 == 0 && mode&32 != 0 {
		o.WhenFull = RejectOverShare
	}
	d.m = newFairModel(o, weights, p)
	d.q = New(func(item int) float64 { return keyOf(d.m.keyOf[item], d.nan) }, &o)
	return d
}

func (d *fairDriver) step(op byte, arg, key, item int, waits bool) {
	d.m.keyOf[item] = key
	switch {
	case waits && (op <= 1 || op == 5):
		d.wait(item, func(ctx context.Context) (int, error) { return 0, d.q.PushWait(ctx, item) })
		d.m.pushWait(item)
	case op <= 1:
		want := d.m.offer(item)
		require.Equal(d, want, d.q.Push(item))
	case op == 2:
		want := d.m.offer(item)
		ticket, err := d.q.Add(item)
		require.Equal(d, want, err)
		if err == nil {
			d.tickets[item] = ticket
			d.added = append(d.added, item)
		}
	case op == 3:
		d.pushBatch(arg/2*(1+d.m.o.Capacity/40), key, item)
	case op == 4 && arg%2 == 0 && d.m.o.ShareTime:
		d.end(arg / 2)
	case op <= 5:
		want, wantOK := d.m.poll()
		got, ok := d.q.Pop()
		require.Equal(d, wantOK, ok)
		require.Equal(d, want, got)
		if ok && d.m.pricing.settle {
			d.flight = append(d.flight, got)
		}
		if at := arg % 4; op == 5 && at < len(d.flight) {
			item := d.flight[at]
			d.flight = slices.Delete(d.flight, at, at+1)
			cost := d.m.pricing.realCost(item, arg)
			require.NoError(d, d.q.ReportCost(item, int64(cost)))
			d.m.reportCost(d.m.keyOf[item], item, cost)
		}
	case op == 6 && arg < 8:
		want := []int{}
		for len(want) < arg && d.m.ready() > 0 {
			item, _ := d.m.poll()
			want = append(want, item)
		}
		got := make([]int, arg)
		got = got[:d.q.PopBatch(got)]
		require.Equal(d, want, got)
	case op == 6 && arg < 10:
		want := d.m.drain()
		require.Equal(d, want, d.q.Drain())
		d.flight = nil
	case op == 6 && len(d.added) > 0:
		d.remove(arg % len(d.added))
	case op == 7 && arg < 6:
		want := d.m.items(key)
		d.m.drop(want...)
		require.Equal(d, want, d.q.RemoveKey(keyOf(key, d.nan)))
	case op == 7 && waits:
		d.stepWaiting(arg)
	}
}

func (d *fairDriver) stepWaiting(arg int) {
	switch calls := d.m.waiting(); {
	case arg < 12:
		d.consumer--
		d.wait(d.consumer, d.q.PopWait)
		d.m.popWait(d.consumer)
	case arg < 28 && len(calls) > 0:
		number := calls[arg%len(calls)]
		d.cancels[number](errors.New("this is not what is returned"))
		d.m.cancel(number)
	case arg == 31:
		d.q.Close()
		d.m.close()
	}
}

// wait makes a call that may wait.
func (d *fairDriver) wait(number int, f func(context.Context) (int, error)) {
	ctx, cancel := context.WithCancelCause(d.Context())
	d.cancels[number] = cancel
	go func() {
		item, err := f(ctx)
		d.ended <- call{number, outcome{item, err}}
	}()
	synctest.Wait()
}

func (d *fairDriver) pushBatch(n, key, item int) {
	var batch []int
	var want error
	accepted := 0
	for i := range n {
		batch = append(batch, item+i)
		d.m.keyOf[item+i] = key + i/2%2
		if want == nil {
			if want = d.m.offer(item + i); want == nil {
				accepted++
			}
		}
	}
	n, err := d.q.PushBatch(batch)
	require.Equal(d, want, err)
	require.Equal(d, accepted, n)
}

func (d *fairDriver) remove(at int) {
	item := d.added[at]
	d.added = slices.Delete(d.added, at, at+1)
	_, queued := d.m.position(item)
	got, ok := d.q.Remove(d.tickets[item])
	require.Equal(d, queued, ok)
	if ok {
		require.Equal(d, item, got)
		d.m.drop(item)
	}
}

// end ends a delivered item, or another one.
func (d *fairDriver) end(arg int) {
	item := 0
	if len(d.m.taken) > 0 {
		i := arg % len(d.m.taken)
		item = d.m.taken[i]
		d.m.taken = slices.Delete(d.m.taken, i, i+1)
	}
	require.Equal(d, d.m.turns.(*shared).end(d.m.keyOf[item]), d.q.Done(item) == nil)
	d.m.rounds = nil
}

// compare compares the results of all reading calls with the model.
func (d *fairDriver) compare(step int) {
	synctest.Wait()
	for n := len(d.ended); n > 0; n-- {
		c := <-d.ended
		require.Equal(d, d.m.done[c.number], c.outcome, "step %d: call %d", step, c.number)
		delete(d.m.done, c.number)
		d.cancels[c.number](nil)
	}
	require.Empty(d, d.m.done, "step %d: these calls must have returned", step)
	require.Equal(d, d.m.evicted, d.evicted, "step %d", step)
	if testing.Short() && step%4 != 0 { // the rest takes most of the time
		return
	}
	require.NoError(d, d.q.Check(), "step %d", step)
	compare(d, &d.q.queue, d.m.model)
	d.compareStats(step)
	d.compareCounts()
	d.compareSnapshot()
	d.compareUpcoming(step)
}

func (d *fairDriver) compareStats(step int) {
	want, keys := d.m.stats()
	got := d.q.Stats()
	require.InDelta(d, want.Wait.Sum, got.Wait.Sum, 1e-9*want.Wait.Sum)
	got.Wait.Sum = want.Wait.Sum
	require.Equal(d, want, got, "step %d", step)
	require.Equal(d, got.Pushed, got.Popped+got.Removed+got.Evicted+uint64(got.Len))

	for number := range 9 { // with and without items
		got, want := d.q.KeyStat(keyOf(number, d.nan)), keys[number]
		want.Total, want.Recent = got.Total, got.Recent // see compareCounts
		want.Key, want.Weight = got.Key, d.m.weight(number)
		require.Equal(d, fmt.Sprint(want), fmt.Sprint(got), "step %d", step)
	}

	lengths := d.m.lengths()
	n := step % 4
	stats := d.q.KeyStats(n, ByBacklog)
	require.Len(d, stats, min(n, len(lengths)))
	for i, s := range stats {
		require.Equal(d, lengths[i], s.Backlog, "step %d: the %d longest of %v", step, n, lengths)
		require.Equal(d, fmt.Sprint(d.q.KeyStat(s.Key)), fmt.Sprint(s), "step %d", step)
	}
}

func (d *fairDriver) compareCounts() {
	served, refused := 0, 0
	for number := range 10 {
		got, want := d.q.KeyStat(keyOf(number, d.nan)), d.m.byKey[number]
		if d.m.o.CountKeys == 0 {
			want = Counts{}
		}
		require.Equal(d, want, got.Total)
		require.Zero(d, got.Missed)
		served += int(min(want.Served, 1))
		refused += int(min(want.Refused, 1))
	}
	require.Len(d, d.q.KeyStats(100, ByServed), served)
	require.Len(d, d.q.KeyStats(100, ByRefused), refused)
}

// compareSnapshot compares a snapshot, into memory that was prepared some steps ago, with the
// order of pops: first its round, then its queues.
func (d *fairDriver) compareSnapshot() {
	c := d.earlier.blank()
	d.q.queue.copyTo(&c)
	if d.outline++; d.outline%8 == 0 {
		d.earlier = d.q.queue.outline()
	}
	snapshot := c.snapshot()
	behind := 0
	for key, items := range snapshot.Queues {
		behind += len(items)
		all := d.m.items(numberOf(key))
		require.Equal(d, all[len(all)-len(items):], items)
	}
	require.Len(d, snapshot.Round, d.m.len()-behind)
	require.Len(d, snapshot.Round, d.m.turns.Left())
	order := d.m.order()
	for i, item := range snapshot.Round {
		require.Equal(d, order[i].item, item)
	}
	var got []modelItem
	for key, item := range snapshot.Order() {
		got = append(got, modelItem{numberOf(key), item})
	}
	require.Equal(d, order, got)
}

// compareUpcoming compares the first items, or all, with the order of pops.
func (d *fairDriver) compareUpcoming(step int) {
	order, left, rounds := d.m.order(), d.m.turns.Left(), map[int]int{}
	if s, ok := d.m.turns.(*shared); ok && d.m.o.MaxInFlightPerKey > 0 {
		s.limited, d.m.rounds = true, nil
		order = d.m.order()
		s.limited, d.m.rounds = false, nil
	}
	all := d.q.Upcoming(len(order) + step%2)
	require.Len(d, all, len(order))
	for i, u := range all {
		got := modelItem{numberOf(u.Key), u.Item}
		require.Equal(d, order[i], got, "step %d", step)
		require.Equal(d, i < left, u.Round == 0, "step %d: round %d of item %d", step, u.Round, i)
		require.True(d, i == 0 || u.Round >= all[i-1].Round, "step %d", step)
		require.Equal(d, d.m.knownCost(u.Item), u.Cost, "step %d", step)
		if d.m.o.TrackWait {
			require.Equal(d, time.Since(d.m.since[u.Item]), u.Age, "step %d", step)
		}
		rounds[numberOf(u.Key)] = u.Round
	}
	for key, last := range rounds {
		if !d.m.pricing.settle && !d.m.o.ShareTime { // otherwise some items have no round yet
			require.Equal(d, d.m.turns.Rounds(key), last, "step %d", step)
		}
	}
	n := step % 5
	require.Equal(d, fmt.Sprint(all[:min(n, len(all))]), fmt.Sprint(d.q.Upcoming(n)), "step %d", step)
	require.Empty(d, d.q.Upcoming(-1))
}

func TestFairQueueAgainstModel(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 2))
		data := make([]byte, 3+random.IntN(120))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		if seed%4 == 3 {
			bursts(random, data)
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { driveFair(t, data) }) {
			return
		}
	}
}

// bursts orders the calls so that many producers wait for a key, its share grows, and some give
// up: many waiting pushes, half of them of one key, then some pops, then cancelled contexts.
func bursts(random *rand.Rand, data []byte) {
	data[1] = data[1]&^8 | 64 | 32 // RejectOverShare
	keys := 2 + data[2]>>5
	for i := range data[3:] {
		arg := byte(random.IntN(32))
		switch n := i % 16; {
		case random.IntN(8) == 0: // any call
		case n < 9:
			if n%2 == 0 {
				arg -= arg % keys
			}
			data[3+i] = arg << 3
		case n < 12:
			data[3+i] = arg<<3 | 4
		default:
			data[3+i] = (12+arg%16)<<3 | 7
		}
	}
}

func FuzzFairQueue(f *testing.F) {
	f.Add([]byte{1, 0x08, 0x04, 0, 0, 0, 0, 8, 0, 4, 4, 4, 4, 4})
	f.Add([]byte{2, 0x1f, 0x45, 2, 2, 10, 18, 0xfb, 4, 0xfe, 4, 0x7b, 0x4e, 2, 7})
	f.Add([]byte{3, 0x28, 0x63, 0, 0, 0, 8, 8, 16, 0x33, 4, 0, 4, 4})
	f.Add([]byte{4, 0x0b, 0xe7, 0, 8, 16, 24, 32, 40, 48, 0x36, 0, 8, 0x46})
	f.Add([]byte{0, 0x42, 0x63, 1, 1, 1, 1, 1, 9, 9, 0x97, 4, 4, 1, 4, 4, 0x37, 0x37, 1, 0xff})
	// A push meets a consumer: with counts and waits, and with costs.
	f.Add([]byte{0, 0x50, 0x24, 0x47, 0, 0, 0, 0})
	f.Add([]byte{2, 0x40, 0x04, 0x47, 0, 0, 0, 0})
	f.Fuzz(driveFair)
}
