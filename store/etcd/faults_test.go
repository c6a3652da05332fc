package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

// TestChild is the main function of processes that other tests start.
func TestChild(*testing.T) { faulttest.Child(openFaulty, nil) }

// dialled is a Store with its client, which is closed after it.
type dialled struct {
	*Store
	client *clientv3.Client
}

func (d dialled) Close() error { return errors.Join(d.Store.Close(), d.client.Close()) }

func openFaulty(ctx context.Context, where string) (faulttest.Store, error) {
	client, err := dial(ctx, where)
	if err != nil {
		return nil, err
	}
	_, prefix, _ := strings.Cut(where, "#")
	prefix, fault, _ := strings.Cut(prefix, "?")
	o := &Options{
		Prefix: prefix, MaxOps: maxOps, History: time.Hour, Poll: time.Minute,
		Skew: time.Millisecond,
	}
	if fault == seldom {
		o.Poll = time.Hour
	}
	s, err := open(ctx, kvtest.Faulty{Map: newEngine(client, o), Fault: fault}, o)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return dialled{s, client}, nil
}

// seldom lets waiting calls not poll.
const seldom = "seldom"

func TestKill(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newDatabase(t, 1))
}

// TestKillUnknown does the same, with one commit in ten done and reported as unknown.
func TestKillUnknown(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newDatabase(t, 1)+"?"+kvtest.Unknown)
}

func TestUnguarded(t *testing.T) {
	kvtest.Finds(t, openFaulty, func() string { return newDatabase(t, 1) + "?" + kvtest.Unguarded })
}

func TestWake(t *testing.T) {
	faulttest.Wake(t, openFaulty, newDatabase(t, 1)+"?"+seldom)
}

// TestKillMembers kills processes that use three servers, and at the same time the leader.
func TestKillMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("TestKill shows most of it")
	}
	c := newCluster(t, t.TempDir(), 3, 0, 0)
	defer func() { c.kill() }()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan int)
	go func() {
		killed := 0
		for {
			m := c.await(ctx, func(s *clientv3.StatusResponse) bool {
				return s.Leader == s.Header.MemberId
			})
			if m == nil {
				stopped <- killed
				return
			}
			m.kill()
			killed++
			if err := m.start(); err != nil {
				t.Error(err)
			}
			// One of three may be away, not two. So the next server is killed when this one is
			// back, and when all calls whose commits it has lost have returned. Otherwise a call
			// could meet one after the other.
			cluster{m}.await(ctx, func(s *clientv3.StatusResponse) bool { return s.Leader != 0 })
			_ = rows.Pause(ctx, kv.AnswerTimeout)
		}
	}()
	faulttest.KillLate(t, openFaulty, c.where()+"#kill/")
	stop()
	t.Log("leaders killed:", <-stopped)
}

// await returns the first member for whose status is returns true, or nil if ctx is done before.
func (c cluster) await(ctx context.Context, is func(*clientv3.StatusResponse) bool) *member {
	for ctx.Err() == nil {
		for _, m := range c {
			if s, err := m.status(ctx); err == nil && is(s) {
				return m
			}
		}
		_ = rows.Pause(ctx, 50*time.Millisecond)
	}
	return nil
}

// status asks a member for its status.
func (m *member) status(ctx context.Context) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Client}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Status(ctx, m.Client)
}

// A request without an answer is repeated, until the transaction has taken too long.
func TestAnswerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*kv.AnswerTimeout+time.Second)
		defer cancel()
		x, begun, asked := new(engine), time.Now(), 0
		silentFor := func(n int) func(context.Context) error {
			return func(ctx context.Context) error {
				if asked++; asked <= n {
					return rows.Pause(ctx, time.Hour)
				}
				return nil
			}
		}
		require.NoError(t, x.exchange(ctx, silentFor(2)))
		require.Equal(t, 3, asked)
		require.Less(t, time.Since(begun), 2*kv.AnswerTimeout+time.Second)
		require.ErrorIs(t, x.exchange(ctx, silentFor(9)), context.DeadlineExceeded)
		require.Equal(t, 3*kv.AnswerTimeout+time.Second, time.Since(begun))
	})
}

func TestOptions(t *testing.T) {
	client := newClient(t, 1)
	kvtest.Options(t, func(o *Options) error {
		_, err := Open(t.Context(), client, o)
		return err
	})
	_, err := Open(t.Context(), client, &Options{Prefix: "no/", KeepSchema: true})
	require.EqualError(t, err, "etcd: no/: open: there is no store")
}
