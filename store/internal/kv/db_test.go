package kv

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// handle is a DB whose engine has other handles, as no real one has: before each transaction it
// forgets what it knows if another one has committed.
type handle struct {
	*DB
	m       *memory
	headsAt int // m.others() when the last transaction began
	seen    int // and at the last call of Changed
}

func open(t *testing.T, m *memory) *handle {
	db, err := Open(t.Context(), "memory", m, Options{})
	require.NoError(t, err)
	return &handle{DB: db, m: m}
}

func (h *handle) Reopen(t *testing.T) rows.DB {
	return open(t, &memory{data: h.m.data, commits: h.m.data.commits})
}

func (h *handle) Begin(ctx context.Context) (rows.Tx, error) {
	x, err := h.DB.Begin(ctx)
	if err == nil && h.headsAt != h.m.others() {
		clear(h.heads)
		h.headsAt = h.m.others()
	}
	return x, err
}

func (h *handle) Changed(ctx context.Context) (bool, error) {
	x, err := h.engine.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer x.Rollback()
	was := h.seen
	h.seen = h.m.others()
	changed, err := h.DB.Changed(ctx)
	return changed || was != h.seen, err
}

// Join begins a transaction of the caller's own.
func (h *handle) Join(ctx context.Context) (context.Context, rows.Tx, error) {
	ctx, t, err := h.m.Join(ctx)
	return ctx, &tx{Txn: t, ctx: ctx, db: h.DB, heads: map[uint64]*head{}}, err
}

func TestRows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rows.DB { return open(t, newMemory()) })
}

func TestModel(t *testing.T) {
	rowstest.Model(t, 3, func(t *testing.T) rows.DB { return open(t, newMemory()) })
}
