package kv

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// Taking decides which tasks processes take that take at the same time.
type Taking uint8

const (
	// Apart makes each process take the first tasks of its own lane; see lanes.
	Apart Taking = iota

	// Staged makes processes request tasks, and one of them hand out the very first; see stage.
	Staged

	// Strict makes all processes take the very first tasks: all but one have to try again.
	Strict
)

// request is the request of a process for tasks, and then the answer. The answer is a hint, and
// does not change the tasks: the process takes them like any others. So the death of a process
// loses nothing: others skip its tasks for requestLifetime, and then these are the first again.
type request struct {
	at     int64    // when it was made or answered
	wants  int      // the number of tasks; 0 in an answer
	before int64    // only priorities less than this
	tasks  [][]byte // entries of TaskReady, as in mark.entry

	process uint64 // part of the key, not of the value
}

const (
	requestLifetime = 2 * time.Second
	maxWait         = 100 * time.Millisecond // after this wait a process hands out tasks itself
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

// wantedTasks returns the number of tasks that a transaction with this plan will take, and the
// first priority that it will not take.
func wantedTasks(plan *rows.Plan) (n int, before int64) {
	for _, r := range plan.Ranges {
		if r.Index == rows.TaskReady && r.Lock == rows.SkipLocked {
			return r.Limit, r.To[0].(int64)
		}
	}
	return 0, 0
}

// prepare reports whether a transaction can go on. While several processes take tasks, it may have
// to write before it takes some: its tally to get a lane, or a request. prepare does so, commits,
// and returns false; then the transaction begins again.
func (x *tx) prepare(v *view, plan *rows.Plan) (ready bool, err error) {
	n, before := wantedTasks(plan)
	switch taking := x.db.options.Taking; {
	case n == 0 || v.exclusive || v.head.Paused || x.wrote:
		return true, nil
	case taking == Apart && v.head.lanes.own < 0 && v.hasFailed(): // others were faster: get a lane
		v.took = true
		err = v.saveTally()
	case taking == Staged && v.head.lanes.count > 1:
		if ready, err = x.stage(v, n, before); ready || err != nil {
			return ready, err
		}
	default:
		return true, nil
	}
	if err != nil {
		return false, err
	}
	x.Guard(v.section(sectionQueue), nil)
	switch err := x.Txn.Commit(); {
	case errors.Is(err, ErrConflict):
		x.db.conflicts.Add(1)
		return false, x.fail("wait for tasks", nil, pause(x.ctx))
	case err != nil && !errors.Is(err, ErrUnknown): // the next read shows an unknown outcome
		return false, x.fail("ask for tasks", nil, err)
	}
	return false, nil
}

// stage reports whether its process has got an answer to its request for tasks. Until then stage
// makes the request, waits, or answers all requests if none is older than its own. Requests are
// ordered by the clocks of their processes, which may differ a little. If two processes answer at
// the same time, one of them has to try again.
func (x *tx) stage(v *view, n int, before int64) (ready bool, err error) {
	all, old, err := x.readRequests(v)
	if err != nil {
		return false, err
	}
	var own *request
	oldest := true
	isOwn := func(r *request) bool { return r.process == x.db.process }
	if i := slices.IndexFunc(all, isOwn); i >= 0 {
		own = all[i]
		oldest = !slices.ContainsFunc(all[:i], func(r *request) bool { return r.wants > 0 })
	}
	switch {
	case own == nil || own.before != before:
		own = &request{at: v.now, wants: n, before: before, process: x.db.process}
		return false, x.putRequest(v, own)
	case own.wants == 0:
		v.handOut = own
		return true, nil
	case oldest || v.now-own.at > int64(maxWait):
		return false, x.answer(v, all, old)
	}
	return false, x.fail("wait for tasks", nil, pause(x.ctx))
}

// readRequests returns the requests of the last requestLifetime in their order, and the keys of
// the older ones.
func (x *tx) readRequests(v *view) (all []*request, old [][]byte, err error) {
	for e, err := range x.scan(v.requestSpan()) {
		r := &request{process: uintAt(last(e.Key, 1))}
		if err == nil {
			err = x.fail("read", e.Key, decode(e.Value, r.code))
		}
		if err != nil {
			return nil, nil, err
		}
		if r.at > v.now-int64(requestLifetime) {
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

func (v *view) requestSpan() Span {
	at := v.section(sectionRequest)
	return Span{From: at, To: prefixEnd(at)}
}

func (v *view) requestKey(process uint64) []byte {
	return appendInt(v.section(sectionRequest), int64(process))
}

// putRequest writes a request. Other processes overwrite it only with an answer.
func (x *tx) putRequest(v *view, r *request) error {
	return x.put(v.requestKey(r.process), encode(r.code))
}

// answer hands out the first tasks that were not handed out lately, and deletes old requests. A
// slow process whose request was deleted makes a new one.
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
	for e, err := range x.scan(Span{From: from, To: prefixEnd(at), Limit: wanted + len(given)}) {
		if err != nil {
			return err
		}
		entry := e.Key[len(at):]
		v.moveMark(entry) // at the first entry, or not at all
		i := slices.IndexFunc(all, func(r *request) bool {
			return len(r.tasks) < r.wants && bytes.Compare(entry, appendInt(nil, r.before)) < 0
		})
		if i >= 0 && !given[string(entry)] {
			all[i].tasks = append(all[i].tasks, bytes.Clone(entry))
		}
	}
	turn := v.section(sectionHandOut)
	x.Guard(turn, nil)
	err := cmp.Or(x.putNumber(turn, x.db.process), v.saveMark())
	for _, key := range old {
		err = cmp.Or(err, x.remove(key))
	}
	for _, r := range all {
		if r.wants > 0 && err == nil {
			r.at, r.wants = v.now, 0
			err = x.putRequest(v, r)
		}
	}
	return err
}

// findHandedOut returns the tasks of a range that were handed out to this process and can still be
// taken.
func (t taskTable) findHandedOut(r *rows.Range) (found []hit[rows.Row], err error) {
	given := t.handOut
	t.handOut = nil
	if err := t.tx.remove(t.requestKey(t.db.process)); err != nil {
		return nil, err
	}
	ready := t.index(rows.TaskReady)
	var keys [][]byte
	for _, entry := range given.tasks {
		keys = append(keys, t.rowKey(entry))
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
		// An entry is stale if the task has got another turn since it was handed out.
		current := appendTuple(ready[:len(ready):len(ready)], t.schema.Place(rows.TaskReady, row))
		if bytes.Equal(appendInt(current, int64(row.ID)), entry) {
			found = append(found, hit[rows.Row]{key: entry, row: row})
		}
	}
	return found, nil
}
