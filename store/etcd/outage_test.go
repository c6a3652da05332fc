package etcd

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
	"github.com/fairq/fairq/task"
)

// newProxy returns a proxy for a server, and its address.
func newProxy(t *testing.T, to string) (p *kvtest.Proxy, url string) {
	p, address := kvtest.NewProxy(t, strings.TrimPrefix(to, "http://"))
	return p, "http://" + address
}

// openAt opens a queue on servers.
func openAt(t *testing.T, where string, o Options,
	dials ...grpc.DialOption,
) (*task.Queue[string], *clientv3.Client) {
	client, err := dial(t.Context(), where, dials...)
	require.NoError(t, err)
	_, o.Prefix, _ = strings.Cut(where, "#")
	o.MaxOps = maxOps
	s, err := Open(t.Context(), client, &o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, client.Close())
	})
	return kvtest.OpenQueue(t, s), client
}

// A process with an open queue and no waiting call makes no call while others put tasks. A process
// with a waiting call makes none either while no task is put: it has its watch.
func TestIdle(t *testing.T) {
	where := newDatabase(t, 1)
	var calls atomic.Int64
	q, _ := openAt(t, where, Options{Poll: time.Minute}, grpc.WithUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, c *grpc.ClientConn,
		invoke grpc.UnaryInvoker, o ...grpc.CallOption,
	) error {
		calls.Add(1)
		return invoke(ctx, method, request, reply, c, o...)
	}))
	other, _ := openAt(t, where, Options{})
	idles := func(during func(i int) error) bool {
		for range 5 { // a new store is not idle yet
			before := calls.Load()
			for i := range 100 {
				require.NoError(t, during(i))
			}
			if calls.Load() == before {
				return true
			}
		}
		return false
	}
	put := func(int) error {
		_, err := other.Put(t.Context(), "key", "", task.PutOptions{})
		return err
	}
	require.True(t, idles(put))
	for ok := true; ok; {
		var err error
		_, ok, err = q.TryTake(t.Context())
		require.NoError(t, err)
	}
	took := kvtest.Waits(t, q)
	require.True(t, idles(func(int) error {
		_, err := other.Stats(t.Context())
		return err
	}))
	require.NoError(t, put(0))
	<-took
}

// A watch that has missed compacted changes restarts, and waiting calls look then.
func TestCompactedWatch(t *testing.T) {
	where := newDatabase(t, 1)
	server, prefix, _ := strings.Cut(where, "#")
	p, through := newProxy(t, server)
	q, _ := openAt(t, through+"#"+prefix, Options{Poll: time.Hour})
	other, client := openAt(t, where, Options{})
	kvtest.Missed(t, p, q, other, func() {
		now, err := client.Put(t.Context(), prefix+"x", "")
		require.NoError(t, err)
		_, err = client.Compact(t.Context(), now.Header.Revision)
		require.NoError(t, err)
	})
	took := kvtest.Waits(t, q)
	kvtest.Put(t, other, "last")
	require.Equal(t, "last", (<-took).Payload)
}

// A transaction whose revision was compacted is retried.
func TestCompactedRead(t *testing.T) {
	client := newClient(t, 1)
	e := emptyEngine(t, client)
	x, err := kv.Buffered{Map: e}.Begin(t.Context())
	require.NoError(t, err)
	_, err = x.Get([]byte("a"))
	require.NoError(t, err)
	now, err := client.Put(t.Context(), e.prefix+"b", "b")
	require.NoError(t, err)
	_, err = client.Compact(t.Context(), now.Header.Revision)
	require.NoError(t, err)
	_, err = x.Get([]byte("b"))
	require.ErrorIs(t, err, kv.ErrConflict)
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
}

// While the servers are away, calls return an error that says so after Options.Timeout, and work
// again when they are back.
func TestAway(t *testing.T) {
	where := newDatabase(t, 1)
	server, prefix, _ := strings.Cut(where, "#")
	p, through := newProxy(t, server)
	client, err := dial(t.Context(), through)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	o := &Options{Prefix: prefix, Timeout: time.Second, MaxOps: maxOps}
	kvtest.Away(t, p, "etcd: "+prefix, func() (faulttest.Store, error) {
		return open(t.Context(), newEngine(client, o), o)
	})
}

