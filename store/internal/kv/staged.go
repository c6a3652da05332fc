package kv

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// Taking is what processes do that take tasks at the same time.
type Taking uint8

const (
	// Apart has each take the first tasks of a part of its own: see lanes.
	Apart Taking = iota

	// Staged has them ask for tasks, and one of them hand out the very first ones: see stage.
	Staged

	// Strict has all take the very first ones, so that all but one have to try again.
	Strict
)

// request is what a process wants, and then what was handed out to it. That is a hint, and does not
// change the tasks: who has got some takes them as he would take any. So nothing is lost with a
// process that dies: its tasks are passed over for keepRequest, and are the next ones again.
type request struct {
	at     int64    // when it was made or answered
	wants  int      // how many tasks; 0 if it was answered
	before int64    // of priorities less than that
	tasks  [][]byte // their entries in TaskReady, without what all begin with

	process uint64 // is in its key
}

const (
	keepRequest = 2 * time.Second
	maxWait     = 100 * time.Millisecond // who has waited for that long hands out himself
)

func (r *request) code(c *coder) {
	number(c, &r.at)
	number(c, &r.wants)
	number(c, &r.before)
	n := len(r.tasks)
	if number(c, &n); c.decoding {
		if c.damaged = c.damaged || n < 0 || n > len(c.b); c.damaged {
			return
		}
		r.tasks = make([][]byte, n)
	}
	for i := range r.tasks {
		text(c, &r.tasks[i])
	}
}

// wants returns how many tasks a transaction is to take that has such a plan, and of which
// priorities.
func wants(plan *rows.Plan) (n int, before int64) {
	for _, r := range plan.Ranges {
		if r.Index == rows.TaskReady && r.Lock == rows.SkipLocked {
			return r.Limit, r.To[0].(int64)
		}
	}
	return 0, 0
}

// prepare tells whether a transaction can go on. If it is to take tasks, others do so too, and
// something must be written ahead, then that was done, and the transaction must begin again.
func (x *tx) prepare(v *view, plan *rows.Plan) (ready bool, err error) {
	n, before := wants(plan)
	switch taking := x.db.options.Taking; {
	case n == 0 || v.alone || v.head.Paused || x.wrote:
		return true, nil
	case taking == Apart && v.head.lanes.own < 0 && v.hasFailed(): // others were faster: get a lane
		v.took = true
		err = v.saveTally()
	case taking == Staged && v.head.lanes.all > 1:
		if ready, err = x.stage(v, n, before); ready || err != nil {
			return ready, err
		}
	default:
		return true, nil
	}
	if err != nil {
		return false, err
	}
	x.Guard(v.about(aboutQueue), nil)
	switch err := x.Txn.Commit(); {
	case errors.Is(err, ErrConflict):
		x.db.conflicts.Add(1)
		return false, x.fail("wait for tasks", nil, pause(x.ctx))
	case err != nil && !errors.Is(err, ErrUnknown): // else what there is then tells
		return false, x.fail("ask for tasks", nil, err)
	}
	return false, nil
}

// stage has a transaction go on that is to take tasks, with Staged, when its process has got an
// answer to its request. Until then it makes that, waits, or, if no request is older, answers all.
// The requests are in the order in which they were made, or nearly so: clocks differ. If two answer
// at the same time, one of them has to try again.
func (x *tx) stage(v *view, n int, before int64) (ready bool, err error) {
	all, old, err := x.requests(v)
	if err != nil {
		return false, err
	}
	var own *request
	oldest := true
	if i := slices.IndexFunc(all, func(r *request) bool { return r.process == x.db.process }); i >= 0 {
		own = all[i]
		oldest = !slices.ContainsFunc(all[:i], func(r *request) bool { return r.wants > 0 })
	}
	switch {
	case own == nil || own.before != before:
		return false, x.request(v, &request{at: v.now, wants: n, before: before, process: x.db.process})
	case own.wants == 0:
		v.given = own
		return true, nil
	case oldest || v.now-own.at > int64(maxWait):
		return false, x.answer(v, all, old)
	}
	return false, x.fail("wait for tasks", nil, pause(x.ctx))
}

