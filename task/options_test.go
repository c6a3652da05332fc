package task_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func TestBadOptions(t *testing.T) {
	onEvict := func(*task.Task[int]) {}
	for field, o := range map[string]task.Options[int]{
		"Options.Capacity":                {Capacity: -1},
		"Options.KeyCapacity":             {KeyCapacity: fairq.MaxLen + 1},
		"Options.MaxInFlightPerKey":       {MaxInFlightPerKey: -1},
		"Options.MaxAttempts":             {MaxAttempts: -1},
		"Options.CountKeys":               {CountKeys: -1},
		"Options.Priority":                {Priority: task.MaxPriority + 1},
		"Options.Priority is -1":          {Priority: -1},
		"Options.TTL":                     {TTL: task.MaxDuration + 1},
		"Options.TTR":                     {TTR: task.MaxDuration + 1},
		"Options.Retention":               {Retention: -1},
		"Options.Grace":                   {Grace: task.MaxDuration + 1},
		"Options.WhenFull":                {WhenFull: 7},
		"Options.Quantum is -1":           {Quantum: -1},
		"Options.Quantum is 4194305":      {Quantum: fairq.MaxQuantum + 1},
		"Options.Quantum is 5; it must":   {Quantum: 5, ShareTime: true},
		"Options.KeyRate.Limit is 0":      {KeyRate: task.Rate{Burst: 1}},
		"Options.KeyRate.Limit is -1":     {KeyRate: task.Rate{Limit: -1}},
		"Options.KeyRate.Limit is NaN":    {KeyRate: task.Rate{Limit: math.NaN()}},
		"Options.KeyRate.Limit is +Inf":   {KeyRate: task.Rate{Limit: math.Inf(1)}},
		"Options.KeyRate.Limit is 1.1e":   {KeyRate: task.Rate{Limit: 1.1e9}},
		"Options.KeyRate.Burst is -1":     {KeyRate: task.Rate{Limit: 1, Burst: -1}},
		"Options.KeyRate.Burst is 1000":   {KeyRate: task.Rate{Limit: 1, Burst: task.MaxRate + 1}},
		"Options.Rate.Limit is 0":         {Rate: task.Rate{Burst: 1}},
		"Options.Capacity is 0":           {WhenFull: fairq.EvictHeaviest, OnEvict: onEvict},
		"Options.OnEvict is <nil>":        {WhenFull: fairq.EvictHeaviest, Capacity: 1},
		"Options.OnEvict is":              {OnEvict: onEvict},
		"Options.WhenFull is WhenFull(4)": {WhenFull: fairq.EvictOldest + 1},
		"Options.Capacity is 0;":          {WhenFull: fairq.EvictOldest, OnEvict: onEvict},
		"Options.Capacity is 0; ":         {WhenFull: fairq.RejectOverShare},
		"Options.OnEvict is \"set\"": {
			WhenFull: fairq.RejectOverShare, Capacity: 1, OnEvict: onEvict,
		},
		"Options.OnEvict is <nil>;": {WhenFull: fairq.EvictOldest, Capacity: 1},
	} {
		_, err := task.Open(t.Context(), new(memory.Store), "q", &o)
		requireField(t, err, field)
	}
	_, err := task.Open[int](t.Context(), nil, "q", nil)
	requireField(t, err, "Open: the store")
	_, err = task.Open[int](t.Context(), new(memory.Store), "", nil)
	requireField(t, err, "Open: the name")
	_, err = task.Open[int](t.Context(), new(memory.Store), strings.Repeat("x", task.MaxName+1), nil)
	requireField(t, err, "Open: the name")
}

func requireField(t *testing.T, err error, field string) {
	t.Helper()
	require.ErrorIs(t, err, task.ErrInvalid, field)
	var e *task.FieldError
	require.ErrorAs(t, err, &e)
	require.Contains(t, err.Error(), "task: "+field)
	require.NotEmpty(t, e.Limit)
}

// second returns the error of a call that returns something else too.
func second[T any](_ T, err error) error { return err }

