package memory

import (
	"fmt"
	"time"

	"github.com/fairq/fairq/task/driver"
)

func (d *caller) change(now time.Time) string {
	id := d.some()
	what := driver.Change(d.rand.IntN(3))
	reason, unlessTaken := &driver.Error{Message: "by hand"}, d.rand.IntN(2) == 0
	d.is(d.m.change(now, id, what, unlessTaken, reason), d.b.Change(d.ctx, id, what, unlessTaken, reason))
	return fmt.Sprintf("change(%d, %d, unless taken: %v)", id, what, unlessTaken)
}

// takeID takes a task by its id.
func (d *caller) takeID(now time.Time) string {
	id, c := d.some(), pick(d, d.consumers)
	want, wantErr := d.m.takeID(now, c.ID, id)
	got, err := d.b.TakeID(d.ctx, c, id)
	d.is(wantErr, err)
	if err == nil && wantErr == nil {
		d.equal(want.Info, got.Info)
		d.equal(want.payload, got.Payload)
		d.equal(want.lease, got.Lease.Number)
		d.leases = append(d.leases, got.Lease)
	}
	return fmt.Sprintf("TakeID(%d)", id)
}

// some returns the id of a task that may be there.
func (d *caller) some() driver.ID {
	if n := len(d.m.tasks); n > 0 && d.rand.IntN(5) > 0 {
		return d.m.tasks[d.rand.IntN(n)].ID
	}
	return driver.ID(1 + d.rand.Uint64N(uint64(d.m.ids)+2))
}
