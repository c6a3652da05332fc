package kv

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// view implements rows.View.
type view struct {
	*tx
	*local
	id         uint64
	head       *head
	now        int64
	exclusive  bool   // guards all tallies, so no row need be guarded
	tallyIndex int    // the tally of the process that this transaction uses
	number     uint64 // the last number given out
	took       bool   // it has read tasks to take them
	notifies   bool   // see Notify
	dropped    bool
}

// queuePrefix returns the prefix of all keys of the queue, with capacity for the rest.
func (v *view) queuePrefix() []byte { return appendInt(make([]byte, 0, 64), int64(v.id)) }

// section returns the key of a section, or the prefix of its keys.
func (v *view) section(number int64) []byte { return appendInt(v.queuePrefix(), number) }

func (v *view) tallyKey() []byte {
	return appendInt(appendInt(v.section(sectionTally), int64(v.db.process)), int64(v.tallyIndex))
}

func (v *view) index(i rows.Index) []byte { return v.section(int64(i)) }

func (v *view) payloadKey(id uint64) []byte {
	return appendInt(v.section(sectionPayload), int64(id))
}

func (v *view) Head() *rows.Head { return &v.head.Head }

func (v *view) Now() int64 { return v.now }

// Counts implements rows.View.
func (v *view) Counts() ([driver.Held + 1]int, error) { return v.head.tasks, nil }

// Save implements rows.View. Commit writes the head, because nothing reads it before.
func (v *view) Save() error { return nil }

// Number implements rows.View.
func (v *view) Number() (uint64, error) {
	n := v.nextNumber(v.db, v.head.number)
	if n > math.MaxInt64 {
		return 0, v.fail("number", nil, fmt.Errorf("queue %q has no numbers left", v.head.name))
	}
	v.number = n
	return n, nil
}

// KeyStats implements rows.View. It reads all tasks of the queue, or if n is 0 the tasks of paused
// keys.
func (v *view) KeyStats(n int) ([]rows.Key, error) {
	stats := map[string]*rows.Key{}
	of := func(key string) *rows.Key {
		if stats[key] == nil {
			stats[key] = &rows.Key{Key: key}
		}
		return stats[key]
	}
	var paused rows.Key
	err := visit(table[rows.Key]{v, &keys}, &paused, func() {
		if paused.Paused {
			of(paused.Key).Paused = true
		}
	})
	if err != nil || n+len(stats) == 0 {
		return nil, err
	}
	var r rows.Row
	count := func() {
		k := of(r.Key)
		k.Tasks[0]++
		k.Tasks[r.State]++
		first := k.Tasks[driver.Ready]+k.Tasks[driver.Delayed] == 1
		if r.State <= driver.Delayed && (first || r.Created < k.Oldest) {
			k.Oldest = r.Created
		}
	}
	tasks := table[rows.Row]{v, &tasks}
	if n > 0 {
		err = visit(tasks, &r, count)
	} else {
		for key := range stats {
			found, failed := tasks.Scan(rows.Range{Index: rows.TaskLine, Prefixes: []rows.Tuple{{key}}})
			for i := range found {
				r = *found[i]
				count()
			}
			err = cmp.Or(err, failed)
		}
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

// visit reads each row of a table into r, and calls f.
func visit[R any](t table[R], r *R, f func()) error {
	at := t.index(t.schema[0].Index)
	for e, err := range t.tx.scan(Span{From: at, To: prefixEnd(at), Loose: true}) {
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

// CountKeys implements rows.View. It reads n tasks, because a seek to each next key would take an
// exchange per key. next comes after the other tasks of the last key.
func (v *view) CountKeys(from string, n int) (keys int, next string, err error) {
	at := v.index(rows.TaskLine)
	s := Span{
		From: appendTuple(bytes.Clone(at), rows.Tuple{from}), To: prefixEnd(at), Limit: n, Loose: true,
	}
	var key []byte
	for e, err := range v.scan(s) {
		if err != nil {
			return 0, "", err
		}
		n--
		rest := e.Key[len(at):]
		if k := rest[:sizeOf(rest, 1)]; !bytes.Equal(key, k) {
			key = k
			keys++
		}
	}
	if n == 0 {
		next = stringAt(key) + "\x00"
	}
	return keys, next, nil
}

// Ended implements rows.View. A mark is a number; outcomes that are committed later have greater
// numbers.
func (v *view) Ended(mark string) (ended []*rows.Outcome, next string, err error) {
	next = strconv.FormatUint(v.noteNumber(v.head.number), 10)
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
	v.Guard(v.section(sectionQueue), nil)
	v.Guard(v.section(sectionTally), prefixEnd(v.section(sectionTally)))
	if err := v.fail("drop", nil, v.Clear(v.queuePrefix(), prefixEnd(v.queuePrefix()))); err != nil {
		return false, err
	}
	return true, v.remove(nameKey(v.head.name))
}
