package kv

import (
	"errors"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

// takesTasks reports whether a transaction that has such a plan is to take tasks.
func takesTasks(plan *rows.Plan) bool {
	return slices.ContainsFunc(plan.Ranges, func(r rows.Range) bool {
		return r.Index == rows.TaskReady && r.Lock == rows.SkipLocked && r.Limit > 0
	})
}

// prepare reports whether a transaction can go on. If it is to take tasks, and others were faster
// because its process has no lane, prepare writes the lane ahead, and the transaction begins again.
func (x *tx) prepare(v *view, plan *rows.Plan) (ready bool, err error) {
	if x.db.options.Strict || v.alone || v.head.Paused || x.wrote || v.head.lanes.own >= 0 || !v.hasFailed() || !takesTasks(plan) {
		return true, nil
	}
	v.took = true
	if err := v.saveTally(); err != nil {
		return false, err
	}
	x.Guard(v.about(aboutQueue), nil)
	switch err := x.Txn.Commit(); {
	case errors.Is(err, ErrConflict):
		x.db.conflicts.Add(1)
		return false, x.fail("wait for a lane", nil, pause(x.ctx))
	case err != nil && !errors.Is(err, ErrUnknown): // else what there is then tells
		return false, x.fail("ask for a lane", nil, err)
	}
	return false, nil
}
