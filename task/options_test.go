package task_test

import (
	"context"
	"errors"
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
		"Options.PriorCost is -1":         {Quantum: 1, PriorCost: -1},
		"Options.PriorCost is 1":          {PriorCost: 1},
		"Options.PriorCost is 65537":      {Quantum: 1, PriorCost: 1<<16 + 1},
		"Options.KeyRate.Limit is 0":      {KeyRate: task.Rate{Burst: 1}},
		"Options.KeyRate.Limit is -1":     {KeyRate: task.Rate{Limit: -1}},
		"Options.KeyRate.Limit is NaN":    {KeyRate: task.Rate{Limit: math.NaN()}},
		"Options.KeyRate.Limit is +Inf":   {KeyRate: task.Rate{Limit: math.Inf(1)}},
		"Options.KeyRate.Limit is 1.1e":   {KeyRate: task.Rate{Limit: 1.1e9}},
		"Options.KeyRate.Burst is -1":     {KeyRate: task.Rate{Limit: 1, Burst: -1}},
		"Options.KeyRate.Burst is 1000":   {KeyRate: task.Rate{Limit: 1, Burst: task.MaxRate + 1}},
		"Options.Rate.Limit is 0":         {Rate: task.Rate{Burst: 1}},
		"Options.PriorCost is 1; ":        {KeyRate: task.Rate{Limit: 1}, Quantum: 1, PriorCost: 1},
		"Options.PriorCost is 1; it":      {Rate: task.Rate{Limit: 1}, Quantum: 1, PriorCost: 1},
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
		_, err := q.Put(ctx, "a", 1, o)
		requireField(t, err, field)
		_, err = q.PutWait(ctx, "a", 1, o)
		requireField(t, err, field)
		ids, err := q.PutBatch(ctx, []task.Entry[int]{{Key: "a"}, {Key: "a", Options: o}, {Key: "a"}})
		requireField(t, err, field)
		require.Len(t, ids, 1)
		require.NoError(t, q.Delete(ctx, ids[0]))
	}
	_, err = q.Put(ctx, long, 1, task.PutOptions{})
	requireField(t, err, "the key")
	weight = 0
	_, err = q.Put(ctx, "a", 1, task.PutOptions{})
	require.ErrorIs(t, err, fairq.ErrWeight)
	weight = 1

	_, err = q.TakeBatch(ctx, 0)
	requireField(t, err, "TakeBatch: the number")
	_, _, err = q.NewConsumer(task.Filter{}).Watch(func() {}).TakeBatch(ctx, task.MaxBatch+1)
	requireField(t, err, "TakeBatch: the number")
	_, err = q.Kick(ctx, task.ListOptions{Limit: -1})
	requireField(t, err, "ListOptions.Limit")
	for field, o := range map[string]task.ListOptions{
		"State": {State: task.Ready}, "Group": {Group: "g"}, "After": {After: 1},
	} {
		_, err = q.Kick(ctx, o)
		requireField(t, err, "Kick: ListOptions."+field)
	}
	_, err = q.Count(ctx, task.ListOptions{State: 77})
	requireField(t, err, "ListOptions.State is State(77)")
	_, err = q.List(ctx, task.ListOptions{Limit: -1})
	requireField(t, err, "ListOptions.Limit")
	_, err = q.KeyStats(ctx, -1, fairq.ByBacklog)
	requireField(t, err, "KeyStats: the number")
	for _, n := range []int{-1, task.MaxBatch + 1} {
		_, err = q.Upcoming(ctx, n)
		requireField(t, err, "Upcoming: the number")
	}
	_, err = q.List(ctx, task.ListOptions{State: 77})
	requireField(t, err, "ListOptions.State is State(77)")

	s, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, s.Len())

	_, err = q.Put(ctx, "a", 1, task.PutOptions{})
	require.NoError(t, err)
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
	_, err = nobody.Take(ctx)
	requireField(t, err, "the Consumer")
	_, _, err = nobody.TryTake(ctx)
	requireField(t, err, "the Consumer")
	_, err = nobody.TakeBatch(ctx, 1)
	requireField(t, err, "the Consumer")
	_, _, err = new(task.Watch[int]).Take(ctx, nil)
	requireField(t, err, "the Consumer")
	requireField(t, nobody.Disconnect(ctx), "the Consumer")
	requireField(t, nobody.Close(ctx), "the Consumer")
	requireField(t, nobody.ReleaseAll(ctx), "the Consumer")
	_, err = nobody.TakeID(ctx, 1)
	requireField(t, err, "the Consumer")
	_, err = nobody.AckAndTake(ctx, one, new(task.Task[int]))
	requireField(t, err, "the Consumer")
	nobody = nil
	_, err = nobody.Take(ctx)
	requireField(t, err, "the Consumer")
	requireField(t, nobody.Close(ctx), "the Consumer")
	require.Equal(t, "q", q.Name())
	require.NoError(t, q.Close(ctx))
	require.ErrorIs(t, one.Ack(ctx), task.ErrClosed)
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
		for _, cost := range []int64{-1, limit + 1, math.MinInt64, math.MaxInt64} {
			bad := task.PutOptions{Cost: cost}
			_, err := q.Put(ctx, "a", 1, bad)
			_, waits := q.PutWait(ctx, "a", 1, bad)
			ids, batch := q.PutBatch(ctx,
				[]task.Entry[int]{{Key: "a"}, {Key: "a", Options: bad}, {Key: "a"}})
			for _, err := range []error{err, waits, batch} {
				require.ErrorIs(t, err, task.ErrCost)
				require.ErrorContains(t, err,
					fmt.Sprintf("it is %d for a task of key \"a\"; with Options.Quantum %d "+
						"the limits are 1 and %d", cost, quantum, limit))
			}
			require.Len(t, ids, 1)
		}
		_, err = q.Put(ctx, "a", 1, task.PutOptions{Cost: limit})
		require.NoError(t, err)
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 5, s.Len())
		require.NoError(t, q.Close(ctx))
	}
}

