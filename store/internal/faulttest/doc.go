// Package faulttest tells whether a store loses nothing when processes that use it are killed, and
// whether several processes get on with each other.
//
// The processes are the test's own program, started again (see Child). What they do they write
// into a journal outside of the database: what they are about to do, and then what came of it. So
// it is known at each moment what must have happened, what cannot have happened, and what may
// have. The accounts compare that with what the database says in the end.
package faulttest

import (
	"context"

	"github.com/fairq/fairq/task/driver"
)

// Store is what both stores of this repository are.
type Store interface {
	driver.Store
	History(ctx context.Context, queue string, after driver.ID, n int) ([]driver.Ended, error)
	Close() error
}

// Opener opens the store in a database, with a history of an hour. where is the path, or the
// connection string.
type Opener func(ctx context.Context, where string) (Store, error)
