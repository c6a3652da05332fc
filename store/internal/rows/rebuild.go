package rows

import (
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// rebuild makes the rows of a queue agree with its new limits. No other process has the queue open
// then (see open). As with any work, nothing else happens in the queue before it is done.
func (u *unit) rebuild() {
	u.do(&work{What: forgetCounts, Dropped: true})
	u.do(&work{What: countTasks})
	u.do(&work{What: showAllTurns})
}

// recountKeys counts the tasks of all keys again. It is not called where a transaction may write
// only few rows.
func (u *unit) recountKeys() {
	u.do(&work{What: forgetCounts})
	u.do(&work{What: countTasks})
}

// forgetCounts forgets how many tasks the next n keys have. With Dropped it also fills the buckets
// of the keys, because their tokens may have been spent at another rate.
func (u *unit) forgetCounts(w *work, n int) (done bool) {
	u.saveKeys() // with their pauses and waits
	keys := must(u.v.Keys().Scan(Range{Index: KeyName, From: Tuple{string(w.Name)}, Limit: n}))
	for _, k := range keys {
		if u.isLarge() {
			return false
		}
		if k.Tasks = [driver.Held + 1]int{}; w.Dropped {
			k.Wait = life.Wait{Hold: k.Hold, Until: k.Hold, Waits: k.Hold != 0}
		}
		check(u.v.SetKey(k))
		delete(u.head.keys, k.Key)
		u.written++
		u.bytes += inIndexes * len(k.Key)
		w.Name = []byte(k.Key + "\x00")
	}
	return len(keys) < n
}

// countTasks counts the next n tasks for their keys.
func (u *unit) countTasks(w *work, n int) (done bool) {
	if !u.q.countsKeys && !u.q.limits {
		return true
	}
	rows := must(u.v.Rows(Range{Index: TaskID, From: after(w.ID), Limit: n}))
	u.readKeys(keysOf(rows)...)
	return u.eachOf(rows, n, func(r *Row) {
		w.ID = r.ID
		if to := u.q.counted(r.State); to != 0 {
			u.count(u.key(r.Key), 0, to)
			u.bytes += inIndexes * len(r.Key) // save writes the key
		}
	})
}
