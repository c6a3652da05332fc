package rows

import (
	"slices"
	"strings"
	"time"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/internal/order"
)

// cache has rows and accounts that stay valid while no other process writes to the queue. A change
// that makes an entry wrong must delete it. A missing entry is read again.
type cache struct {
	accounts map[Line]account.Account // see account
	alive    map[uint64]bool          // consumers of this process that have a row, by number
	tasks    map[uint64]*Row          // by id: see unit.find; nil if there is none

	keys map[string]*knownKey
}

// newCache returns an empty cache.
func newCache() cache {
	return cache{
		map[Line]account.Account{},
		map[uint64]bool{},
		map[uint64]*Row{},
		map[string]*knownKey{},
	}
}

// maxAccounts is the greatest number of accounts in the cache.
const maxAccounts = 1 << 16

// currentRound returns the round being served, 0 if none was ever.
func (u *unit) currentRound(priority int) uint64 { return u.head.Rounds[priority] }

// account returns the account of a line after the last turn of its ready tasks, a zero one if they
// have none.
func (u *unit) account(l Line) account.Account {
	u.readAccounts(u.currentRound(l.Priority), []Line{l})
	return u.head.accounts[l]
}

// readAccounts reads the unknown accounts of lines of a priority. The account of a line is that of
// its last ready task, because tasks that are taken have used earlier turns. from is the round
// being served, or an earlier one: it bounds the search, so that the database need not pass over
// entries of deleted tasks in its index.
func (u *unit) readAccounts(from uint64, lines []Line) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l Line) bool {
		_, known := u.head.accounts[l]
		return known
	})
	if len(lines) == 0 {
		return
	}
	for _, l := range lines {
		u.setAccount(l, account.Account{})
	}
	for _, r := range must(u.v.Rows(LastRange(from, lines...))) {
		if r.State == driver.Ready && !r.Returned && r.Round >= u.currentRound(r.Priority) {
			u.setAccount(r.line(), u.after(r))
		}
	}
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

// share returns the share of a round for the key of a task.
func (u *unit) share(r *Row) uint64 {
	return uint64(u.weight(r)) * uint64(max(1, u.q.settings.Quantum))
}

// weight returns the weight of the key of a task.
func (u *unit) weight(r *Row) int {
	if !u.q.limits {
		return r.Weight
	}
	return life.Weight(r.Weight, u.limits(u.key(r.Key)))
}

// cost returns how much of its line's share a task uses. The cost is not stored with the turn, so
// a task that gets another task's turn pays its own cost.
func (u *unit) cost(r *Row) uint64 {
	if u.q.costs {
		return uint64(r.Cost)
	}
	return 1
}

// after returns the account of a line after the turn of one of its tasks.
func (u *unit) after(r *Row) account.Account {
	end, _ := order.Used(r.turn(), 0, u.cost(r), u.share(r))
	return end
}

// following returns the next turn of a line after a task has used one.
func (u *unit) following(turn account.Account, r *Row) account.Account {
	_, next := order.Used(turn, u.currentRound(r.Priority), u.cost(r), u.share(r))
	return next
}

// firstTurn returns the turn of a line that has none, for a task.
func (u *unit) firstTurn(r *Row) account.Account {
	var end account.Account
	if u.q.costs {
		if served := must(u.v.ServedOf(r.line())); served != nil {
			end = account.Account{Round: served.Round, Used: served.Used}
		}
	}
	return end.Next(u.currentRound(r.Priority)+1, u.share(r))
}

// forgetAccounts is called before a task becomes ready, in a queue with costs. A line's account
// makes it wait for lines that have used less. If no task is ready there are no such lines. So
// forgetAccounts moves the round being served behind all accounts, which makes them void.
func (u *unit) forgetAccounts(priority int) {
	furthest := must(u.v.Furthest(priority))
	if furthest == nil || furthest.Round <= u.currentRound(priority) ||
		must(u.v.Counts())[driver.Ready] > 0 {
		return
	}
	u.head.Rounds[priority] = furthest.Round + 1
	u.headChanged = true
}

// markServed notes that a task is taken: its round is being served, unless a later one is.
func (u *unit) markServed(r *Row) {
	if r.Returned {
		return // its first Take has noted that
	}
	if r.Round > u.currentRound(r.Priority) {
		u.head.Rounds[r.Priority] = r.Round
		u.headChanged = true
	}
	end := u.after(r)
	if end.Round > u.currentRound(r.Priority) {
		check(u.v.Served().Put(&Served{r.line(), end.Round, end.Used}))
	}
	if u.head.accounts[r.line()] == end {
		u.setAccount(r.line(), account.Account{}) // it was the last task of its line
	}
}

// newTurn takes its turn from a task, and, without KeepPlace, its place, so that it gets new ones
// when it becomes ready.
func (u *unit) newTurn(r *Row) {
	r.setTurn(account.Account{}, false)
	r.Gap = false
	if !u.q.settings.KeepPlace {
		r.Place = 0 // behind all others of its key
	}
}

// reprioritize gives a task without a line another priority, and a place behind all of its new
// line.
func (u *unit) reprioritize(r *Row, priority int) {
	delete(u.head.accounts, r.line())
	r.Priority, r.Place, r.Gap = priority, 0, false
	r.setTurn(account.Account{}, false)
	if u.q.settings.KeepPlace {
		r.Place = u.number()
	}
}

