package redis

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
	"github.com/fairq/fairq/task"
)

// While the server is away calls return an error that says so after Options.Timeout, and work
// again when it is back.
func TestAway(t *testing.T) {
	_, prefix, _ := strings.Cut(newDatabase(t), "#")
	p, through := kvtest.NewProxy(t, shared.address)
	client, _ := newClient(t, "redis://"+through)
	kvtest.Away(t, p, "redis: "+prefix, func() (faulttest.Store, error) {
		o := &Options{Prefix: prefix, Timeout: time.Second}
		return open(t.Context(), newEngine(client, o), o)
	})
}

// A process subscribes again after it has lost its connection, and its waiting calls look then.
func TestSubscribedAgain(t *testing.T) {
	where := newDatabase(t)
	_, prefix, _ := strings.Cut(where, "#")
	p, through := kvtest.NewProxy(t, shared.address)
	q := kvtest.OpenQueue(t, openStore(t, "redis://"+through+"/#"+prefix, Options{Poll: time.Hour}))
	other := kvtest.OpenQueue(t, openStore(t, where, Options{}))
	kvtest.Missed(t, p, q, other, func() {})
}

// deaf is a connection that loses a reply now and then, and ends.
type deaf struct {
	net.Conn
	replies *atomic.Int64
}

func (d deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.replies.Add(1)%7 == 0 {
		d.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// A call whose answer is lost is done once: the client does not send a commit again, and the Store
// finds out.
func TestLostReplies(t *testing.T) {
	where := newDatabase(t)
	client, prefix := newClient(t, where)
	var replies atomic.Int64
	o := *client.Options()
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return deaf{c, &replies}, err
	}
	losing := redis.NewClient(&o)
	defer losing.Close()
	s, err := open(t.Context(), newEngine(losing, &Options{Prefix: prefix}), &Options{Prefix: prefix})
	require.NoError(t, err)
	defer s.Close()
	q := kvtest.OpenQueue(t, s)
	const n = 200
	for i := range n {
		kvtest.Put(t, q, fmt.Sprint(i))
		one, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), one.Payload)
		require.Equal(t, 1, one.Attempts)
		require.NoError(t, one.Ack(t.Context()))
	}
	require.Greater(t, replies.Load(), int64(n))
}

