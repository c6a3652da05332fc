package rows

import (
	"context"
	"fmt"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// addHistory records a task that is gone, if the store has a history.
func (u *unit) addHistory(r *Row, o *Outcome) {
	keep := u.q.store.options.History
	if keep == 0 {
		return
	}
	d := &Ended{
		ID: r.ID, Key: r.Key, Kind: r.Kind, UniqueKey: r.UniqueKey, Payload: r.Payload,
		Attempts: r.Attempts,
		Created:  r.Created, Finished: u.now, Result: o.Result, Err: o.Err,
		Until: life.Plus(u.now, keep),
	}
	u.bytes += len(d.Payload) + r.size()
	check(u.v.History().Put(d))
	u.schedule(life.Plus(d.Until, keep/4)) // many at a time
}

// History returns up to n tasks that are gone, in the order of their ids, those with greater ids
// than after.
func (s *Store) History(
	ctx context.Context, queue string, after driver.ID, n int,
) (ended []driver.Ended, err error) {
	if n < 0 || n > maxListed {
		return nil, &driver.FieldError{
			Field: "History: the number", Value: n, Limit: fmt.Sprintf("0 to %d", maxListed),
		}
	}
	err = s.transact(ctx, func(tx Tx) error {
		ended, err = history(tx, queue, uint64(after), n)
		return err
	})
	if err != nil {
		return nil, failed("History", queue, err)
	}
	return ended, nil
}

func history(tx Tx, queue string, after uint64, n int) (ended []driver.Ended, err error) {
	row, err := tx.Queue(queue, nil)
	var v View
	if row != nil && err == nil {
		v, err = tx.Enter(row.ID, &Plan{})
	}
	if v == nil && err == nil {
		err = driver.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	done, err := Calls{v}.HistoryAfter(after, n)
	for _, d := range done {
		ended = append(ended, d.ended())
	}
	return ended, err
}

// maxListed is how many tasks are listed at most.
const maxListed = 1 << 16

func (d *Ended) ended() driver.Ended {
	o := Outcome{Result: d.Result, Err: d.Err}
	return driver.Ended{
		Info: driver.Info{
			ID: driver.ID(d.ID), Key: d.Key, Kind: d.Kind, UniqueKey: d.UniqueKey, Attempts: d.Attempts,
			Created: timeOf(d.Created), Err: d.Err,
		},
		Payload: d.Payload, At: timeOf(d.Finished), Outcome: o.error(),
	}
}
