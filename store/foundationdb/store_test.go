//go:build cgo && foundationdb

package foundationdb

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// newEngine returns one over a part of the database that is empty, and is cleared at the end.
func newEngine(t *testing.T) engine {
	file := cmp.Or(os.Getenv("FDB_CLUSTER_FILE"), "/etc/foundationdb/fdb.cluster")
	if _, err := os.Stat(file); err != nil {
		t.Skip("there is no FoundationDB: ", err)
	}
	e, err := openEngine(file, fmt.Sprintf("fairq test %d/", time.Now().UnixNano()), rows.Traits{})
	if err != nil {
		t.Skip("there is no FoundationDB: ", err)
	}
	t.Cleanup(func() {
		d := e.(*database)
		_, err := d.Transact(func(x fdb.Transaction) (any, error) {
			x.ClearRange(fdb.KeyRange{Begin: fdb.Key(d.prefix), End: fdb.Key(d.prefix + "\xff")})
			return nil, nil
		})
		require.NoError(t, err)
		e.close()
	})
	return e
}

// handle is what one process has of a database.
type handle struct {
	*kv.DB
	engine kv.Engine
}

// Reopen implements what rowstest looks for.
func (h handle) Reopen(t *testing.T) rows.DB { return newHandle(t, h.engine) }

func newHandle(t *testing.T, e kv.Engine) handle {
	db, err := kv.Open(t.Context(), "foundationdb", e, kv.Options{Taking: kv.Strict}) // the tests ask for the exact order
	require.NoError(t, err)
	return handle{db, e}
}

func TestRows(t *testing.T) {
	newEngine(t) // or skip all
	rowstest.Run(t, func(t *testing.T) rows.DB { return newHandle(t, newEngine(t)) })
}

// TestTasks puts, takes and acks tasks in two stores at the same time. Each must be done once.
func TestTasks(t *testing.T) {
	const tasks = 200
	e := newEngine(t).(*database)
	done := make(chan int, 2*tasks)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		db, err := kv.Open(ctx, "foundationdb", e, kv.Options{})
		require.NoError(t, err)
		store := rows.New(db, rows.Options{MaxPayload: maxPayload, Poll: 50 * time.Millisecond, Timeout: 10 * time.Second})
		q, err := task.Open(ctx, store, "q", &task.Options[int]{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
		go func() {
			for i := range tasks {
				if _, err := q.Put(ctx, fmt.Sprint(i%7), i, task.PutOptions{}); err != nil {
					t.Error(err)
				}
			}
		}()
		go func() {
			for {
				one, err := q.Take(ctx)
				if err != nil {
					return
				}
				if err := one.Ack(ctx); err != nil {
					t.Error(err)
				}
				done <- one.Payload
			}
		}()
	}
	seen := map[int]int{}
	for range 2 * tasks {
		select {
		case i := <-done:
			seen[i]++
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	for i := range tasks {
		require.Equal(t, 2, seen[i])
	}
}
