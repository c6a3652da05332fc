package rows

import (
	"context"

	"github.com/fairq/fairq/task/driver"
)

// Upcoming implements [driver.Backend].
func (b *backend) Upcoming(ctx context.Context, n int) (infos []driver.Info, err error) {
	err = b.call(ctx, "Upcoming", call{order: puts, run: func(u *unit) error {
		infos = u.upcoming(n)
		return nil
	}})
	return infos, err
}

// upcoming takes n tasks in a dry run, and returns what is known of those that are still ready: the
// dry run locks nothing, so others may have taken some meanwhile.
func (u *unit) upcoming(n int) (infos []driver.Info) {
	t := u.dryRun(n)
	t.prepare()
	var ids []uint64
	for len(ids) < n {
		r := t.take(new(ownConsumer), everything, n-len(ids))
		if r == nil {
			break
		}
		ids = append(ids, r.ID)
	}
	known := map[uint64]*Row{}
	for _, r := range must(u.v.Peek(ids, false)) {
		known[r.ID] = r
	}
	for _, id := range ids {
		if r := known[id]; r != nil && r.State == driver.Ready {
			record := u.record(r)
			infos = append(infos, record.Info())
		}
	}
	return infos
}
