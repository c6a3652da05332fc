// Package order has the rule of order: which task of which key is taken next. The stores of this
// repository ask it, so that all of them serve tasks in the same order.
//
// A line is the ready tasks of a key in a priority, in the order of their places. It has one turn,
// which its first task uses. A turn is in a round. The tasks of a priority are taken in the order
// of the rounds of their turns, and within a round in the order of their places. A round has a
// share of work for each key: its weight, or with costs its weight times the quantum. Without costs
// each task is one unit of work. An account says how far a line has used its shares: see package
// account.
//
// Now is the round being served: the greatest of which a turn was used.
//
//	event                            | what the line has then
//	a first task becomes ready       | a turn after its account, in now + 1 or later: see First
//	another one becomes ready        | the same turn; the first task by place uses it
//	its turn is used                 | the cost is on its account; if tasks are left, the next turn
//	                                 | follows in the same round as far as the share goes: see Used
//	a turn of an earlier round is    | the same, but the next turn is in now + 1 or later: so a key
//	used, because the key was paused | that was passed over gets back one turn, or what is left of
//	or had no task for a filter      | its share of one round
//	a task leaves otherwise          | the same turn; without any task none
//	a task is handed back untried    | the same turn; that task has the turn that it was taken by, for
//	                                 | itself. If it leaves, that turn is gone with it
//	a task comes back otherwise,     | as when any task becomes ready there
//	or with another priority         |
//	its key is paused, or has as     | the same turn, which is passed over. As soon as the key may go
//	many tasks taken as it may       | on it is first, if the round has been served
//	a task of some kind is asked for | the first task of that kind by place uses the turn
//	no other task of the queue is    | void accounts: now moves on to the furthest one, because nobody
//	ready when one becomes ready     | has waited for the work that was done
//
// A database may give each task its turn when it becomes ready, as long as the tasks before it leave
// only by being taken: the turns are the same then.
package order

import (
	"cmp"
	"container/heap"
	"iter"

	"github.com/fairq/fairq/internal/account"
)

// First returns the turn of a line that has had none. Its account is after the last turn that it
// has used, in the round served. Newcomers join the round after now; if joins is set, they join the
// current one, unless they were served in it.
func First(end account.Account, served, now uint64, joins bool, share uint64) account.Account {
	if joins && now > 0 && served < now {
		return end.Next(now, share)
	}
	return end.Next(now+1, share)
}

// Used returns the account of a line after it has used a turn for a task of that cost, and the turn
// that follows. Now is the round being served, with that turn.
func Used(turn account.Account, now, cost, share uint64) (end, next account.Account) {
	end = turn.Pay(cost, share)
	join := now
	if turn.Round < now {
		join++
	}
	return end, end.Next(join, share)
}

// Line is a line as Forecast needs it.
type Line[T any] struct {
	Tasks[T]
	Turn  account.Account
	Share uint64
	First Task[T] // of those that are left
}

// Tasks is the other tasks of a line.
type Tasks[T any] interface {
	Next() Task[T] // a zero one at the end

	// Blocked reports whether no more tasks of the key can be taken, after those that were yielded.
	Blocked() bool
}

// Task is a ready task.
type Task[T any] struct {
	Task  T
	Place uint64 // not 0
	Cost  uint64
	Round uint64 // of its own turn, 0 if it uses that of the line
}

func (l *Line[T]) round() uint64 { return cmp.Or(l.First.Round, l.Turn.Round) }

func (l *Line[T]) compare(other *Line[T]) int {
	return cmp.Or(cmp.Compare(l.round(), other.round()), cmp.Compare(l.First.Place, other.First.Place))
}

// Forecast yields the tasks of a priority in the order in which they will be taken, if nothing else
// happens, and the number of rounds from now to theirs. The lines come in the order of their first
// tasks.
func Forecast[T any](lines iter.Seq[*Line[T]], now uint64) iter.Seq2[T, int] {
	return func(yield func(T, int) bool) {
		var again upcoming[T] // lines that have used a turn, by the next one
		current := now
		use := func(l *Line[T]) bool {
			if l.Blocked() {
				return true
			}
			t := l.First
			if current = max(current, l.round()); t.Round == 0 {
				_, l.Turn = Used(l.Turn, current, t.Cost, l.Share)
			}
			if l.First = l.Next(); l.First.Place != 0 {
				heap.Push(&again, l)
			}
			return yield(t.Task, int(current-now))
		}
		for l := range lines {
			for len(again) > 0 && again[0].compare(l) < 0 {
				if !use(heap.Pop(&again).(*Line[T])) {
					return
				}
			}
			if !use(l) {
				return
			}
		}
		for len(again) > 0 && use(heap.Pop(&again).(*Line[T])) {
		}
	}
}

// upcoming is a heap of lines.
type upcoming[T any] []*Line[T]

func (u upcoming[T]) Len() int           { return len(u) }
func (u upcoming[T]) Less(i, j int) bool { return u[i].compare(u[j]) < 0 }
func (u upcoming[T]) Swap(i, j int)      { u[i], u[j] = u[j], u[i] }
func (u *upcoming[T]) Push(x any)        { *u = append(*u, x.(*Line[T])) }

func (u *upcoming[T]) Pop() any {
	last := len(*u) - 1
	l := (*u)[last]
	*u = (*u)[:last]
	return l
}
