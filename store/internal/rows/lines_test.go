package rows_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// Calls that share a transaction, and its cached rows, have the same results as calls in
// transactions of their own. storetest.Compare cannot show that: it makes one call at a time,
// because it needs the result of a call to choose the next one.
func TestTogether(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for _, shared := range []bool{false, true} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("shared %v, seed %d", shared, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBoth(t, rand.New(rand.NewPCG(seed, 0)), shared)
					for range 25 {
						b.step()
					}
				})
			})
		}
	}
}

// both makes the same calls on two queues: one after the other, and many in a transaction.
type both struct {
	*testing.T
	rnd       *rand.Rand
	one, many queue
	dbs       [2]*rowstest.DB
	gate      chan struct{} // of many
	held      [][2]*task.Task[string]
	ids       map[string]*[2]task.ID // of tasks that were never taken, by payload
	waiting   []string               // the payloads of these tasks, and maybe of others

	keys, kinds, priorities, most int
}

func newBoth(t *testing.T, rnd *rand.Rand, shared bool) *both {
	b := &both{
		T: t, rnd: rnd, gate: make(chan struct{}, 1), keys: 1 + rnd.IntN(4), kinds: 1 + rnd.IntN(3),
		priorities: 1 + rnd.IntN(2),
		most:       1 + rnd.IntN(20), ids: map[string]*[2]task.ID{},
	}
	weights := [4]int{1, 1, 1 + rnd.IntN(3), 1 + rnd.IntN(9)}
	o := task.Options[string]{
		MaxInFlightPerKey: rnd.IntN(9), KeepPlace: rnd.IntN(4) == 0, Grace: time.Hour,
		Weight: func(key string) int { return weights[key[0]-'a'] },
	}
	one, many := rowstest.NewDB(time.Now), rowstest.NewDB(time.Now)
	one.Shared, many.Shared = shared, shared
	b.dbs = [...]*rowstest.DB{one.Reopen(), many.Reopen()}
	b.gate <- struct{}{}
	b.one = openQueue(t, open(one), o)
	b.many = openQueue(t,
		rows.New(&slow{many, b.gate}, rows.Options{MaxPayload: 100, Poll: time.Hour}), o)
	return b
}

// action is a change of both queues.
type action struct {
	order int                     // a lower one comes earlier in its transaction
	do    func(q queue, side int) // 0 for one, 1 for many
}

// step runs up to a dozen actions on one queue, then in one transaction on the other.
func (b *both) step() {
	time.Sleep(time.Duration(b.rnd.IntN(3)) * time.Second)
	synctest.Wait()
	actions := []action{{2, func(q queue, _ int) { // leads
		_, err := q.Stats(b.Context())
		require.NoError(b, err)
	}}}
	for range 1 + b.rnd.IntN(10) {
		actions = append(actions, b.action())
	}
	if b.rnd.IntN(2) == 0 {
		actions = append(actions, b.take())
	}
	slices.SortStableFunc(actions[1:], func(x, y action) int { return cmp.Compare(x.order, y.order) })
	for _, d := range actions {
		d.do(b.one, 0)
	}
	<-b.gate
	for _, d := range actions {
		go d.do(b.many, 1)
		synctest.Wait()
	}
	b.gate <- struct{}{}
	synctest.Wait()
	for _, db := range b.dbs {
		require.Empty(b, rowstest.Walk(b.T, db, "q"))
	}
}

func (b *both) action() action {
	key := string(rune('a' + b.rnd.IntN(b.keys)))
	switch b.rnd.IntN(10) {
	case 0, 1, 2:
		return b.put()
	case 3, 4, 5, 6:
		return b.settle()
	case 7:
		return b.delete()
	case 8:
		return action{0, func(q queue, _ int) { require.NoError(b, q.PauseKey(b.Context(), key)) }}
	}
	n := b.rnd.IntN(5)
	return action{0, func(q queue, _ int) {
		if n == 0 {
			_, err := q.Kick(b.Context(), task.ListOptions{Limit: 5})
			require.NoError(b, err)
		} else {
			require.NoError(b, q.ResumeKey(b.Context(), key))
		}
	}}
}

func (b *both) put() action {
	var batch []task.Entry[string]
	for range 1 + b.rnd.IntN(b.most) {
		o := task.PutOptions{Kind: "kind"[:b.rnd.IntN(b.kinds)], Priority: b.rnd.IntN(b.priorities)}
		if b.rnd.IntN(3) == 0 {
			o.Delay, o.TTR = b.seconds(), b.seconds()
			o.TTL = b.seconds()
		}
		batch = append(batch, task.Entry[string]{
			Key: string(rune('a' + b.rnd.IntN(b.keys))), Payload: fmt.Sprint(b.rnd.Uint32()), Options: o,
		})
	}
	return action{2, func(q queue, side int) {
		if side == 1 {
			ids, err := q.PutBatch(b.Context(), batch)
			require.NoError(b, err)
			for i, p := range batch {
				b.ids[p.Payload][1] = ids[i]
			}
			return
		}
		for _, p := range batch {
			id, err := q.Put(b.Context(), p.Key, p.Payload, p.Options)
			require.NoError(b, err)
			b.ids[p.Payload] = &[2]task.ID{id}
			b.waiting = append(b.waiting, p.Payload)
		}
	}}
}

