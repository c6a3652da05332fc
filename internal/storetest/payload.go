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

// pairs opens a queue of pairs, unless payloads are not encoded.
func (e *env) pairs() *task.Queue[pair] {
	e.Helper()
	c := pairCodec{new(atomic.Int64)}
	q, err := task.Open(ctx, e.store, "pairs", &task.Options[pair]{Codec: c})
	e.ok(err)
	e.Cleanup(func() { e.ok(q.Close(ctx)) })
	if _, _ = q.Put(ctx, "a", pair{name: "no"}, task.PutOptions{}); c.calls.Load() == 0 {
		e.skip("payloads are not encoded")
	}
	return q
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
		q := e.pairs()
		for n, want := range []task.Entry[pair]{{Payload: pair{"no", 1}}, {Payload: pair{"x", 1}}} {
			ids, err := q.PutBatch(ctx, []task.Entry[pair]{want, {Payload: pair{"no", 2}}})
			e.is(err, errOops)
			equal(e, "tasks put", len(ids), n)
		}
		s, err := q.Stats(ctx)
		e.ok(err)
		equal(e, "tasks", s.Len(), 1)
	}},
	{"Decode", "stays until it is kicked or deleted", func(e *env) {
		q := e.pairs()
		var ids []task.ID
		for i, name := range []string{"bad", "x", "worse", "y", "bad", "worse", "z"} {
			id, err := q.Put(ctx, "a", pair{name, i}, task.PutOptions{UniqueKey: fmt.Sprint(i)})
			e.ok(err)
			ids = append(ids, id)
		}
		c := q.NewConsumer(task.Filter{})
		t, err := c.Take(ctx)
		e.ok(err)
		next := new(task.Task[pair])
		e.ok(errOf(c.AckAndTake(ctx, t, next)))
		rest, err := q.TakeBatch(ctx, 10)
		e.ok(err)
		equal(e, "tasks of the batch", len(rest), 1)
		equal(e, "payloads", []int{t.Payload.n, next.Payload.n, rest[0].Payload.n}, []int{1, 3, 6})
		_, ok, err := q.TryTake(ctx)
		e.ok(err)
		equal(e, "there is another task", ok, false)
		all, err := q.List(ctx, task.ListOptions{State: task.Buried})
		e.ok(err)
		equal(e, "buried tasks", len(all), 4)
		for i, want := range []string{"oops", "cannot decode", "oops", "cannot decode"} {
			bad := ids[[]int{0, 2, 4, 5}[i]]
			if !strings.Contains(all[i].Info().Err.Message, want) || all[i].ID != bad {
				e.Errorf("task %d is buried because of: %v", all[i].ID, all[i].Info().Err)
			}
		}
	}},
}
