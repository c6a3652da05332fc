package rows

import (
	"cmp"
	"strings"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/internal/order"
	"github.com/fairq/fairq/task/driver"
)

// cache is what the rules know of a queue as long as nobody else has written to the database. An
// entry that may be wrong must be deleted by whoever changes what it is about; one that is missing
// is read again.
type cache struct {
	accounts map[Line]account.Account // as account returns them
	alive    map[uint64]bool          // consumers of this process that are still there, by number
	taken    map[uint64]*Row          // by id: tasks that were taken here, as they are in the database

	// Rows of the table of keys that were read, or would be made, and ready tasks by key.
	keys       map[string]*Key
	readyTasks map[string]map[span]*firsts
}

// newCache returns one that knows nothing.
func newCache() cache {
	return cache{
		map[Line]account.Account{},
		map[uint64]bool{},
		map[uint64]*Row{},
		map[string]*Key{},
		map[string]map[span]*firsts{},
	}
}

// maxAccounts is of how many lines the account is remembered at most.
const maxAccounts = 1 << 16

// currentRound returns the round being served, 0 if none was ever.
func (u *unit) currentRound(priority int) uint64 { return u.head.Rounds[priority] }

// account returns that of a line after the last of the turns that its ready tasks have. If it has
// none, ok is false.
func (u *unit) account(l Line, weight int) (end account.Account, ok bool) {
	if known, ok := u.head.accounts[l]; ok {
		return known, true
	}
	if u.q.alternates(weight) {
		round, tasks := must2(u.v.LastRound(l, u.currentRound(l.Priority)))
		end, ok = account.Account{Round: round, Used: uint64(tasks)}, round > 0
	} else if r := must(u.v.LastReady(l)); r != nil && !r.Returned {
		end, ok = u.after(r), true
	}
	if ok {
		u.setAccount(l, end)
	}
	return end, ok
}

func must2[A, B any](a A, b B, err error) (A, B) {
	check(err)
	return a, b
}

func (u *unit) setAccount(l Line, known account.Account) {
	if len(u.head.accounts) >= maxAccounts {
		clear(u.head.accounts)
	}
	u.head.accounts[l] = known
}

// share returns how much a key of that weight may use of a round.
func (u *unit) share(weight int) uint64 {
	return uint64(weight) * uint64(max(1, u.q.settings.Quantum))
}

// cost returns how much of a share a task uses. It is not written down with its turn, so a task that
// gets another one's turn pays its own cost.
func (u *unit) cost(r *Row) uint64 {
	if u.q.costs {
		return uint64(r.Cost)
	}
	return 1
}

// after returns the account of a line after the turn of one of its tasks.
func (u *unit) after(r *Row) account.Account {
	return r.turn().Pay(u.cost(r), u.share(r.Weight))
}

// following returns the turn after that of a task that was taken.
func (u *unit) following(turn account.Account, r *Row) account.Account {
	_, next := order.Used(turn, u.currentRound(r.Priority), u.cost(r), u.share(r.Weight))
	return next
}

// firstTurn returns the turn of a line that has none, for a task.
func (u *unit) firstTurn(r *Row) account.Account {
	served := &Served{}
	if u.q.costs || u.q.newcomersJoin {
		served = cmp.Or(must(u.v.ServedOf(r.line())), served)
	}
	end := account.Account{Round: served.Round, Used: served.Used}
	return order.First(end, served.Taken, u.currentRound(r.Priority), u.q.newcomersJoin, u.share(r.Weight))
}

// forgetAccounts is called before a task becomes ready, where tasks have costs. If no other one is
// ready, nobody has waited for what the lines have used. So the queue moves on to where their
// accounts are void.
func (u *unit) forgetAccounts(priority int) {
	furthest := must(u.v.Furthest(priority))
	if furthest == nil || furthest.Round <= u.currentRound(priority) || must(u.v.Counts())[driver.Ready] > 0 {
		return
	}
	u.head.Rounds[priority] = furthest.Round + 1
	u.headChanged = true
}

// markServed notes that a task is taken: its round is the one being served, unless a later one is.
func (u *unit) markServed(r *Row) {
	if r.Returned {
		return // that was noted when it was taken first
	}
	if r.Round > u.currentRound(r.Priority) {
		u.head.Rounds[r.Priority] = r.Round
		u.headChanged = true
	}
	end, now := u.after(r), u.currentRound(r.Priority)
	if end.Round > now || u.q.newcomersJoin && end.Round == now {
		check(u.v.Served().Put(&Served{r.line(), end.Round, end.Used, r.Round}))
	}
	if u.head.accounts[r.line()] == end {
		delete(u.head.accounts, r.line()) // it was the last one
	}
}

// newTurn takes from a task its turn, and unless it keeps it its place, so that it gets new ones
// when it becomes ready.
func (u *unit) newTurn(r *Row) {
	r.setTurn(account.Account{}, false)
	r.Gap = false
	if !u.q.settings.KeepPlace {
		r.Place = 0 // behind all others of its key
	}
}

// reprioritize gives a task that is in no line another priority, and a place behind all of its line.
func (u *unit) reprioritize(r *Row, priority int) {
	delete(u.head.accounts, r.line())
	r.Priority, r.Place, r.Gap = priority, 0, false
	r.setTurn(account.Account{}, false)
	if u.q.settings.KeepPlace {
		r.Place = u.number()
	}
}

// place gives a task that becomes ready its place in the order, and its turn unless there are
// fronts. The caller writes it, and then calls updateFront.
func (u *unit) place(r *Row) {
	if u.q.costs {
		u.forgetAccounts(r.Priority)
	}
	if r.Place == 0 {
		r.Place = u.number()
	}
	if u.q.frontsOnly {
		r.Front = Parked
		r.setTurn(r.turn(), r.Returned)
		return
	}
	if r.Round == 0 {
		u.giveTurn(r)
	}
	r.Takeable = true
	u.readAhead = readAhead{}
	u.canBeTaken(r)
}