// A full server refuses a Put, and nothing has changed. Tasks can be taken and acked.
func TestFull(t *testing.T) {
	s := newServer(t, t.TempDir(), "--maxmemory", "8mb")
	t.Cleanup(s.kill)
	client, _ := newClient(t, s.url(""))
	q := kvtest.OpenQueue(t, openStore(t, s.url("{full}"), Options{}))
	var err error
	put := 0
	for ; err == nil; put++ {
		require.Less(t, put, 100)
		_, err = q.Put(t.Context(), "key", strings.Repeat("x", 400_000), task.PutOptions{})
	}
	require.ErrorContains(t, err, `task: Put, queue "q": redis: {full}: commit: `)
	require.ErrorContains(t, err, "OOM command not allowed when used memory > 'maxmemory'")
	taken, err := q.TakeBatch(t.Context(), put)
	require.NoError(t, err)
	require.Len(t, taken, put-1)
	for _, one := range taken {
		require.NoError(t, one.Ack(t.Context()))
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	kvtest.Put(t, q, "")
}

// A replica that is promoted has not got the last commit. A transaction that has read it is in
// conflict, before and after the replica has newer versions. So is a later read from a replica
// that has not got the moment of the first one. A commit at a replica returns READONLY.
func TestFailover(t *testing.T) {
	ctx, second := t.Context(), newServer(t, t.TempDir())
	t.Cleanup(second.kill)
	first := newServer(t, t.TempDir(), "--repl-diskless-sync-delay", "0")
	t.Cleanup(first.kill)
	before, after := newMap(t, first.url("")), newMap(t, second.url(""))
	replica := after.client.(*redis.Client)
	key := []byte("a")
	read := func(e *engine, want string) any {
		found, err := e.Read(ctx, nil, [][]byte{key}, nil)
		require.NoError(t, err)
		require.Equal(t, want, string(found.Keys[0].Value))
		return found.At
	}
	set := func(e *engine, at any, value string) error {
		return e.Commit(ctx, at, []kv.Guard{{From: key}}, nil,
			[]*kv.Entry{{Key: key, Value: []byte(value)}})
	}
	require.NoError(t, set(before, read(before, ""), "both"))
	host, port, err := net.SplitHostPort(first.address)
	require.NoError(t, err)
	require.NoError(t, replica.ReplicaOf(ctx, host, port).Err())
	for info := ""; !strings.Contains(info, "master_link_status:up"); {
		info = replica.Info(ctx, "replication").Val()
	}
	require.NoError(t, replica.ReplicaOf(ctx, "127.0.0.1", "1").Err()) // it gets no more
	require.NoError(t, set(before, read(before, "both"), "lost"))
	lost := read(before, "lost")
	conflict := func() {
		_, err := after.Read(ctx, lost, [][]byte{key}, nil)
		require.ErrorIs(t, err, kv.ErrConflict)
	}
	conflict()
	require.ErrorContains(t, set(after, read(after, "both"), ""), "READONLY")
	require.NoError(t, replica.ReplicaOf(ctx, "NO", "ONE").Err())
	for range 2 {
		conflict()
		require.ErrorIs(t, set(after, lost, ""), kv.ErrConflict)
		require.NoError(t, after.Commit(ctx, read(after, "both"), nil, nil, nil))
	}
	deleted := read(after, "both")
	require.NoError(t, replica.FlushAll(ctx).Err())
	require.ErrorIs(t, set(after, deleted, ""), kv.ErrConflict)
}

// A commit that began ten seconds before the last one is in conflict, because the server forgets
// older commits. If its clock goes back by more, no older transaction can commit.
func TestForgets(t *testing.T) {
	e, ctx := newMap(t, newDatabase(t)), t.Context()
	now := func() any {
		found, err := e.Read(ctx, nil, nil, nil)
		require.NoError(t, err)
		return found.At
	}
	write := func(at any) error {
		return e.Commit(ctx, at, nil, nil, []*kv.Entry{{Key: []byte("a")}})
	}
	require.NoError(t, write(now()))
	old := now()
	require.NoError(t, write(old))
	require.NoError(t, write(old)) // it guards nothing
	require.NoError(t, e.client.HIncrBy(ctx, e.keys[3], "version", 11e6).Err())
	require.ErrorIs(t, write(old), kv.ErrConflict)
	ahead := now()
	require.NoError(t, write(ahead))
	require.ErrorIs(t, write(ahead), kv.ErrConflict)
	require.EqualValues(t, 1, e.client.ZCard(ctx, e.keys[2]).Val(), "it has forgotten the others")
	require.NoError(t, write(now()))
}

// A server may be a cluster, and a store have a client of its own, in another database.
func TestOpen(t *testing.T) {
	where, _, _ := strings.Cut(newDatabase(t), "#")
	cluster := newServer(t, t.TempDir(), "--cluster-enabled", "yes")
	t.Cleanup(cluster.kill)
	client, _ := newClient(t, cluster.url(""))
	require.NoError(t, client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	for info := ""; !strings.Contains(info, "cluster_state:ok"); {
		info = client.ClusterInfo(t.Context()).Val()
	}
	nodes := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster.address}})
	defer nodes.Close()
	inCluster, err := OpenClient(t.Context(), nodes, nil)
	require.NoError(t, err)
	own, err := Open(t.Context(), where+"2", nil)
	require.NoError(t, err)
	for i, s := range []*Store{own, inCluster} {
		q := kvtest.OpenQueue(t, s)
		kvtest.Put(t, q, fmt.Sprint(i))
		one, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), one.Payload)
		require.NoError(t, q.Close(t.Context()))
		require.NoError(t, s.Close())
	}
}

func TestOptions(t *testing.T) {
	s := newServer(t, t.TempDir(), "--maxmemory-policy", "allkeys-lru")
	t.Cleanup(s.kill)
	client, _ := newClient(t, s.url(""))
	_, err := OpenClient(t.Context(), client, nil)
	require.EqualError(t, err, "redis: open: the server has maxmemory-policy allkeys-lru, "+
		"which deletes tasks; it must be noeviction")
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	_, err = OpenClient(t.Context(), client, &Options{KeepSchema: true})
	require.EqualError(t, err, "redis: {fairq}: open: there is no store")
	kvtest.Options(t, func(o *Options) error {
		_, err := OpenClient(t.Context(), client, o)
		return err
	})
	for _, url := range []string{"redis://u:secret@[/", "http://u:secret@host/"} {
		_, err := Open(t.Context(), url, nil)
		require.ErrorContains(t, err, "redis: open: the URL: ")
		require.NotContains(t, err.Error(), "secret")
	}
}