func TestBadCalls(t *testing.T) {
	ctx := t.Context()
	weight := 1
	q, err := task.Open(ctx, new(memory.Store), "q",
		&task.Options[int]{Weight: func(string) int { return weight }})
	require.NoError(t, err)
	long := strings.Repeat("x", task.MaxName+1)
	for field, o := range map[string]task.PutOptions{
		"PutOptions.Priority is 100": {Priority: task.MaxPriority + 1},
		"PutOptions.Delay":           {Delay: task.MaxDuration + 1},
		"PutOptions.TTL":             {TTL: task.MaxDuration + 1},
		"PutOptions.TTR":             {TTR: task.MaxDuration + 1},
		"PutOptions.MaxAttempts":     {MaxAttempts: fairq.MaxLen + 1},
		"PutOptions.Kind":            {Kind: long},
		"PutOptions.UniqueKey":       {UniqueKey: long},
		"PutOptions.Group":           {Group: long},
		"PutOptions.Role is Role(3)": {Role: 3, Group: "g"},
		"PutOptions.Role":            {Role: task.AtEnd},
	} {
		requireField(t, second(q.Put(ctx, "a", 1, o)), field)
		requireField(t, second(q.PutWait(ctx, "a", 1, o)), field)
		ids, err := q.PutBatch(ctx, []task.Entry[int]{{Key: "a"}, {Key: "a", Options: o}, {Key: "a"}})
		requireField(t, err, field)
		require.Len(t, ids, 1)
		require.NoError(t, q.Delete(ctx, ids[0]))
	}
	requireField(t, second(q.Put(ctx, long, 1, task.PutOptions{})), "the key")
	weight = 0
	require.ErrorIs(t, second(q.Put(ctx, "a", 1, task.PutOptions{})), fairq.ErrWeight)
	weight = 1

	requireField(t, second(q.TakeBatch(ctx, 0)), "TakeBatch: the number")
	_, _, err = q.NewConsumer(task.Filter{}).Watch(func() {}).TakeBatch(ctx, task.MaxBatch+1)
	requireField(t, err, "TakeBatch: the number")
	for field, o := range map[string]task.ListOptions{
		"Kick: ListOptions.State": {State: task.Ready}, "Kick: ListOptions.Group": {Group: "g"},
		"Kick: ListOptions.After": {After: 1}, "ListOptions.Limit": {Limit: -1},
	} {
		requireField(t, second(q.Kick(ctx, o)), field)
	}
	unknown := task.ListOptions{State: 77}
	requireField(t, second(q.Count(ctx, unknown)), "ListOptions.State is State(77)")
	requireField(t, second(q.List(ctx, unknown)), "ListOptions.State is State(77)")
	requireField(t, second(q.List(ctx, task.ListOptions{Limit: -1})), "ListOptions.Limit")
	requireField(t, second(q.KeyStats(ctx, -1, fairq.ByBacklog)), "KeyStats: the number")
	for _, n := range []int{-1, task.MaxBatch + 1} {
		requireField(t, second(q.Upcoming(ctx, n)), "Upcoming: the number")
	}
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, s.Len())

	require.NoError(t, second(q.Put(ctx, "a", 1, task.PutOptions{})))
	one, err := q.Take(ctx)
	require.NoError(t, err)
	requireField(t, one.Release(ctx, -1), "Release: the delay")
	requireField(t, one.Snooze(ctx, -1), "Snooze: the delay")
	requireField(t, one.Fail(ctx, nil, task.MaxDuration+1), "Fail: the delay")
	requireField(t, one.Touch(ctx, -1), "Touch: the duration")
	require.NoError(t, one.Touch(ctx, 0))
	requireField(t, one.Touch(ctx, 1),
		"Touch: the duration is 1ns; it must be 0 for a task without a time to run")

	other := new(task.Task[int]) // no lease at all
	require.ErrorIs(t, other.Ack(ctx), task.ErrLeaseLost)
	require.ErrorIs(t, other.Touch(ctx, 1), task.ErrLeaseLost)
	leaseCtx, cancel := other.Context(ctx)
	defer cancel()
	require.ErrorIs(t, context.Cause(leaseCtx), task.ErrLeaseLost)

	nobody := new(task.Consumer[int])
	_, _, try := nobody.TryTake(ctx)
	_, _, watch := new(task.Watch[int]).Take(ctx, nil)
	var none *task.Consumer[int]
	for _, err := range []error{
		try, watch, second(nobody.Take(ctx)), second(nobody.TakeBatch(ctx, 1)),
		second(nobody.TakeID(ctx, 1)), second(nobody.AckAndTake(ctx, one, new(task.Task[int]))),
		nobody.Disconnect(ctx), nobody.Close(ctx), nobody.ReleaseAll(ctx),
		second(none.Take(ctx)), none.Close(ctx),
	} {
		requireField(t, err, "the Consumer")
	}
	require.Equal(t, "q", q.Name())
	require.NoError(t, q.Close(ctx))
	require.ErrorIs(t, one.Ack(ctx), task.ErrClosed)
}

