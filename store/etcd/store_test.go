package etcd

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

// emptyEngine returns an engine over an empty database.
func emptyEngine(t *testing.T, client *clientv3.Client) *engine {
	_, prefix, _ := strings.Cut(newDatabase(t, 1), "#")
	return &engine{client: client, prefix: prefix, maxOps: maxOps}
}

// newClient returns a client of the shared cluster with n servers.
func newClient(t *testing.T, members int) *clientv3.Client {
	client, err := dial(t.Context(), newDatabase(t, members))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// empty returns a function that returns empty engines on n servers.
func empty(t *testing.T, members int) func(*testing.T) kv.Map {
	if testing.Short() {
		t.Skip("TestKill shows most of it")
	}
	client := newClient(t, members)
	return func(t *testing.T) kv.Map { return emptyEngine(t, client) }
}

func TestRows(t *testing.T)        { kvtest.Rows(t, empty(t, 1)) }
func TestRowsMembers(t *testing.T) { kvtest.Rows(t, empty(t, 3)) }

func TestStore(t *testing.T) {
	t.Parallel()
	kvtest.Store(t, empty(t, 1))
}

func TestStoreMembers(t *testing.T) {
	t.Parallel()
	kvtest.Store(t, empty(t, 3))
}

// A scan of many keys asks for a few thousand at a time. The server counts all it is asked for.
func TestPages(t *testing.T) {
	const n, batch = 20_000, 5000
	e := emptyEngine(t, newClient(t, 1))
	key := func(i int) []byte { // as ids are after batches
		return binary.BigEndian.AppendUint64(nil, uint64(i/1000<<20+i%1000))
	}
	for i := 0; i < n; i += batch {
		var writes []*kv.Entry
		for j := range batch {
			writes = append(writes, &kv.Entry{Key: key(i + j), Value: []byte{}})
		}
		require.NoError(t, e.Commit(t.Context(), nil, nil, nil, writes))
	}
	for range 2 {
		at, long := 0, 0
		for s := (kv.Span{From: key(0), To: key(n), Limit: lookAhead}); at < n; {
			if _, to, _ := e.bounds.split(&s); string(to) > string(key(min(n, at+6*lookAhead))) {
				long++
			}
			found, err := e.Read(t.Context(), nil, nil, []kv.Span{s})
			require.NoError(t, err)
			for _, entry := range found.Pages[0].Entries {
				require.Equal(t, key(at), entry.Key)
				at++
			}
			if s.From = found.Pages[0].Next; s.From == nil {
				s.From = append(key(at-1), 0)
			}
		}
		require.LessOrEqual(t, long, 2)
	}
}