// requests returns those that are not old, in their order, and the keys of the others.
func (x *tx) requests(v *view) (all []*request, old [][]byte, err error) {
	for e, err := range x.scan(v.requests()) {
		r := &request{process: uintAt(last(e.Key, 1))}
		if err == nil {
			err = x.fail("read", e.Key, decode(e.Value, r.code))
		}
		if err != nil {
			return nil, nil, err
		}
		if r.at > v.now-int64(keepRequest) {
			all = append(all, r)
		} else {
			old = append(old, e.Key)
		}
	}
	slices.SortFunc(all, func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.process, b.process))
	})
	return all, old, nil
}

func (v *view) requests() Span {
	at := v.about(requests)
	return Span{From: at, To: behind(at)}
}

func (v *view) requestKey(process uint64) []byte {
	return appendInt(v.about(requests), int64(process))
}

// request writes a request. Others may only overwrite it with an answer.
func (x *tx) request(v *view, r *request) error {
	return x.put(v.requestKey(r.process), encode(r.code))
}

// answer hands out the first tasks that were not handed out lately, and deletes the requests that
// are old. Whose process is only slow asks again.
func (x *tx) answer(v *view, all []*request, old [][]byte) error {
	given := map[string]bool{}
	wanted := 0
	for _, r := range all {
		wanted += r.wants
		for _, entry := range r.tasks {
			given[string(entry)] = true
		}
	}
	at := v.index(rows.TaskReady)
	from := append(at[:len(at):len(at)], v.head.mark.entry...)
	for e, err := range x.scan(Span{From: from, To: behind(at), Limit: wanted + len(given)}) {
		if err != nil {
			return err
		}
		entry := e.Key[len(at):]
		v.moveMark(entry) // of the first one
		i := slices.IndexFunc(all, func(r *request) bool {
			return len(r.tasks) < r.wants && bytes.Compare(entry, appendInt(nil, r.before)) < 0
		})
		if i >= 0 && !given[string(entry)] {
			all[i].tasks = append(all[i].tasks, bytes.Clone(entry))
		}
	}
	turn := v.about(handedOut)
	x.Guard(turn, nil)
	err := cmp.Or(x.putNumber(turn, x.db.process), v.saveMark())
	for _, key := range old {
		err = cmp.Or(err, x.remove(key))
	}
	for _, r := range all {
		if r.wants > 0 && err == nil {
			r.at, r.wants = v.now, 0
			err = x.request(v, r)
		}
	}
	return err
}

// handed returns the tasks of a range that were handed out to this process and can be taken.
func (t taskTable) handed(r *rows.Range) (found []hit[rows.Row], err error) {
	given := t.given
	t.given = nil
	if err := t.tx.remove(t.requestKey(t.db.process)); err != nil {
		return nil, err
	}
	ready := t.index(rows.TaskReady)
	var keys [][]byte
	for _, entry := range given.tasks {
		keys = append(keys, t.primary(entry))
	}
	if err := t.fail("read", nil, t.tx.Fetch(keys)); err != nil {
		return nil, err
	}
	for i, key := range keys {
		row, err := t.get(key)
		if err != nil {
			return nil, err
		}
		entry := append(ready[:len(ready):len(ready)], given.tasks[i]...)
		if row == nil || !row.Takeable || len(found) == r.Limit {
			continue
		}
		is := appendTuple(ready[:len(ready):len(ready)], t.schema.Place(rows.TaskReady, row))
		if bytes.Equal(appendInt(is, int64(row.ID)), entry) {
			found = append(found, hit[rows.Row]{key: entry, row: row})
		}
	}
	return found, nil
}
