package storetest

import (
	"context"

	"github.com/fairq/fairq/task"
)

// join makes some calls in a transaction of the caller's own.
func (c *comparison) join() {
	c.did("in a transaction:")
	c.ok("InTx", c.tx.InTx(ctx, func(own context.Context) error {
		c.ctx = own
		for range 1 + c.IntN(4) {
			oneOf(c, c.put, c.put, c.settle, c.settle, c.change, c.group)()
		}
		return nil
	}))
	c.ctx = ctx
	c.did("commit")
	for _, l := range c.leases {
		c.sameLease(l)
	}
}

// inVain makes a call in a transaction, rolls that back, and checks that nothing has changed. It
// does so with calls that cannot be part of a transaction too.
func (c *comparison) inVain(what string, at *side, call func(*side) error) (err error) {
	infos := func() (all []task.Info) {
		for _, l := range c.leases {
			all = append(all, l.got.Info())
		}
		return all
	}
	was := infos()
	end := c.tx.InTx(ctx, func(own context.Context) error {
		c.ctx = own
		err = call(at)
		return errOops
	})
	c.ctx = ctx
	c.did("%s, rolled back: %v", what, err)
	c.equal("the error of a transaction that is rolled back", end, errOops)
	c.equal("what tasks tell after that", infos(), was)
	return err
}