// Times far beyond what a clock can tell do no harm.
func TestHugeTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, err := task.Open[int](ctx, new(memory.Store), "q", nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, q.Close(ctx)) }()
		id, err := q.Put(ctx, "a", 1, task.PutOptions{TTL: task.MaxDuration, TTR: task.MaxDuration})
		require.NoError(t, err)
		one, err := q.Take(ctx)
		require.NoError(t, err)
		for range 5 {
			require.NoError(t, one.Touch(ctx, task.MaxDuration))
		}
		for range 5 {
			require.NoError(t, one.Release(ctx, task.MaxDuration))
			require.NoError(t, q.Bury(ctx, id, errors.New("no")))
			require.NoError(t, q.KickID(ctx, id))
			one, err = q.Take(ctx)
			require.NoError(t, err)
		}
		require.NoError(t, one.Ack(ctx))

		later := []time.Time{time.Unix(1<<34, 0), time.Date(9999, 12, 31, 23, 59, 59, 999, time.UTC)}
		for _, deadline := range later {
			id, err := q.Put(ctx, "a", 1,
				task.PutOptions{Deadline: deadline, TTL: task.MaxDuration, Delay: task.MaxDuration})
			require.NoError(t, err)
			one, err := q.Peek(ctx, id)
			require.NoError(t, err)
			require.True(t, deadline.Equal(one.Info().Deadline))
			require.WithinDuration(t, one.Info().Created.Add(2*task.MaxDuration), one.Info().Expires, 0)
			id, err = q.Put(ctx, "a", 1, task.PutOptions{Deadline: deadline})
			require.NoError(t, err)
			one, err = q.Take(ctx)
			require.NoError(t, err)
			require.Equal(t, id, one.ID)
			require.True(t, deadline.Equal(one.Info().Expires))
			require.NoError(t, one.Snooze(ctx, task.MaxDuration))
		}
		for _, deadline := range []time.Time{
			time.Unix(-1<<40, 0), time.Unix(-1<<60, 0), time.Time{}.Add(1),
		} {
			id, err := q.Put(ctx, "a", 1, task.PutOptions{Deadline: deadline})
			require.NoError(t, err)
			_, err = q.Peek(ctx, id)
			require.ErrorIs(t, err, task.ErrNotFound)
		}
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 2*len(later), s.Delayed)
	})
}

// A queue remembers nothing of many kinds and priorities that are gone.
func TestManyKinds(t *testing.T) {
	ctx := t.Context()
	q, err := task.Open[int](ctx, new(memory.Store), "q", nil)
	require.NoError(t, err)
	for i := range 100 {
		_, err := q.Put(ctx, string(rune('a'+i%7)), i,
			task.PutOptions{Kind: string(rune('a' + i)), Priority: i})
		require.NoError(t, err)
	}
	for range 100 {
		one, err := q.Take(ctx)
		require.NoError(t, err)
		require.NoError(t, one.Ack(ctx))
	}
}

// The cost that ReportCost reports for a key is the cost of its tasks that are put without a Cost.
func TestLearnedCosts(t *testing.T) {
	ctx := t.Context()
	q, err := task.Open(ctx, new(memory.Store), "q", &task.Options[int]{Quantum: 2, PriorCost: 20})
	require.NoError(t, err)
	cost := func(key string, options task.PutOptions) int64 {
		id, err := q.Put(ctx, key, 1, options)
		require.NoError(t, err)
		found, err := q.Peek(ctx, id)
		require.NoError(t, err)
		return found.Info().Cost
	}
	for range 100 {
		require.NoError(t, q.ReportCost("low", 0))              // counts as one unit
		require.NoError(t, q.ReportCost("high", math.MaxInt64)) // counts as the limit
	}
	require.NoError(t, q.ReportCost("once", 100))
	require.EqualValues(t, 1, cost("low", task.PutOptions{}))
	require.EqualValues(t, 131_071, cost("high", task.PutOptions{}), "not quite: it is rounded down")
	require.EqualValues(t, 30, cost("once", task.PutOptions{}), "an eighth of 100, and seven of 20")
	require.EqualValues(t, 20, cost("new", task.PutOptions{}))
	require.EqualValues(t, 5, cost("high", task.PutOptions{Cost: 5}))
	ids, err := q.PutBatch(ctx, []task.Entry[int]{{Key: "low"}, {Key: "once"}})
	require.NoError(t, err)
	require.Len(t, ids, 2)
	var order []string
	for {
		taken, ok, err := q.TryTake(ctx)
		require.NoError(t, err)
		if !ok {
			break
		}
		order = append(order, taken.Key)
	}
	require.Equal(t, []string{"low", "high", "once", "new", "low", "once", "high"}, order)
	require.ErrorIs(t, q.ReportCost("low", -1), task.ErrCost)
	require.True(t, q.TakesCosts())
	require.NoError(t, q.Close(ctx))
	q, err = task.Open(ctx, new(memory.Store), "q", &task.Options[int]{Quantum: 2})
	require.NoError(t, err)
	require.False(t, q.TakesCosts())
	require.ErrorIs(t, q.ReportCost("low", 1), task.ErrInvalid)
	require.NoError(t, q.Close(ctx))
}
