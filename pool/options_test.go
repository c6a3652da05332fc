package pool_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

func nothing(context.Context, *task.Task[int]) error { return nil }

// TestOptionErrors has every error that Validate returns, but for those of schedules, backoffs and
// limits, which have tests of their own.
func TestOptionErrors(t *testing.T) {
	q := openQueue[int](t, nil)
	for want, o := range map[string]pool.Options[int]{
		"Options.Classes[0].Weight is -1; the limits are 0 and 1000": {
			Classes: []pool.Class[int]{{Weight: -1}},
		},
		"Options.Classes[0].Weight is 1001; the limits are 0 and 1000": {
			Classes: []pool.Class[int]{{Weight: fairq.MaxWeight + 1}},
		},
		"Options.Classes[1].Name is empty; it must not be if there are several": {
			Classes: []pool.Class[int]{{Name: "a"}, {}},
		},
		`Options.Classes[2].Name is "a", and so is that of Options.Classes[0]; they must differ`: {
			Classes: []pool.Class[int]{{Name: "a"}, {Name: "b"}, {Name: "a"}},
		},
		"Options.Filter.Kinds is empty; it must be nil, for all kinds, or name one, or no " +
			"task would ever be started": {
			Filter: task.Filter{Kinds: []string{}},
		},
		"Options.DeadLetters is nil; with Options.Queue.WhenFull EvictOldest it must be set, or tasks " +
			"would be lost in silence": {
			Queue: task.Options[int]{Capacity: 1, WhenFull: fairq.EvictOldest},
		},
		"Options.Queue: task: Options.Capacity is 0; it must be set unless WhenFull is Reject, " +
			"because a queue without limit is never full": {
			Queue: task.Options[int]{KeyCapacity: 1, WhenFull: fairq.RejectOverShare},
		},
		"Options.Queue is set; a queue that is not the pool's own has its task.Options already": {
			Queue: task.Options[int]{MaxInFlightPerKey: 1}, Classes: []pool.Class[int]{{Queue: q}},
		},
		"Options.Queue: task: Options.Capacity is -1; it must be 0 to 536870912": {
			Queue: task.Options[int]{Capacity: -1},
		},
		"Options.Queue: task: Options.KeyCapacity is -1; it must be 0 to 536870912": {
			Queue: task.Options[int]{KeyCapacity: -1},
		},
		"Options.Queue has an OnEvict, OnExpire or AsIs; these are the pool's": {
			Queue: task.Options[int]{AsIs: true},
		},
		"Options.Policy.InOrder is true; a queue that is not the pool's own must have a " +
			"MaxInFlightPerKey of 1 and KeepPlace for that": {
			Policy: pool.Policy{InOrder: true}, Classes: []pool.Class[int]{{Queue: q}},
		},
		"Options.Queue.MaxInFlightPerKey is 2; it must be 0 or 1, with Options.Policy.InOrder": {
			Policy: pool.Policy{InOrder: true}, Queue: task.Options[int]{MaxInFlightPerKey: 2},
		},
		"Options.Workers is -1; the limits are 0 and 1048576": {Workers: -1},
		"Options.Workers is 1048577; the limits are 0 and 1048576": {
			Workers: 1<<20 + 1,
		},
		"Options.Workers is 3 and Options.Scale has 0 to 4 workers; one of the two must be 0": {
			Workers: 3, Scale: pool.Scale{Max: 4},
		},
		"Options.Scale: Min and Max are 3 and 2; the limits are 0 and 1048576, and " +
			"Min must not be greater": {
			Scale: pool.Scale{Min: 3, Max: 2},
		},
		"Options.Scale: Min and Max are -1 and 2; the limits are 0 and 1048576, and " +
			"Min must not be greater": {
			Scale: pool.Scale{Min: -1, Max: 2},
		},
		"Options.Scale: Min and Max are 0 and 1048577; the limits are 0 and 1048576, and " +
			"Min must not be greater": {
			Scale: pool.Scale{Max: 1<<20 + 1},
		},
		"Options.Scale.IdleTimeout is -1ns; the limits are 0 and 876000h0m0s": {
			Scale: pool.Scale{IdleTimeout: -1},
		},
		"Options.AbandonAfter is -1ns; the limits are 0 and 876000h0m0s": {AbandonAfter: -1},
		"Options.Policy.Timeout is -1ns; the limits are 0 and 876000h0m0s": {
			Policy: pool.Policy{Timeout: -1},
		},
		"Options.Policy.Backoff.Max is 1s; it must be 0 or at least Base, which is 1m0s": {
			Policy: pool.Policy{Backoff: pool.Backoff{Base: time.Minute, Max: time.Second}},
		},
	} {
		want = "pool: invalid: " + want
		err := o.Validate()
		require.ErrorIs(t, err, task.ErrInvalid, want)
		require.EqualError(t, err, want)
		require.PanicsWithError(t, want, func() { pool.Func(nothing, &o) })
	}
}

