package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/internal/faulttest"
)

// TestChild is what the processes run that other tests start.
func TestChild(*testing.T) { faulttest.Child(openFaulty, nil) }

// dialled is a Store with the client that is closed after it.
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
	s, err := Open(ctx, client, &Options{
		Prefix: prefix, MaxOps: maxOps, History: time.Hour, Poll: time.Minute, Skew: time.Millisecond,
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return dialled{s, client}, nil
}

func TestKill(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newDatabase(t))
}

func TestWake(t *testing.T) {
	faulttest.Wake(t, openFaulty, newDatabase(t), 50*time.Millisecond)
}

// TestKillMembers kills processes that use three servers, and meanwhile the one that leads.
func TestKillMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("TestKill shows most of it")
	}
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3)
	defer func() { c.kill() }()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Second):
			}
			if m := c.leader(); m != nil {
				m.kill()
				if err := m.start(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	faulttest.Kill(t, openFaulty, c.where()+"#kill/")
	close(stop)
	<-stopped
}

// leader returns the member that leads, nil if there is none.
func (c cluster) leader() *member {
	for _, m := range c {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		client, err := dial(ctx, m.Client)
		if err == nil {
			var s *clientv3.StatusResponse
			if s, err = client.Status(ctx, m.Client); err == nil && s.Leader == s.Header.MemberId {
				_ = client.Close()
				cancel()
				return m
			}
			_ = client.Close()
		}
		cancel()
	}
	return nil
}

func TestOptions(t *testing.T) {
	client := newClient(t)
	for _, o := range []Options{
		{MaxPayload: -1},
		{MaxPayload: maxPayload + 1},
		{MaxOps: 127},
		{MaxOps: 1 << 21},
		{Skew: -1},
		{Poll: -1},
		{Timeout: -1},
		{History: -1},
	} {
		_, err := Open(t.Context(), client, &o)
		require.ErrorContains(t, err, "etcd.Options.")
	}
}