// Servers without room refuse calls with an error that says so, and change nothing. When there is
// room again, calls work.
func TestQuota(t *testing.T) {
	const quota = 4 << 20
	c := newCluster(t, t.TempDir(), 1, quota, 0)
	t.Cleanup(c.kill)
	q, client := openAt(t, c.where()+"#quota/", Options{MaxPayload: 1 << 20})
	payload, ctx := strings.Repeat("x", 400_000), t.Context()
	_, err := q.Put(ctx, "key", "", task.PutOptions{})
	require.NoError(t, err)
	held, err := q.Take(ctx)
	require.NoError(t, err)
	left := []*task.Task[string]{held}
	ready := 0
	for n := 0; err == nil; n++ { // all revisions are kept until they are compacted
		require.Less(t, n, 100)
		var one *task.Task[string]
		if _, err = q.Put(ctx, "key", payload, task.PutOptions{}); err != nil {
			break
		}
		if one, err = q.Take(ctx); err != nil {
			ready = 1
			break
		}
		if err = one.Ack(ctx); err != nil {
			left = append(left, one)
		}
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.ErrorContains(t, err, `queue "q": etcd: quota/: commit: the database is full`)
	t.Log(err)
	require.ErrorIs(t, held.Ack(ctx), rpctypes.ErrNoSpace)
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, [2]int{ready, len(left)}, [2]int{stats.Ready, stats.Taken})

	now, err := client.Get(ctx, "x")
	require.NoError(t, err)
	_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = client.Defragment(ctx, c[0].Client)
	require.NoError(t, err)
	_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{
		MemberID: now.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	require.NoError(t, err)
	_, err = q.Put(ctx, "key", payload, task.PutOptions{})
	require.NoError(t, err)
	for range ready + 1 {
		one, err := q.Take(ctx)
		require.NoError(t, err)
		left = append(left, one)
	}
	for _, one := range left {
		require.NoError(t, one.Ack(ctx))
	}
	stats, err = q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Len())
}

// The largest allowed payloads are put and acked at the same time, on servers with default limits.
// A larger payload is refused before anything is written.
func TestLarge(t *testing.T) {
	c := newCluster(t, t.TempDir(), 1, 0, 0)
	t.Cleanup(c.kill)
	q, _ := openAt(t, c.where()+"#large/", Options{History: time.Hour})
	payload, ctx := strings.Repeat("x", 1<<20-2), t.Context() // in JSON
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := q.Put(ctx, "key", payload[i%2*600_000:], task.PutOptions{})
			require.NoError(t, err)
		})
	}
	wg.Wait()
	_, err := q.Put(ctx, "key", payload+"x", task.PutOptions{})
	require.ErrorContains(t, err,
		"the length of the payload is 1048577; it must be 1048576 bytes at most")
	_, err = q.PutBatch(ctx,
		slices.Repeat([]task.Entry[string]{{Key: "key", Payload: payload[:100_000]}}, 5))
	require.ErrorContains(t, err, "it must be 458752 bytes at most")
	all, err := q.TakeBatch(ctx, 9)
	require.NoError(t, err)
	require.Len(t, all, 8)
	for _, one := range all {
		wg.Go(func() { require.NoError(t, one.Ack(ctx)) })
	}
	wg.Wait()
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Len())
}

// Options beyond the servers' limits cause an error that says so, and no change.
func TestContradicted(t *testing.T) {
	c := newCluster(t, t.TempDir(), 1, 0, 0)
	t.Cleanup(c.kill)
	client, err := dial(t.Context(), c.where())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s, err := Open(t.Context(), client, &Options{MaxPayload: 20 << 20, MaxOps: 8 * maxOps})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q, err := task.Open[string](t.Context(), s, "q", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	for _, size := range []int{2 << 20, 20<<20 - 2} { // more than the client takes
		_, err = q.Put(t.Context(), "key", strings.Repeat("x", size), task.PutOptions{})
		require.ErrorContains(t, err, "Options.MaxPayload must be at most two thirds of")
	}
	_, err = q.PutBatch(t.Context(), make([]task.Entry[string], 5000))
	require.ErrorContains(t, err,
		"Options.MaxOps is 131072, must be at most the servers' --max-txn-ops")
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.Len())
}

// Processes put tasks, and their pools do them, while the only server is killed and started again.
func TestOutages(t *testing.T) {
	if testing.Short() {
		t.Skip("TestAway shows most of it")
	}
	c := newCluster(t, t.TempDir(), 1, 0, 0)
	defer func() { c.kill() }()
	server := c[0]
	faulttest.Outages(t, openFaulty, c.where()+"#outages/", []faulttest.Outage{
		{Name: "killed", Run: func(t *testing.T) {
			server.kill()
			require.NoError(t, server.start())
		}},
		{Name: "away for a second", Run: func(t *testing.T) {
			server.kill()
			time.Sleep(time.Second)
			require.NoError(t, server.start())
		}},
	})
}
