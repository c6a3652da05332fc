package storetest

import (
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/fairq/fairq/task"
)

// pair is a payload that is not a string.
type pair struct {
	name string
	n    int
}

// pairCodec encodes pairs. With some names it cannot.
type pairCodec struct{ calls *atomic.Int64 }

func (c pairCodec) Encode(p pair) ([]byte, error) {
	c.calls.Add(1)
	if p.name == "no" {
		return nil, errOops
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(p.n)), p.name...), nil
}

func (c pairCodec) Decode(data []byte) (pair, error) {
	p := pair{string(data[4:]), int(binary.LittleEndian.Uint32(data))}
	switch p.name {
	case "bad":
		return p, errOops
	case "worse":
		panic("cannot decode")
	}
	return p, nil
}

// bareCodec takes strings as they are.
type bareCodec struct{}

func (bareCodec) Encode(s string) ([]byte, error)    { return []byte(s), nil }
func (bareCodec) Decode(data []byte) (string, error) { return string(data), nil }

// pairs opens a queue of pairs.
func (e *env) pairs() (*task.Queue[pair], *atomic.Int64) {
	e.Helper()
	c := pairCodec{new(atomic.Int64)}
	q, err := task.Open(ctx, e.store, "pairs", &task.Options[pair]{Codec: c})
	e.ok(err)
	e.Cleanup(func() {
		if err := q.Close(ctx); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	return q, c.calls
}

// roundTrip puts and takes payloads.
func roundTrip[P any](e *env, name string, codec task.Codec[P], payloads ...P) {
	e.Helper()
	q, err := task.Open(ctx, e.store, name, &task.Options[P]{Codec: codec})
	e.ok(err)
	for _, want := range payloads {
		id, err := q.Put(ctx, "a", want, task.PutOptions{})
		e.ok(err)
		t, err := q.Peek(ctx, id)
		e.ok(err)
		equal(e, "payload, by Peek", t.Payload, want)
		t, err = q.Take(ctx)
		e.ok(err)
		equal(e, "payload", t.Payload, want)
		e.ok(t.Ack(ctx))
	}
	e.ok(q.Close(ctx))
}

var payloadCases = []testCase{
	{"RoundTrip", "encodes and decodes payloads, where the Store writes them down", func(e *env) {
		roundTrip(e, "strings", nil, "", " ", "\x00", "ü\n\"'\\", strings.Repeat("x", 1<<20))
		roundTrip(e, "pairs", pairCodec{new(atomic.Int64)}, pair{"x", 0}, pair{"", 1},
			pair{"x\x00\xff", 2})
		roundTrip(e, "maps", nil, map[string][]int{"a": {1, 2}, "b": {}}, nil)
	}},
	{"Format", "Open refuses another Format for a queue that has tasks", func(e *env) {
		q := e.open()
		q.put("a1")
		refused := func(with string) {
			e.Helper()
			_, err := task.Open[int](ctx, e.store, "queue", nil)
			e.is(err, task.ErrInvalid)
			_, err = task.Open(ctx, e.store, "queue", &options{Codec: bareCodec{}})
			e.is(err, task.ErrInvalid)
			if !strings.Contains(err.Error(), "Options.Format") {
				e.Fatalf("with the queue %s: %v", with, err)
			}
		}
		refused("open")
		q.close()
		refused("closed")
		e.open(options{Codec: bareCodec{}, Format: "task.jsonCodec[string]"}).counts(1, 0, 0, 0, 0)
		e.open().first("a1").ack()
	}},
	{"Encode", "If it returns an error there is no new task", func(e *env) {
		q, calls := e.pairs()
		_, err := q.Put(ctx, "a", pair{"no", 1}, task.PutOptions{})
		if calls.Load() == 0 {
			e.skip("payloads are not encoded")
		}
		e.is(err, errOops)
		ids, err := q.PutBatch(ctx,
			[]task.Entry[pair]{{Key: "a", Payload: pair{"x", 1}}, {Key: "a", Payload: pair{"no", 2}}})
		e.is(err, errOops)
		equal(e, "tasks put", len(ids), 1)
		s, err := q.Stats(ctx)
		e.ok(err)
		equal(e, "tasks", s.Len(), 1)
	}},
	{"Decode", "stays until it is kicked or deleted", func(e *env) {
		q, calls := e.pairs()
		ids := map[string]task.ID{}
		for i, name := range []string{"bad", "x", "worse", "y", "bad", "worse", "z"} {
			var err error
			ids[name], err = q.Put(ctx, "a", pair{name, i}, task.PutOptions{UniqueKey: fmt.Sprint(i)})
			e.ok(err)
		}
		if calls.Load() == 0 {
			e.skip("payloads are not encoded")
		}
		c := q.NewConsumer(task.Filter{})
		t, err := c.Take(ctx)
		e.ok(err)
		got := []int{t.Payload.n}
		next := new(task.Task[pair])
		_, err = c.AckAndTake(ctx, t, next)
		e.ok(err)
		got = append(got, next.Payload.n)
		rest, err := q.TakeBatch(ctx, 10)
		e.ok(err)
		equal(e, "tasks of the batch", len(rest), 1)
		equal(e, "payloads", append(got, rest[0].Payload.n), []int{1, 3, 6})
		_, ok, err := q.TryTake(ctx)
		e.ok(err)
		equal(e, "there is another task", ok, false)
		for name, want := range map[string]string{"bad": "oops", "worse": "cannot decode"} {
			all, err := q.List(ctx, task.ListOptions{State: task.Buried, After: ids[name] - 1, Limit: 1})
			e.ok(err)
			if len(all) != 1 || all[0].ID != ids[name] || all[0].Info().Err == nil ||
				!strings.Contains(all[0].Info().Err.Message, want) {
				e.Errorf("task %d should be buried because of: %s", ids[name], want)
			}
		}
		s, err := q.Stats(ctx)
		e.ok(err)
		equal(e, "buried tasks", s.Buried, 4)
	}},
}
