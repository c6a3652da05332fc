// Package faulttest checks that a store loses nothing when its processes are killed, and that
// several processes can share it.
//
// The processes run the test's own program (see Child). They write each call into a journal
// outside of the database: first the intention, then the outcome. So the journal separates, at
// each moment, certain, possible and impossible events. At the end the audit compares them with
// the database.
package faulttest

import (
	"context"

	"github.com/fairq/fairq/internal/driver"
)

// Store is the interface of the stores of this repository.
type Store interface {
	driver.Store
	History(ctx context.Context, queue string, after driver.ID, n int) ([]driver.Ended, error)
	Close() error
}

// Opener opens the store in a database, with a history of an hour. where is the path, or the
// connection string.
type Opener func(ctx context.Context, where string) (Store, error)
