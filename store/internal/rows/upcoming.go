package rows

import (
	"context"

	"github.com/fairq/fairq/task/driver"
)

// Upcoming implements [driver.Backend].
func (b *backend) Upcoming(ctx context.Context, n int) (upcoming []driver.UpcomingTask, err error) {
	err = b.call(ctx, "Upcoming", call{order: puts, run: func(u *unit) error {
		upcoming = u.upcoming(n)
		return nil
	}})
	return upcoming, err
}

// upcoming takes n tasks in a dry run, and returns the tasks that are still ready: the dry run
// locks nothing, so others may have taken some since.
func (u *unit) upcoming(n int) (upcoming []driver.UpcomingTask) {
	t := u.dryRun(n)
	t.prepare()
	var ids []uint64
	var rounds []int
	for len(ids) < n {
		r := t.take(new(ownConsumer), everything, n-len(ids))
		if r == nil {
			break
		}
		now := u.currentRound(r.Priority)
		ids, rounds = append(ids, r.ID), append(rounds, int(max(r.Round, now)-now))
	}
	known := map[uint64]*Row{}
	for _, r := range must(u.v.Peek(ids, false)) {
		known[r.ID] = r
	}
	for i, id := range ids {
		if r := known[id]; r != nil && r.State == driver.Ready {
			record := u.record(r)
			upcoming = append(upcoming, driver.UpcomingTask{Info: record.Info(), Round: rounds[i], Weight: r.Weight})
		}
	}
	return upcoming
}