// TestMisuse has the other panics of constructors.
func TestMisuse(t *testing.T) {
	q, items := openQueue[int](t, nil), fairq.New(func(int) string { return "a" }, nil)
	handle := func(context.Context, int) error { return nil }
	require.PanicsWithValue(t, "pool: New: the queue is nil", func() { pool.New(nil, nothing, nil) })
	require.PanicsWithValue(t, "pool: the handler is nil", func() { pool.New(q, nil, nil) })
	require.PanicsWithValue(t, "pool: the handler is nil", func() { pool.Func[int](nil, nil) })
	require.PanicsWithValue(t, "pool: NewWorkers: the queue or the handler is nil",
		func() { pool.NewWorkers[int](nil, handle, nil) })
	require.PanicsWithValue(t, "pool: NewWorkers: the queue or the handler is nil",
		func() { pool.NewWorkers(items, nil, nil) })
	require.PanicsWithError(t, "pool: invalid: New: the options have classes; these are for Func",
		func() {
			pool.New(q, nothing, &pool.Options[int]{Classes: []pool.Class[int]{{}}})
		})
	p := openFunc(t, nothing, pool.Options[int]{})
	for _, c := range [][2]int{{-1, 2}, {3, 2}, {0, 1<<20 + 1}} {
		require.ErrorIs(t, p.SetWorkers(c[0], c[1]), task.ErrInvalid)
	}
	require.EqualError(t, p.SetWorkers(3, 2),
		"pool: invalid: SetWorkers: Min and Max are 3 and 2; the limits are 0 and 1048576, and "+
			"Min must not be greater")
}

// TestUnusualOptions has options that look wrong and are valid.
func TestUnusualOptions(t *testing.T) {
	for _, o := range []pool.Options[int]{
		{Classes: []pool.Class[int]{{Queue: openQueue[int](t, nil)}}},
		{Queue: task.Options[int]{Capacity: 5, KeyCapacity: 5}},
		{Queue: task.Options[int]{KeyCapacity: 5}},
		{Filter: task.Filter{Kinds: []string{""}}},
		{Schedule: []pool.Range{{Time: "08:00-12:00"}}},
	} {
		require.NoError(t, o.Validate())
	}
}

// TestDefaults is about zero values.
func TestDefaults(t *testing.T) {
	require.NoError(t, pool.Options[int]{}.Validate())
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := pool.Func(nothing, nil)
		synctest.Wait()
		require.Equal(t, pool.Stats{Min: runtime.GOMAXPROCS(0), Max: runtime.GOMAXPROCS(0)}, p.Stats())
		s, err := p.Queue("").Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, fairq.MaxLen, s.Capacity)
		end(t, ctx, p)
	})
}

// TestOptionsAreCopied changes the options of a pool after its start.
func TestOptionsAreCopied(t *testing.T) {
	o := pool.Options[int]{
		Filter: task.Filter{Kinds: []string{"a"}}, Classes: []pool.Class[int]{{Name: "x"}, {Name: "y"}},
		Schedule: []pool.Range{{Time: "00:00-24:00", Scale: pool.Scale{Max: 2}}},
	}
	p := openFunc(t, nothing, o)
	o.Filter.Kinds[0], o.Classes[0].Name, o.Schedule[0].Scale.Max = "b", "z", 0
	require.NoError(t, p.Do(t.Context(), "a", 1, pool.PutOptions{PutOptions: task.PutOptions{
		Kind: "a",
	}, Class: "x"}))
	require.Equal(t, 2, p.Stats().Max)
	end(t, t.Context(), p)
}