// giveTurn gives a task the turn after those of its line.
func (u *unit) giveTurn(r *Row) {
	if len(u.gaps) > 0 {
		u.closeGaps() // or it would move up into a turn that was left before it came
	}
	end, ok := u.account(r.line(), r.Weight)
	turn := end.Next(0, u.share(r.Weight))
	if !ok {
		turn = u.firstTurn(r)
	}
	r.setTurn(turn, false)
	u.setAccount(r.line(), u.after(r))
}

// leaveGap remembers that a line has a turn that no task has any more. Of several it remembers the
// first.
func (u *unit) leaveGap(r *Row) {
	if u.gaps == nil {
		u.gaps = map[Line]gap{}
	}
	if first, ok := u.gaps[r.line()]; !ok || r.Round < first.Round || r.Round == first.Round && r.Place < first.place {
		u.gaps[r.line()] = gap{r.turn(), r.Place}
	}
}

// gap is a turn that no task has any more, and the place of the task that has had it.
type gap struct {
	account.Account
	place uint64
}

// closeGaps gives the turns that no task has any more to the tasks behind them. So a key that
// deletes tasks keeps its early turns, and gives up its last ones.
func (u *unit) closeGaps() {
	for l, first := range u.gaps {
		delete(u.gaps, l)
		u.closeGap(l, first, first.Account)
	}
}

// closeGap gives a free turn to the first task of a line after another turn, if its own is later.
// That leaves a gap behind it, which is closed in the same way when the task is taken (Row.Gap): to
// move all tasks of the line up at once would be a write for each.
func (u *unit) closeGap(l Line, after gap, free account.Account) {
	next := must(u.v.Next(l, after.Round, after.place))
	if next == nil || next.turn() == free {
		return
	}
	next.setTurn(free, false)
	next.Gap = true
	delete(u.head.accounts, l)
	u.readAhead = readAhead{}
	u.update(next)
}

// turn returns the turn of a task: the account of its line before it.
func (r *Row) turn() account.Account { return account.Account{Round: r.Round, Used: r.Used} }

// setTurn gives a task a turn, or none. Returned says that it was used before, and handed back.
func (r *Row) setTurn(t account.Account, returned bool) {
	r.Round, r.Used, r.Seq, r.Returned = t.Round, t.Used, 0, returned
	if t.Round > 0 {
		r.Seq = r.Place
	}
	switch {
	case r.Front == NoFront:
	case t.Round == 0:
		r.Front = Parked
	default:
		r.Front = AtFront
	}
}

// changeKey changes whether a key is paused and until when it waits, and reports whether that blocks
// or frees it: then updateKey must be called. From the first time on that any key is paused or waits
// the queue has fronts (see needFronts), so that this changes those of the key, and not its whole
// backlog.
func (u *unit) changeKey(key string, change func(k *Key)) (changes bool) {
	k := u.key(key)
	was := *k
	change(k)
	k.Settle(u.q.rate(key), u.now)
	if k.Paused == was.Paused && k.Wait == was.Wait {
		return false
	}
	u.unsaved[k] = true
	u.schedule(k.Until)
	if k.IsPaused() != was.IsPaused() {
		u.needExclusive()
		u.headChanged = true
		if u.head.PausedKeys--; k.IsPaused() {
			u.head.PausedKeys += 2
		}
	}
	return k.IsHeld() != was.IsHeld()
}

// waitKey has a key wait until a time, unless it waits for longer, and reports what changeKey does.
func (u *unit) waitKey(key string, until int64) (changes bool) {
	return u.changeKey(key, func(k *Key) { k.Hold = max(k.Hold, until) })
}

// endWait has a key wait no more, if it has waited long enough.
func (u *unit) endWait(key string) {
	k := u.key(key)
	switch {
	case k.Until == 0 || k.Until > u.now || !u.changeKey(key, func(*Key) {}):
		return
	case key == allKeys:
		u.notify(driver.Notifier.Look)
	default:
		u.updateKey(key)
	}
	u.changed = true
}

// allKeys is in the place of a key for the bucket of Options.Rate. No key is as long.
var allKeys = strings.Repeat("\x00", driver.MaxName+1)

// rate returns the rate of a key.
func (q *queue) rate(key string) driver.Rate {
	if key == allKeys {
		return q.settings.Rate
	}
	return q.settings.KeyRate
}

// charge changes what is in the buckets of a task's key and of the queue: before updateFront, which
// hides the key if there is no token left.
func (u *unit) charge(r *Row, change func(w *life.Wait, rate driver.Rate, tokens, now int64)) {
	for _, key := range [...]string{r.Key, allKeys} {
		rate := u.q.rate(key)
		if rate.Limit == 0 {
			continue
		}
		if u.changeKey(key, func(k *Key) { change(&k.Wait, rate, u.tokens(r), u.now) }) &&
			key == allKeys {
			u.notify(driver.Notifier.Look)
			u.changed = true
		}
	}
}

// stopped reports whether no task can be taken, as the queue is paused or has no token.
func (u *unit) stopped() bool {
	return u.head.Paused || u.q.settings.Rate.Limit > 0 && u.key(allKeys).Waits
}

// tokens returns how many an attempt of a task takes.
func (u *unit) tokens(r *Row) int64 {
	if !u.q.costs {
		return 1
	}
	return r.Cost
}

// updateKey hides or shows the fronts of a key that is blocked or free now.
func (u *unit) updateKey(key string) {
	u.readAhead = readAhead{}
	u.do(&work{What: blockFronts, Name: []byte(key)})
}