// With ShareTime a task costs the mean time of the attempts of its key, or of all.
func TestShareTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, err := task.Open(ctx, new(memory.Store), "q", &task.Options[int]{ShareTime: true})
		require.NoError(t, err)
		take := func(key string, cost int64) *task.Task[int] {
			t.Helper()
			_, err := q.Put(ctx, key, 1, task.PutOptions{})
			require.NoError(t, err)
			taken, err := q.Take(ctx)
			require.NoError(t, err)
			require.Equal(t, cost, taken.Info().Cost)
			return taken
		}
		one := take("a", 1000) // nothing was learned
		time.Sleep(2 * time.Second)
		require.NoError(t, one.Ack(ctx))
		one = take("a", 2000)
		time.Sleep(time.Hour)
		require.NoError(t, one.Return(ctx)) // does not count
		one, err = q.Take(ctx)
		require.NoError(t, err)
		time.Sleep(time.Hour) // it was taken ahead
		one.Begin()
		time.Sleep(10 * time.Second)
		one.End()
		time.Sleep(time.Hour) // the database is away
		one.End()
		one.Begin()
		next := new(task.Task[int])
		_, err = q.NewConsumer(task.Filter{}).AckAndTake(ctx, one, next)
		require.NoError(t, err)
		one = take("a", 3000) // an eighth of 10 s, and seven of 2
		require.NoError(t, one.Discard(ctx, nil))
		one = take("b", 2625) // the mean of all: an eighth of 0, and seven of 3 s
		time.Sleep(24 * time.Hour)
		require.NoError(t, one.Discard(ctx, nil))
		take("b", (65_536_000+7*2625)/8) // one attempt is at most 65,536 s
		_, err = q.Put(ctx, "a", 1, task.PutOptions{Cost: 1})
		require.ErrorContains(t, err, "PutOptions.Cost is 1; it must be 0 with Options.ShareTime")
		require.NoError(t, q.Close(ctx))
	})
}

// A cost out of range is an error that names it and the limits, and puts nothing.
func TestBadCosts(t *testing.T) {
	ctx := t.Context()
	for quantum, limit := range map[int64]int64{
		0: fairq.MaxCost, 10: 655_360, fairq.MaxQuantum: fairq.MaxCost,
	} {
		o := task.Options[int]{Quantum: quantum, Weight: func(string) int { return fairq.MaxWeight }}
		q, err := task.Open(ctx, new(memory.Store), "q", &o)
		require.NoError(t, err)
		require.NoError(t, second(q.Put(ctx, "a", 1, task.PutOptions{Cost: limit})))
		for _, cost := range []int64{-1, limit + 1, math.MinInt64, math.MaxInt64} {
			bad := task.PutOptions{Cost: cost}
			ids, batch := q.PutBatch(ctx, []task.Entry[int]{{Key: "a"}, {Key: "a", Options: bad}})
			require.Len(t, ids, 1)
			for _, err := range []error{second(q.Put(ctx, "a", 1, bad)), batch} {
				require.ErrorIs(t, err, task.ErrCost)
				require.ErrorContains(t, err,
					fmt.Sprintf("it is %d for a task of key \"a\"; with Options.Quantum %d "+
						"the limits are 1 and %d", cost, quantum, limit))
			}
		}
		require.NoError(t, q.Close(ctx))
	}
}
