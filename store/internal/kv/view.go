package kv

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// view implements rows.View.
type view struct {
	*tx
	*local
	id       uint64
	head     *head
	now      int64
	byKey    bool     // see rows.Plan
	alone    bool     // no other transaction is in the queue at the same time, so no row need be guarded
	n        int      // which of the tallies of the process is written
	number   uint64   // the last one that was given
	took     bool     // tasks were read to be taken
	given    *request // what was handed out to be taken, nil if anything may be
	notifies bool     // see Notify
	dropped  bool
}

// key returns the beginning of all keys of the queue, with room for the rest.
func (v *view) key() []byte { return appendInt(make([]byte, 0, 64), int64(v.id)) }

// about returns the key of something, or the beginning of its keys.
func (v *view) about(what int64) []byte { return appendInt(v.key(), what) }

func (v *view) tally() []byte {
	return appendInt(appendInt(v.about(aboutTally), int64(v.db.process)), int64(v.n))
}

func (v *view) index(i rows.Index) []byte { return v.about(int64(i)) }

func (v *view) payload(id uint64) []byte { return appendInt(v.about(payloads), int64(id)) }

func (v *view) Head() *rows.Head { return &v.head.Head }

func (v *view) Now() int64 { return v.now }

// Counts implements rows.View.
func (v *view) Counts() ([driver.Held + 1]int, error) { return v.head.tasks, nil }

// Save implements rows.View. Nobody can look before the transaction is committed.
func (v *view) Save() error { return nil }

// Number implements rows.View.
func (v *view) Number() (uint64, error) {
	n := v.next(v.db, v.head.number)
	if n > math.MaxInt64 {
		return 0, v.fail("number", nil, fmt.Errorf("queue %q has used all numbers", v.head.name))
	}
	v.number = n
	return n, nil
}

// LastRound implements rows.View. It reads index entries only. Some engines read a whole span to
// read it backwards, so it begins at the last round that this process knows. If no entry is there
// any more, the line was made shorter, and has to be read from its end.
func (v *view) LastRound(l rows.Line, after uint64) (round uint64, n int, err error) {
	known := v.knownRound(l)
	for e, err := range v.scan(v.rounds(l, known)) {
		if err != nil {
			return 0, 0, err
		}
		is := uintAt(last(e.Key, 4))
		if is != round {
			if n > 0 && known == 0 {
				break
			}
			round, n = is, 0
		}
		n++
	}
	v.knowRound(l, round)
	switch {
	case n == 0 && known > after+1:
		return v.LastRound(l, after)
	case round <= after:
		return 0, 0, nil
	}
	return round, n, nil
}

// rounds returns the tasks of a line from a round on, or if that is 0 all that have a round, those
// of the last one first.
func (v *view) rounds(l rows.Line, from uint64) Span {
	at := appendTuple(v.index(rows.TaskLine), rows.Tuple{l.Key, int64(l.Priority)})
	return Span{From: appendInt(bytes.Clone(at), int64(max(1, from))), To: behind(at), Desc: from == 0}
}

// KeyStats implements rows.View. It reads all tasks of the queue.
func (v *view) KeyStats(n int) ([]rows.Key, error) {
	stats := map[string]*rows.Key{}
	of := func(key string) *rows.Key {
		if stats[key] == nil {
			stats[key] = &rows.Key{Key: key}
		}
		return stats[key]
	}
	var r rows.Row
	err := visit(table[rows.Row]{v, &tasks}, &r, func() {
		k := of(r.Key)
		k.Tasks[0]++
		k.Tasks[r.State]++
		first := k.Tasks[driver.Ready]+k.Tasks[driver.Delayed] == 1
		if r.State <= driver.Delayed && (first || r.Created < k.Oldest) {
			k.Oldest = r.Created
		}
	})
	var paused rows.Key
	if err == nil {
		err = visit(table[rows.Key]{v, &keys}, &paused, func() {
			if paused.Paused {
				of(paused.Key).Paused = true
			}
		})
	}
	all := slices.SortedFunc(maps.Values(stats), func(a, b *rows.Key) int {
		return cmp.Or(cmp.Compare(b.Tasks[0], a.Tasks[0]), cmp.Compare(a.Key, b.Key))
	})
	var first []rows.Key
	for i, k := range all {
		if i < n || k.Paused {
			first = append(first, *k)
		}
	}
	return first, err
}

// visit reads all rows of a table, one after the other, into r.
func visit[R any](t table[R], r *R, f func()) error {
	at := t.index(t.schema[0].Index)
	for e, err := range t.tx.scan(Span{From: at, To: behind(at)}) {
		if err == nil {
			err = t.fail("read", e.Key, decode(e.Value, func(c *coder) { t.code(c, r) }))
		}
		if err != nil {
			return err
		}
		f()
	}
	return nil
}

// CountKeys implements rows.View. It reads n tasks, because to seek one key after the other would be
// an exchange for each, and leaves out what else there is of the last key.
func (v *view) CountKeys(from string, n int) (keys int, next string, err error) {
	at := v.index(rows.TaskLine)
	s := Span{From: appendTuple(bytes.Clone(at), rows.Tuple{from}), To: behind(at), Limit: n}
	var key []byte
	for e, err := range v.scan(s) {
		if err != nil {
			return 0, "", err
		}
		n--
		if is := e.Key[len(at):]; !bytes.Equal(key, is[:sizeOf(is, 1)]) {
			key = is[:sizeOf(is, 1)]
			keys++
		}
	}
	if n == 0 {
		next = stringAt(key) + "\x00"
	}
	return keys, next, nil
}

// Ended implements rows.View. A mark is a number: what is committed later has a greater one.
func (v *view) Ended(mark string) (ended []*rows.Outcome, next string, err error) {
	next = strconv.FormatUint(v.seen(v.head.number), 10)
	if mark == "" {
		return nil, next, nil
	}
	since, err := strconv.ParseInt(mark, 10, 64)
	if err == nil {
		after := rows.Range{Index: rows.OutcomeWritten, From: rows.Tuple{since + 1}}
		ended, err = v.Outcomes().Scan(after)
	}
	return ended, next, err
}

// Drop implements rows.View.
func (v *view) Drop() (done bool, err error) {
	v.dropped = true
	v.wrote = true
	v.Guard(v.about(aboutQueue), nil)
	v.Guard(v.about(aboutTally), behind(v.about(aboutTally)))
	if err := v.fail("drop", nil, v.Clear(v.key(), behind(v.key()))); err != nil {
		return false, err
	}
	return true, v.remove(nameKey(v.head.name))
}
