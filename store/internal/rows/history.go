package rows

import (
	"context"
	"fmt"

	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// addHistory records a task that is gone, if the store has a history.
func (u *unit) addHistory(r *Row, o *Outcome) {
	keep := u.q.store.options.History
	if keep == 0 {
		return
	}
	d := &Ended{
		ID: r.ID, Key: r.Key, Kind: r.Kind, UniqueKey: r.UniqueKey, Payload: r.Payload, Attempts: r.Attempts,
		Created: r.Created, Finished: u.now, Result: o.Result, Err: o.Err, Until: life.Plus(u.now, keep),
	}
	check(u.v.History().Put(d))
	u.schedule(life.Plus(d.Until, keep/4)) // many at a time
}

// History returns up to n tasks that are gone, in the order of their ids, those with greater ids
// than after.
func (s *Store) History(ctx context.Context, queue string, after driver.ID, n int) (ended []driver.Ended, err error) {
	if n < 0 || n > maxListed {
		return nil, &driver.FieldError{Field: "History: the number", Value: n, Limit: fmt.Sprintf("0 to %d", maxListed)}
	}
	done, err := s.history(ctx, queue, uint64(after), n)
	if err != nil {
		return nil, failed("History", queue, err)
	}
	for _, d := range done {
		ended = append(ended, d.ended())
	}
	return ended, nil
}

func (s *Store) history(ctx context.Context, queue string, after uint64, n int) ([]*Ended, error) {
	if tx, err := s.db.Joined(ctx); err != nil {
		return nil, err
	} else if tx != nil {
		tx.Rollback()
		return nil, errJoin
	}
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	row, err := tx.Queue(queue, nil)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, driver.ErrNotFound
	}
	v, err := tx.Enter(row.ID, &Plan{})
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, driver.ErrNotFound
	}
	return Calls{v}.HistoryAfter(after, n)
}

// maxListed is how many tasks are listed at most.
const maxListed = 1 << 16

func (d *Ended) ended() driver.Ended {
	o := Outcome{Result: d.Result, Err: d.Err}
	return driver.Ended{
		Info: driver.Info{
			ID: driver.ID(d.ID), Key: d.Key, Kind: d.Kind, UniqueKey: d.UniqueKey, Attempts: d.Attempts, Created: timeOf(d.Created), Err: d.Err,
		},
		Payload: d.Payload, At: timeOf(d.Finished), Outcome: o.error(),
	}
}
