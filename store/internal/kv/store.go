package kv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// CheckOptions returns an error if an option of a store in a package is out of its range.
func CheckOptions(in string, skew time.Duration, maxPayload int, o rows.Options) error {
	of := in + ".Options."
	return cmp.Or(
		rows.CheckRange(of+"Skew", skew, driver.MaxDuration),
		rows.CheckRange(of+"Poll", o.Poll, driver.MaxDuration),
		rows.CheckRange(of+"Timeout", o.Timeout, driver.MaxDuration),
		rows.CheckRange(of+"History", o.History, driver.MaxDuration),
		rows.CheckRange(of+"MaxPayload", o.MaxPayload, maxPayload),
	)
}

// OpenStore opens a store over an engine, see Open. Options that are 0 have defaults.
func OpenStore(
	ctx context.Context, name string, e Engine, o Options, r rows.Options,
) (*DB, *rows.Store, error) {
	r.MaxPayload = cmp.Or(r.MaxPayload, 1<<20)
	r.Poll, r.Timeout = cmp.Or(r.Poll, 10*time.Second), cmp.Or(r.Timeout, 30*time.Second)
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	db, err := Open(ctx, name, e, o)
	if err != nil {
		return nil, nil, err
	}
	s := rows.New(db, r)
	db.OnChange(func(queue uint64) { rows.Changed(s, queue) })
	return db, s, nil
}

// AnswerTimeout is how long a Map waits for an answer. A server of etcd passes a request on to the
// leader. If the leader dies, the request is lost, and the server reports that after seven
// seconds. A server that has not answered after AnswerTimeout is frozen or unreachable, and the
// client tries another one.
const AnswerTimeout = 8 * time.Second

// Exchange calls read again while its error is one of a server that is away.
func Exchange(
	ctx context.Context, isAway func(error) bool, read func(context.Context) error,
) error {
	for {
		once, cancel := context.WithTimeout(ctx, AnswerTimeout)
		err := read(once)
		cancel()
		if !isAway(err) {
			return err
		}
		if over := rows.Pause(ctx, 20*time.Millisecond); errors.Is(err, over) {
			return err
		} else if over != nil {
			return fmt.Errorf("%w: %w", over, err)
		}
	}
}
