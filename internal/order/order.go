// Package order has the rule of order: it decides which key, and which of its tasks, is served
// next. All stores of this repository call it, so that they serve tasks in the same order.
//
// A line has the ready tasks of a key in a priority, in the order of their places. It has one
// turn, which its first task uses. A turn is in a round. Tasks of a priority are taken in the
// order of the rounds of their turns, and within a round in the order of their places. A round has
// a share of work for each key: its weight, or with costs its weight times the quantum. Without
// costs each task is one unit of work. The account of a line has its use of these shares: see
// package account.
//
// Now is the round being served: the greatest round with a used turn.
//
//	event                             | the line after it
//	a first task becomes ready        | has a turn after its account, in now + 1 or later
//	another task becomes ready        | has the same turn; the first task by place uses it
//	its turn is used                  | has paid the cost; its next turn is in the same round while
//	                                  | the share lasts: see Used
//	a turn of an earlier round is     | has paid too, but its next turn is in now + 1 or later: so a
//	used: the key was paused, or had  | key that was passed over gets back one turn, or the rest of
//	no task for a filter              | its share of one round
//	a task leaves without using the   | keeps its turn; a line without tasks has none
//	turn, or is deleted               |
//	a task is handed back untried     | keeps its turn; the task keeps its old turn, beside that of
//	                                  | the line. With KeepPlace it does so only if no ready task of
//	                                  | the line has an earlier place
//	a task comes back in any other    | is as if a new task became ready
//	way, or with another priority     |
//	its key is paused, waits or is    | keeps its turn, but takers pass over the line. If that round
//	at its limit                      | is over when the key may go on, the line is first
//	its key gets another weight       | has the same turn, and after its use the new share
//	a taker asks for a kind           | the first task of that kind by place uses the turn
//	a task becomes ready as the only  | all accounts of its priority are void: now moves on to the
//	one of its queue                  | furthest one, because no task has waited for the work done
//
// A database may give each task its turn when it becomes ready, if the tasks before it leave only
// by being taken: then the turns are the same.
package order

import (
	"cmp"
	"container/heap"
	"iter"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// Used returns the account of a line after it has used a turn for a task of that cost, and its
// next turn. now is the round being served after that use. If the weight has fallen, and the share
// with it, the line may have used more than the share before this turn. Then the turn counts as
// the last unit of the share.
func Used(turn account.Account, now, cost, share uint64) (end, next account.Account) {
	turn.Used = min(turn.Used, share-1)
	end = turn.Pay(cost, share)
	join := now
	if turn.Round < now {
		join++
	}
	return end, end.Next(join, share)
}

// Line is a line for Forecast.
type Line[T any] struct {
	Tasks[T]
	Key   *Key
	Turn  account.Account
	First Task[T] // its first task
}

// Tasks iterates over the other tasks of a line.
type Tasks[T any] interface {
	Next() Task[T] // a zero Task at the end
}

// Task is a ready task.
type Task[T any] struct {
	Task   T
	Place  uint64 // not 0
	Cost   uint64
	Tokens int64 // of an attempt
	Share  uint64
	Round  uint64 // of its own turn, 0 if it uses the turn of the line
}

// Key has the limits of a key, or of a queue.
type Key struct {
	Slots int // how many more tasks it may have in flight
	Rate  driver.Rate
	Wait  life.Wait
}

// Blocked reports whether no task of the key can be taken.
func (k *Key) Blocked() bool { return k.Slots <= 0 || k.Wait.Waits }

func (k *Key) take(tokens, at int64) {
	if k.Slots--; k.Rate.Limit > 0 {
		k.Wait.Spend(k.Rate, tokens, at)
	}
}

func (l *Line[T]) round() uint64 { return cmp.Or(l.First.Round, l.Turn.Round) }

func (l *Line[T]) compare(other *Line[T]) int {
	return cmp.Or(cmp.Compare(l.round(), other.round()),
		cmp.Compare(l.First.Place, other.First.Place))
}

// Forecast yields the tasks of a priority in the order in which they will be taken if nothing else
// happens, with the number of rounds from now. lines yields the lines in the order of their first
// tasks. The tasks are taken at one time, and Forecast notes that in the limits of the keys and of
// the queue.
func Forecast[T any](
	lines iter.Seq[*Line[T]], now uint64, queue *Key, at int64,
) iter.Seq2[T, int] {
	return func(yield func(T, int) bool) {
		var again upcoming[T] // lines that have used a turn, by the next one
		current := now
		use := func(l *Line[T]) bool {
			if l.Key.Blocked() || queue.Blocked() {
				return !queue.Blocked()
			}
			t := l.First
			if current = max(current, l.round()); t.Round == 0 {
				_, l.Turn = Used(l.Turn, current, t.Cost, t.Share)
			}
			l.Key.take(t.Tokens, at)
			queue.take(t.Tokens, at)
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
