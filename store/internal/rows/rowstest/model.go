package rowstest

import (
	"context"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/memory"
)

// joiner may be implemented by a DB: see [storetest.Transactor].
type joiner interface {
	InTx(ctx context.Context, f func(ctx context.Context) error) error
}

// faulty may be implemented by a DB: Faults makes some of its transactions fail with errors for
// which Again returns true.
type faulty interface {
	Faults(seed uint64)
}

// Model makes the same calls to queues in a database and in a [memory.Store], and compares what
// they return. It also checks the rows (see Walk). open opens an empty database, whose clock must
// be that of package time.
func Model(t *testing.T, seeds int, open func(t *testing.T) rows.DB) {
	memory := func(*testing.T) driver.Store { return new(memory.Store) }
	storetest.Compare(t, seeds, memory, func(t *testing.T, seed uint64) storetest.Subject {
		db := open(t)
		options := rows.Options{MaxPayload: 1 << 20, Poll: 10 * time.Second}
		if seed%4 == 0 {
			options.History = time.Minute
		}
		s := storetest.Subject{Store: rows.New(db, options)}
		own, joins := db.(joiner)
		if joins = joins && seed%3 == 0; joins {
			s.Store = struct {
				driver.Store
				joiner
			}{s.Store, own}
		}
		if f, ok := db.(faulty); ok && seed%3 == 1 {
			f.Faults(seed)
		}
		if r, ok := db.(reopener); ok {
			if seed%5 < 2 && !joins {
				s.Others = []driver.Store{rows.New(r.Reopen(t), options)}
			}
			look := r.Reopen(t)
			s.Check = func(queue string) string { return Walk(t, look, queue) }
		}
		return s
	})
}