// place gives a task that becomes ready its place in the order, and, in a queue without lines, its
// turn. The caller then writes the task, and calls updateLine.
func (u *unit) place(r *Row) {
	if u.q.costs {
		u.forgetAccounts(r.Priority)
	}
	if r.Place == 0 {
		r.Place = u.number()
	}
	if u.q.lines {
		if r.Returned && u.q.settings.KeepPlace && u.isBehind(r) {
			r.setTurn(account.Account{}, false)
		}
		r.InLine = !r.Returned
		return
	}
	if r.Round == 0 {
		u.giveTurn(r)
	}
	r.Takeable = true
	u.readAhead = readAhead{}
	u.canBeTaken(r.Priority, r.Kind)
}

// giveTurn gives a task the turn behind all turns of its line.
func (u *unit) giveTurn(r *Row) {
	if len(u.gaps) > 0 {
		u.closeGaps() // or it would move up into a turn that became free before it came
	}
	end := u.account(r.line())
	turn := end.Next(0, u.share(r))
	if end == (account.Account{}) {
		turn = u.firstTurn(r)
	}
	r.setTurn(turn, false)
	u.setAccount(r.line(), u.after(r))
}

// leaveGap remembers the first free turn of a line.
func (u *unit) leaveGap(r *Row) {
	if u.gaps == nil {
		u.gaps = map[Line]gap{}
	}
	first, ok := u.gaps[r.line()]
	if !ok || r.Round < first.Round || r.Round == first.Round && r.Place < first.place {
		u.gaps[r.line()] = gap{r.turn(), r.Place}
	}
}

// gap is a free turn, and the place of the task that had it.
type gap struct {
	account.Account
	place uint64
}

// closeGaps gives each free turn to the next task of its line. So a key that deletes tasks keeps
// its early turns, and gives up its last ones.
func (u *unit) closeGaps() {
	for l, first := range u.gaps {
		delete(u.gaps, l)
		u.closeGap(l, first, first.Account)
	}
}

// closeGap gives a free turn to the first task behind it, unless that task has an equal turn. The
// turn that this task had is free then. Row.Gap notes that, and the gap is closed when the task is
// taken: to move up all tasks of the line at once would take a write for each.
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

// setTurn gives a task a turn, or none. returned is true if the task has used it, and was handed
// back.
func (r *Row) setTurn(t account.Account, returned bool) {
	r.Round, r.Used, r.Returned = t.Round, t.Used, returned
}

// changeKey changes the pause, the limits and the wait of a key. It reports whether the pause or
// the wait now blocks or frees the key: then the caller must call showKey. A call that may pause a
// key, or make it wait, first calls needLines. So changeKey writes a few turns of the key, and not
// its whole backlog.
func (u *unit) changeKey(key string, change func(k *Key)) (changes bool) {
	k := u.key(key)
	was := *k
	change(k)
	k.Settle(u.rate(k), u.now)
	if k.Paused == was.Paused && k.Limits == was.Limits && k.Wait == was.Wait {
		return false
	}
	u.unsaved[k] = true
	if k.Waits {
		u.schedule(k.Until)
	} else if k.Until != 0 {
		u.schedule(life.Plus(k.Until, forgetPause))
	}
	if k.MayWait() != was.MayWait() {
		u.needExclusive()
		u.headChanged = true
		if u.head.PausedKeys--; k.MayWait() {
			u.head.PausedKeys += 2
		}
	}
	return k.IsHeld() != was.IsHeld()
}

// waitKey makes a key wait for d: see life.Wait.Begin. Its result is that of changeKey.
func (u *unit) waitKey(key string, d time.Duration, by driver.ID) (changes bool) {
	return u.changeKey(key, func(k *Key) { k.Begin(life.Plus(u.now, d), u.now, by) })
}

// endHold ends the wait of a key for a failed task, if it waits for this one.
func (u *unit) endHold(r *Row) {
	if u.head.PausedKeys > 0 && u.key(r.Key).By == driver.ID(r.ID) &&
		u.changeKey(r.Key, func(k *Key) { k.Hold = 0 }) {
		u.showKey(r.Key)
		u.changed = true
	}
}

// endWait ends the wait of a key if it is over.
func (u *unit) endWait(key string) {
	k := u.key(key)
	switch {
	case k.Until == 0 || k.Until > u.now || !u.changeKey(key, func(*Key) {}):
		return
	case key == allKeys:
		u.notify(driver.Notifier.Look)
	default:
		u.showKey(key)
	}
	u.changed = true
}

// allKeys stands for the key in the row of the bucket of Options.Rate. No key is that long.
var allKeys = strings.Repeat("\x00", driver.MaxName+1)

// rate returns the rate of a key.
func (u *unit) rate(k *Key) driver.Rate {
	if k.Key == allKeys {
		return u.q.settings.Rate
	}
	return life.KeyRate(&u.q.settings.Settings, u.limits(k))
}

// charge changes the buckets of the queue and of a task's key. It is called before updateLine,
// which hides the turns of a key that has no token left.
func (u *unit) charge(r *Row, change func(w *life.Wait, rate driver.Rate, tokens, now int64)) {
	for _, key := range [...]string{r.Key, allKeys} {
		limited := u.q.limits
		if key == allKeys {
			limited = u.q.settings.Rate.Limit > 0
		}
		if !limited {
			continue
		}
		rate := u.rate(u.key(key))
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

// stopped reports whether no task can be taken, because the queue is paused or has no token.
func (u *unit) stopped() bool {
	return u.head.Paused || u.q.settings.Rate.Limit > 0 && u.key(allKeys).Waits
}

func (u *unit) tokens(r *Row) int64 { return life.Tokens(&u.q.settings.Settings, r.Cost) }

// showKey is show for a key without lines too.
func (u *unit) showKey(key string) {
	if u.q.lines {
		u.show(key)
	}
}
