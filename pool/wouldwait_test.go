package pool_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// nesting runs tasks whose handlers wait in Do for others. The payload has the keys that are still
// to come, its own first, and a number: the handler of "a>b>a 7" waits for a task "b>a 7" of key
// b. Each works for a second before that, and after it.
type nesting struct {
	*testing.T
	p      *pool.Pool[string]
	limits map[byte]int // of keys

	mu      sync.Mutex
	running map[string]bool // the payloads of running tasks; true if they wait in Do
}

func (n *nesting) handle(ctx context.Context, t *task.Task[string]) error {
	set := func(f func()) {
		n.mu.Lock()
		defer n.mu.Unlock()
		f()
	}
	set(func() { n.running[t.Payload] = false })
	defer set(func() { delete(n.running, t.Payload) })
	time.Sleep(time.Second)
	defer time.Sleep(time.Second)
	_, inside, ok := strings.Cut(t.Payload, ">")
	if !ok {
		return nil
	}
	set(func() { n.running[t.Payload] = true })
	err := n.do(ctx, inside)
	set(func() {
		if err == pool.ErrWouldWait && n.couldStart(inside[0]) { //nolint:errorlint // no other task's
			n.Errorf("%q could start beside %v", inside, n.running)
		}
		n.running[t.Payload] = false
	})
	return err
}

func (n *nesting) do(ctx context.Context, payload string) error {
	o := pool.PutOptions{}
	if n.p.Queue(payload[:1]) != nil {
		o.Class = payload[:1]
	}
	return n.p.Do(ctx, payload[:1], payload, o)
}

// couldStart reports whether a task of a key could start at last, if all other tasks end that can:
// a task that waits in Do ends if the task inside it can start, or has ended.
func (n *nesting) couldStart(key byte) bool {
	ended, held := map[string]bool{}, map[byte]int{}
	for payload := range n.running {
		held[payload[0]]++
	}
	isFull := func(key byte) bool { return held[key] >= n.limits[key] }
	for before := -1; before < len(ended); {
		before = len(ended)
		for payload, waits := range n.running {
			_, inside, _ := strings.Cut(payload, ">")
			_, runs := n.running[inside]
			if waits && (runs && !ended[inside] || !runs && isFull(inside[0])) || ended[payload] {
				continue
			}
			ended[payload] = true
			held[payload[0]]--
		}
	}
	return !isFull(key)
}

// run runs some tasks in a pool with a limit for each key, and others for some keys. It returns
// how many have failed because a task inside them could never have started.
func (n *nesting) run(
	ctx context.Context, o pool.Options[string], limits string, paths ...string,
) (failed int) {
	n.limits, n.running = map[byte]int{}, map[string]bool{}
	o.Workers, o.Policy.MaxAttempts, o.Queue.MaxInFlightPerKey = 8, 1, int(limits[0]-'0')
	n.p = openFunc(n.T, n.handle, o)
	for i, key := range []string{"a", "b", "c"} {
		limit := int(limits[i] - '0')
		n.limits[key[0]] = limit
		if limits[i] != limits[0] {
			require.NoError(n, n.p.Queue("").SetKey(ctx, key, &task.KeyLimits{MaxInFlight: limit}))
		}
	}
	var all sync.WaitGroup
	errs := make([]error, len(paths))
	for i, path := range paths {
		all.Go(func() {
			limited, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			errs[i] = n.do(limited, fmt.Sprint(path, " ", i))
		})
		synctest.Wait()
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			failed++
			require.EqualError(n, err, pool.ErrWouldWait.Error(), paths[i])
		}
	}
	end(n.T, ctx, n.p)
	return failed
}

// A handler that waits in Do for a task that can never start gets an error at once: the last one
// to come, if several wait for each other. Waiting for ordinary tasks is no error, however long.
func TestDoWouldWait(t *testing.T) {
	var none, inOrder, classes pool.Options[string]
	inOrder.Policy.InOrder = true
	classes.Classes = []pool.Class[string]{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for _, c := range []struct {
		limits string // of a, b and c
		paths  string
		failed int
		o      pool.Options[string]
	}{
		{"111", "a>b", 0, none},
		{"111", "a>b>c", 0, none},
		{"111", "a>a", 1, none},
		{"111", "a>b>a", 1, none},
		{"111", "a>b, b>a", 1, none},
		{"111", "a>b, b>c, c>a", 1, none},
		{"111", "a>b, c>b, b", 0, none},
		{"222", "a>a", 0, none},
		{"222", "a>a>a", 1, none},
		{"222", "a>a, a>a", 1, none},
		{"222", "a>a, a", 0, none},
		{"222", "a>b>a", 0, none},
		{"333", "a>a>a", 0, none},
		{"333", "a>a>a>a", 1, none},
		{"121", "a>b>a", 1, none}, // b has room, but its task runs already
		{"121", "a>b, b>a", 0, none},
		{"211", "b>a>b", 1, none},
		{"111", "a>a", 1, inOrder},
		{"111", "a>b>a", 1, classes},
		{"111", "a>b>c", 0, classes},
	} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			n := &nesting{T: t}
			require.Equal(t, c.failed, n.run(ctx, c.o, c.limits, strings.Split(c.paths, ", ")...), c.paths)
		})
	}
}

// Whatever tasks wait for each other, all waits end, and an error comes only where one would not.
func TestDoAlwaysEnds(t *testing.T) {
	failed := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var paths []string
			for range 1 + r.IntN(6) {
				path := "abc"[r.IntN(3):][:1]
				for r.IntN(3) > 0 {
					path += ">" + "abc"[r.IntN(3):][:1]
				}
				paths = append(paths, path)
			}
			n := &nesting{T: t}
			limits := fmt.Sprint(111 + r.IntN(3) + 10*r.IntN(3) + 100*r.IntN(3))
			failed += n.run(ctx, pool.Options[string]{}, limits, paths...)
		})
	}
	require.Greater(t, failed, 30)
}

// Without limits a task may wait for itself too: directly, or through a task that it waits for.
func TestDoWouldWaitForItself(t *testing.T) {
	of := pool.PutOptions{PutOptions: task.PutOptions{UniqueKey: "u", Group: "g"}}
	for _, c := range []struct {
		inside pool.PutOptions
		want   error
	}{
		{pool.PutOptions{PutOptions: task.PutOptions{
			UniqueKey: "u", Group: "g", Replace: true,
		}}, pool.ErrWouldWait},
		{pool.PutOptions{PutOptions: task.PutOptions{
			Group: "g", Role: task.AtEnd,
		}}, pool.ErrWouldWait},
		{pool.PutOptions{PutOptions: task.PutOptions{UniqueKey: "u"}}, task.ErrDuplicate},
		{pool.PutOptions{PutOptions: task.PutOptions{Group: "g"}}, nil},
		{pool.PutOptions{}, nil},
	} {
		for between := range 2 {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var p *pool.Pool[int]
				var got error
				p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
					switch {
					case tk.Payload < between:
						return p.Do(ctx, "a", tk.Payload+1, pool.PutOptions{})
					case tk.Payload == between:
						got = p.Do(ctx, "a", 2, c.inside)
					}
					return nil
				}, pool.Options[int]{})
				_, err := p.Put(ctx, "a", 0, of)
				require.NoError(t, err)
				require.NoError(t, p.Queue("").StartGroup(ctx, "g"))
				wait(t, p)
				require.Equal(t, c.want != nil, got != nil)
				require.ErrorIs(t, got, c.want)
				end(t, ctx, p)
			})
		}
	}
}
