package sqlite

import (
	"cmp"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// readTask reads taskColumns, and the payload if selected.
func readTask(c *cells, r *rows.Row) {
	r.Follower, r.ID = c.uint(), c.uint()&maxID
	r.Key, r.Kind, r.UniqueKey = c.text(), c.text(), c.text()
	r.Role, r.Priority, r.Weight, r.Cost = driver.Role(c.int()), int(c.int()), int(c.int()), c.int()
	r.TTR, r.MaxAttempts, r.Created, r.Deadline = time.Duration(c.int()), int(c.int()), c.int(),
		c.int()
	r.Group, r.State, r.Takeable = c.text(), driver.State(c.int()), c.bool()
	r.Round, r.Used, r.Gap = c.uint(), c.uint(), c.bool()
	r.Returned, r.Untried, r.Front, r.Hidden = c.bool(), c.bool(), rows.Front(c.int()), c.bool()
	r.Place = c.uint()
	r.Since, r.Consumer, r.Attempts = c.uint(), c.uint(), int(c.int())
	r.ReadyAt, r.Until, r.Expires, r.Latest, r.Wake = c.int(), c.int(), c.int(), c.int(), c.int()
	r.Err, r.Metadata = c.error(), c.text()
	if c.next < c.n {
		r.Payload = c.blob()
	}
}

// putTask writes a row. A taken row stays at its place in the index by keys. The head has the
// numbers of tasks by state and is saved in the same transaction, so they change if, and only if,
// a row was written.
func putTask(v *view, r *rows.Row) (err error) {
	var n int64
	switch {
	case r.Was == 0:
		n, err = v.insert(r)
	case r.Was == driver.Ready && r.State == driver.Taken:
		n, err = v.session.exec(takeTask, int64(r.Since), int64(r.Consumer), int64(r.Attempts), r.Until,
			r.Wake, v.rowid(r.ID))
	default:
		code, message := errorCells(r.Err)
		n, err = v.session.exec(updateTask,
			r.Group, int64(r.Priority), int64(r.State), bit(r.Takeable), int64(r.Round), int64(r.Used),
			bit(r.Gap), bit(r.Returned), bit(r.Untried), int64(r.Front), bit(r.Hidden),
			int64(r.Place), int64(r.Since), int64(r.Consumer), int64(r.Follower), int64(r.Attempts),
			r.ReadyAt,
			r.Until, r.Expires, r.Latest, r.Wake,
			code, message, v.rowid(r.ID))
	}
	if n > 0 {
		rows.Count(&v.head.tasks, r.Was, r.State)
	}
	return err
}

func removeTask(v *view, r *rows.Row) error {
	n, err := v.session.exec(deleteTask, v.rowid(r.ID))
	if n > 0 {
		rows.Count(&v.head.tasks, r.Was, 0)
	}
	return err
}

// insert has a statement with half the arguments for the usual task, because the time to bind them
// grows with the square of their number.
func (v *view) insert(r *rows.Row) (int64, error) {
	rare := r.Kind != "" || r.Role != 0 || r.UniqueKey != "" || r.Group != "" || r.Gap ||
		r.Returned || r.Untried || r.Hidden ||
		r.Consumer != 0 || r.Attempts != 0 ||
		r.Deadline != 0 || r.Until != 0 || r.Expires != 0 || r.Latest != 0 || r.Wake != 0 ||
		r.Err != nil || r.Metadata != ""
	if !rare {
		return v.session.exec(insertPlain,
			v.rowid(r.ID), r.Key, int64(r.Priority), int64(r.Weight), r.Cost, int64(r.TTR),
			int64(r.MaxAttempts), r.Created,
			int64(r.State), bit(r.Takeable), int64(r.Round), int64(r.Used), int64(r.Front),
			int64(r.Place), int64(r.Since),
			r.ReadyAt, r.Payload, v.queue)
	}
	code, message := errorCells(r.Err)
	return v.session.exec(insertTask,
		v.rowid(r.ID), r.Key, r.Kind, r.UniqueKey, int64(r.Role), int64(r.Priority), int64(r.Weight),
		r.Cost, int64(r.TTR),
		int64(r.MaxAttempts), r.Created, r.Deadline,
		r.Group, int64(r.State), bit(r.Takeable), int64(r.Round), int64(r.Used),
		bit(r.Gap), bit(r.Returned), bit(r.Untried), int64(r.Front), bit(r.Hidden),
		int64(r.Place), int64(r.Since),
		int64(r.Consumer), int64(r.Attempts), r.ReadyAt, r.Until, r.Expires, r.Latest, r.Wake,
		code, message, r.Metadata, r.Payload, v.queue)
}

// byTurn compares tasks in the order in which they are taken.
func byTurn(a, b *rows.Row) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Round, b.Round),
		cmp.Compare(a.Place, b.Place), cmp.Compare(a.ID, b.ID))
}
