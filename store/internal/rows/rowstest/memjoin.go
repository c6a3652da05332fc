package rowstest

import (
	"context"
	"maps"

	"github.com/fairq/fairq/store/internal/rows"
)

// txKey is the key of a context's transaction.
type txKey struct{}

// Join begins a transaction of the caller's own, and returns a context that carries it. Calls with
// that are a part of it. What a call has done is undone if it fails, as with a savepoint, and all
// if the Tx is rolled back.
func (db *DB) Join(ctx context.Context) (context.Context, rows.Tx, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	tx.(*memTx).joined = true
	return context.WithValue(ctx, txKey{}, tx), tx, nil
}

// Joined returns a part of the transaction of Join, which must be of the same handle.
func (db *DB) Joined(ctx context.Context) (rows.Tx, error) {
	db.data.mu.Lock()
	defer db.data.mu.Unlock()
	if db.dead {
		return nil, ErrKilled
	}
	user, ok := ctx.Value(txKey{}).(*memTx)
	if !ok {
		return nil, nil //nolint:nilnil // that is the interface's way to say none
	}
	must(user.db == db && !user.over, "Joined with a transaction that is over, or of another handle")
	return &memTx{ctx: ctx, db: db, data: db.data, user: user, own: maps.Clone(user.own), views: map[uint64]*memView{}}, nil
}