func (b *both) delete() action {
	if len(b.waiting) == 0 {
		return b.put()
	}
	i := b.rnd.IntN(len(b.waiting))
	payload := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	same := b.same()
	return action{0, func(q queue, side int) {
		if ids := b.ids[payload]; ids != nil {
			same(q.Delete(b.Context(), ids[side]))
		}
	}}
}

func (b *both) seconds() time.Duration { return time.Duration(b.rnd.IntN(8)) * time.Second }

// same returns a function to be called with the error of an action in each queue. It compares the
// two.
func (b *both) same() func(error) {
	var first error
	called := false
	return func(err error) {
		// The errors name ids, which differ between the queues.
		if called && !(errors.Is(first, task.ErrNotFound) && errors.Is(err, task.ErrNotFound)) {
			require.Equal(b, fmt.Sprint(first), fmt.Sprint(err))
		}
		first, called = err, true
	}
}

func (b *both) take() action {
	var f task.Filter
	if b.rnd.IntN(3) == 0 {
		f.Kinds = []string{"kind"[:b.rnd.IntN(b.kinds)]}
	}
	if b.rnd.IntN(4) == 0 {
		f.MaxPriority = new(0)
	}
	n := 1 + b.rnd.IntN(b.most)
	var want []*task.Task[string]
	return action{1, func(q queue, side int) {
		c := q.NewConsumer(f)
		switch {
		case side == 1 && want == nil:
			_, ok, err := c.TryTake(b.Context())
			require.NoError(b, err)
			require.False(b, ok)
		case side == 1:
			got, err := c.TakeBatch(b.Context(), n)
			require.NoError(b, err)
			require.Len(b, got, len(want))
			for i, t := range want {
				require.Equal(b, t.Payload, got[i].Payload, "task %d of %d", i, n)
				b.held = append(b.held, [2]*task.Task[string]{t, got[i]})
			}
		}
		for side == 0 && len(want) < n {
			t, ok, err := c.TryTake(b.Context())
			require.NoError(b, err)
			if !ok {
				break
			}
			want = append(want, t)
			delete(b.ids, t.Payload)
		}
	}}
}

// settle ends a lease.
func (b *both) settle() action {
	if len(b.held) == 0 {
		return b.put()
	}
	i, how := b.rnd.IntN(len(b.held)), b.rnd.IntN(4)
	leases := b.held[i]
	b.held = slices.Delete(b.held, i, i+1)
	same, delay := b.same(), b.seconds()*time.Duration(b.rnd.IntN(2))
	return action{0, func(_ queue, side int) {
		switch t := leases[side]; how {
		case 0:
			same(t.Release(b.Context(), delay))
		case 1:
			same(t.Bury(b.Context(), nil))
		default:
			same(t.Ack(b.Context()))
		}
	}}
}

// The first tasks of a key expire together: the task behind them gets their turn.
func TestFirstTasksExpireTogether(t *testing.T) {
	everywhere(t, task.Options[string]{MaxInFlightPerKey: 1}, func(q queue) {
		q.put("a0")
		a0 := q.take("a0")
		for _, name := range []string{"a1", "a2"} {
			require.NoError(q, second(q.Put(q.Context(), "a", name, task.PutOptions{TTL: time.Second})))
		}
		q.put("a3 b1 b2 c1 c2")
		time.Sleep(2 * time.Second)
		require.NoError(q, a0.Ack(q.Context()))
		q.order("a3 b1 c1 b2 c2")
	})
	// So does the task behind members of a group that is cancelled.
	everywhere(t, task.Options[string]{MaxInFlightPerKey: 1}, func(q queue) {
		for _, name := range []string{"a1", "a2"} {
			q.putInto(name, task.Member)
		}
		require.NoError(q, q.StartGroup(q.Context(), "g"))
		q.put("a3 b1 b2 c1 c2")
		require.NoError(q, q.CancelGroup(q.Context(), "g"))
		q.order("a3 b1 c1 b2 c2")
	})
}

// A deleted task takes the turn with it that it was handed back with.
func TestTurnsHandedBackGo(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("a1:x a2:x a3:x a4:x a5:x a6:x a7:x b1:x b2:x b3:x b4:x")
		var back []*task.Task[string]
		for _, name := range []string{"a1", "b1", "a2", "b2", "a3"} {
			if t := q.take(name); t.Key == "a" {
				back = append(back, t)
			}
		}
		for _, t := range back {
			require.NoError(q, t.Return(q.Context()))
		}
		for _, t := range back {
			require.NoError(q, q.Delete(q.Context(), t.ID))
		}
		q.order("b3 a4 b4 a5 a6 a7")
	})
}

// A task can be taken when all tasks of its kind in an earlier line are deleted, even if these are
// more than one scan of the line reads.
func TestLastOfKindDeleted(t *testing.T) {
	everywhere(t, task.Options[string]{MaxInFlightPerKey: 1}, func(q queue) {
		q.put("a0")
		ids, err := q.PutBatch(q.Context(),
			slices.Repeat([]task.Entry[string]{{Key: "a", Options: task.PutOptions{Kind: "x"}}}, 12))
		require.NoError(q, err)
		require.NoError(q,
			second(q.Put(q.Context(), "a", "later", task.PutOptions{Kind: "x", Priority: 1})))
		for _, id := range slices.Backward(ids) {
			require.NoError(q, q.Delete(q.Context(), id))
		}
		q.take("later", "x")
	})
}
