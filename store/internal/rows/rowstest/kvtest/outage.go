package kvtest

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/task"
)

// Proxy connects clients with a server, until it is cut.
type Proxy struct {
	to string

	mu    sync.Mutex // protects what follows
	isCut bool
	conns []net.Conn
}

// NewProxy returns a proxy for the server with an address, and its own address.
func NewProxy(t *testing.T, to string) (p *Proxy, address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p = &Proxy{to: to}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.pass(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		<-done
	})
	return p, l.Addr().String()
}

// pass connects a client with the server.
func (p *Proxy) pass(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server, err := net.Dial("tcp", p.to)
	if p.isCut || err != nil {
		client.Close()
		return
	}
	p.conns = append(p.conns, client, server)
	join := func(from, to net.Conn) {
		_, _ = io.Copy(to, from)
		from.Close()
		to.Close()
	}
	go join(client, server)
	go join(server, client)
}

// Cut ends all connections, and refuses new ones until Mend.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

// Mend lets clients connect again.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

// FreeAddress returns an address without a listener.
func FreeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// OpenQueue opens a queue, which the end of the test closes.
func OpenQueue(t *testing.T, s task.Store) *task.Queue[string] {
	q, err := task.Open(t.Context(), s, "q", &task.Options[string]{Grace: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = q.Close(context.Background()) })
	return q
}

// Put puts a task.
func Put(t *testing.T, q *task.Queue[string], payload string) {
	t.Helper()
	_, err := q.Put(t.Context(), "key", payload, task.PutOptions{})
	require.NoError(t, err)
}

// Waits starts a Take, and returns while it waits.
func Waits(t *testing.T, q *task.Queue[string]) (took chan *task.Task[string]) {
	took = make(chan *task.Task[string], 1)
	go func() {
		one, err := q.Take(t.Context())
		if err == nil {
			took <- one
		}
	}()
	for waiting := 0; waiting == 0; {
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		waiting = stats.WaitingTake
	}
	return took
}

// Missed cuts a proxy while q waits behind it for a task, and puts a task through other. When the
// proxy is mended, q must take that task. missed is called while the proxy is cut.
func Missed(t *testing.T, p *Proxy, q, other *task.Queue[string], missed func()) {
	for range 2 {
		took := Waits(t, q)
		p.Cut()
		Put(t, other, "task")
		missed()
		p.Mend()
		require.Equal(t, "task", (<-took).Payload)
	}
}

// Away tests a store while its server is away behind p. open opens it with an Options.Timeout of a
// second. Its errors have name.
func Away(t *testing.T, p *Proxy, name string, open func() (faulttest.Store, error)) {
	s, err := open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q := OpenQueue(t, s)
	Put(t, q, "a")
	p.Cut()
	for what, call := range map[string]func() error{
		"Put": func() error {
			_, err := q.Put(t.Context(), "key", "b", task.PutOptions{})
			return err
		},
		"Take":    func() error { _, _, err := q.TryTake(t.Context()); return err },
		"History": func() error { _, err := s.History(t.Context(), "q", 0, 1); return err },
		"Queues":  func() error { _, err := s.Queues(t.Context(), "", 1); return err },
		"open a queue": func() error {
			_, err := task.Open[string](t.Context(), s, "other", nil)
			return err
		},
		"open": func() error { _, err := open(); return err },
	} {
		begun := time.Now()
		err := call()
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.ErrorContains(t, err, name, what)
		require.Less(t, time.Since(begun), 10*time.Second, what)
	}
	p.Mend()
	for err = errors.New("away"); err != nil; { // the client waits longer and longer until it dials
		_, err = q.Put(t.Context(), "key", "c", task.PutOptions{})
	}
	for _, want := range []string{"a", "c"} {
		one, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, one.Payload)
		require.Equal(t, 1, one.Attempts)
		require.NoError(t, one.Ack(t.Context()))
	}
}

// Options checks that open refuses each number that is too small or too large, and names it.
func Options[O any](t *testing.T, open func(*O) error) {
	for i := range reflect.TypeFor[O]().NumField() {
		for _, n := range []int64{-1, math.MaxInt64} {
			var o O
			if f := reflect.ValueOf(&o).Elem().Field(i); f.CanInt() {
				f.SetInt(n)
				name := "Options." + reflect.TypeFor[O]().Field(i).Name
				require.ErrorContains(t, open(&o), name)
			}
		}
	}
}
