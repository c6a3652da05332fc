package rows

import (
	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// rebuild makes the rows of a queue what they must be with its new settings. Nobody else has the
// queue open then (see open). As with any other work nothing else happens in the queue until that
// is done: no task can be taken before the last part, which gives the turns.
//
// The tasks of a line get their turns in the order of their places, and lines in the order of
// their first tasks' places. Tasks that have used their turns (they are taken, or were handed
// back) come before all others.
func (u *unit) rebuild() {
	u.do(&work{What: forgetCounts, Dropped: true})
	u.do(&work{What: resetTasks})
	u.do(&work{What: giveTurns})
}

// recountKeys counts the tasks of all keys again. It is not called where a transaction may write
// only few rows.
func (u *unit) recountKeys() {
	u.do(&work{What: forgetCounts})
	u.do(&work{What: countTasks})
}

// forgetCounts forgets how many tasks the next n keys have. If the queue is rebuilt their buckets
// are full again, because what they lack may have been for another rate.
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
		delete(u.head.readyTasks, k.Key)
		u.written++
		u.bytes += inIndexes * len(k.Key)
		w.Name = []byte(k.Key + "\x00")
	}
	return len(keys) < n
}

// countTasks counts the next n tasks for their keys. If the queue is rebuilt, it also takes them
// out of all indexes that depend on the settings.
func (u *unit) countTasks(w *work, n int) (done bool) {
	rows := must(u.v.Rows(Range{Index: TaskID, From: after(w.ID), Limit: n}))
	if u.q.countsKeys || u.q.limitsInFlight {
		keys := make([]string, len(rows))
		for i, r := range rows {
			keys[i] = r.Key
		}
		u.readKeys(keys...)
	}
	return u.eachOf(rows, n, func(r *Row) {
		w.ID = r.ID
		if to := u.q.counted(r.State); to != 0 {
			u.count(u.key(r.Key), 0, to)
		}
		if w.What == resetTasks {
			u.reset(r)
		}
	})
}

// reset takes a task out of all indexes that depend on the settings.
func (u *unit) reset(r *Row) {
	if u.q.settings.KeepPlace && r.Place == 0 {
		r.Place = r.ID // as if it had kept it
	}
	if r.Front = NoFront; u.q.frontsOnly {
		r.Front = Parked
	}
	returned := r.State == driver.Ready && r.Returned
	if returned || r.hasUsedTurn() { // it is first, or will be when it is handed back
		r.setTurn(account.Account{Round: u.currentRound(r.Priority)}, returned)
	} else {
		r.setTurn(account.Account{}, false)
	}
	r.Takeable, r.Hidden, r.Gap = false, false, false
	delete(u.head.accounts, r.line())
	u.update(r)
}

// hasUsedTurn reports whether a task is taken and has used its turn. A task that was taken by its
// id has not.
func (r *Row) hasUsedTurn() bool {
	return r.State == driver.Taken && r.Round != 0
}

// giveTurns gives turns to the next n tasks of a queue that is rebuilt. It comes once more to each
// task that has got one, as that moves the task to a later place in the index.
func (u *unit) giveTurns(w *work, n int) (done bool) {
	page := w.page(n)
	page.Only.State = driver.Ready
	return u.eachOf(must(u.v.Rows(page)), n, func(r *Row) {
		w.pass(r)
		switch {
		case u.q.frontsOnly && (r.Round == 0 || r.Returned): // it may be the first of its kind
			u.updateFront(r, came, account.Account{})
		case !u.q.frontsOnly && !r.Takeable:
			if r.Takeable = true; r.Round == 0 {
				u.giveTurn(r)
			}
			u.writeShown(r)
		}
	})
}
