package storetest

import (
	"context"

	"github.com/fairq/fairq/task"
)

// join makes some calls in a transaction of the caller's own. Of one that is rolled back, nothing
// has happened.
func (c *comparison) join() {
	id := c.some()
	own, end := c.subject.Join()
	if commit := c.chance(2); !commit {
		for range 1 + c.IntN(4) {
			c.inVain(own, id)
		}
		c.did("roll back")
		c.ok("Rollback", end(false))
		return
	}
	c.did("in a transaction:")
	c.ctx = own
	for range 1 + c.IntN(4) {
		oneOf(c, c.put, c.put, c.settle, c.settle, c.change, c.group)()
	}
	c.ctx = ctx
	c.did("commit")
	c.ok("Commit", end(true))
}

// inVain makes a call that will be undone.
func (c *comparison) inVain(ctx context.Context, id task.ID) {
	s, b := c.got[0], c.task()
	var err error
	switch op := c.IntN(8); {
	case op < 2:
		_, err = s.Put(ctx, b.Key, b.Payload, b.Options)
	case op == 2:
		_, err = s.Kick(ctx, task.ListOptions{Limit: 2})
	case op == 3:
		err = s.Delete(ctx, id)
	case op == 4:
		err = s.Bury(ctx, id, nil)
	case op == 5 && c.groups != nil:
		err = s.CancelGroup(ctx, c.groups[0])
	case len(c.leases) > 0:
		t := oneOf(c, c.leases...).got
		was := t.Info()
		switch c.IntN(3) {
		case 0:
			err = t.Ack(ctx)
		case 1:
			err = t.Touch(ctx, c.duration())
		default:
			err = t.Release(ctx, c.duration())
		}
		c.equal("Info of a task after a call in vain", t.Info(), was)
	}
	c.did("in vain: %v", err)
	if kindOf(err) < 0 {
		c.ok("a call in vain", err)
	}
}
