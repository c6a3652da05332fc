package mvcc_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/store/internal/rows/rowstest/kvtest"
)

func TestSerializable(t *testing.T) { kvtest.Serializable(t, new(mvcc.DB).Client()) }

// TestLimits exceeds the limits of a transaction.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := cluster()
		client := db.Client()
		begin := func() kv.Txn {
			tx, err := client.Begin(t.Context())
			require.NoError(t, err)
			return tx
		}
		tx := begin()
		err := tx.Put(make([]byte, mvcc.MaxKey+1), nil)
		require.ErrorContains(t, err, "10001 bytes, must have at most 10000")
		err = tx.Put([]byte("k"), make([]byte, mvcc.MaxValue+1))
		require.ErrorContains(t, err, "100001 bytes, must have at most 100000")
		for i := range 101 {
			require.NoError(t, tx.Put([]byte{byte(i)}, make([]byte, mvcc.MaxValue)))
		}
		require.ErrorContains(t, tx.Commit(), "must write at most 10000000")

		tx = begin()
		require.NoError(t, tx.Put([]byte("a"), []byte("2")))
		time.Sleep(mvcc.MaxTime + 1)
		_, err = tx.Get([]byte("b"))
		require.ErrorIs(t, err, kv.ErrConflict)
		require.ErrorIs(t, tx.Commit(), kv.ErrConflict)
		require.ErrorContains(t, tx.Commit(), "over")
	})
}
