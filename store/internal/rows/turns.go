package rows

import (
	"cmp"
	"strings"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/life"
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

// account returns that of a line. Without costs it is the last round of the line, and how many of
// its tasks are in it; if that is not after the round being served, the line has no turn ahead.
func (u *unit) account(l Line) account.Account {
	known, ok := u.head.accounts[l]
	if ok {
		return known
	}
	if u.q.costs {
		known = u.readAccount(l, 0)
	} else {
		known = u.lastRound(l, u.currentRound(l.Priority))
	}
	u.setAccount(l, known)
	return known
}

// lastRound returns the last round of a line after the given one, and how many of its tasks are in
// it.
func (u *unit) lastRound(l Line, after uint64) account.Account {
	round, tasks := must2(u.v.LastRound(l, after))
	return account.Account{Round: round, Used: uint64(tasks)}
}

func must2[A, B any](a A, b B, err error) (A, B) {
	check(err)
	return a, b
}

// readAccount reads the account of a line, where tasks have costs: that after its last turn, if
// state is not 0 of those of tasks in it, unless it has used more by tasks that are gone.
func (u *unit) readAccount(l Line, state driver.State) (a account.Account) {
	check(u.v.Fetch(lastRange(l, state), servedRange(l)))
	if r := must(u.v.Last(l, state)); r != nil {
		a = u.after(r)
	}
	if s := must(u.v.ServedOf(l)); s != nil {
		a = further(a, account.Account{Round: s.Round, Used: s.Used})
	}
	return a
}

// further returns that of two accounts of a line by which more is used.
func further(a, b account.Account) account.Account {
	if a.Round > b.Round || a.Round == b.Round && a.Used > b.Used {
		return a
	}
	return b
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

// after returns the account of a line after the turn of one of its tasks. What that costs is not
// written down, so a task that gets another one's turn pays its own cost.
func (u *unit) after(r *Row) account.Account {
	a := account.Account{Round: r.Round, Used: r.Used}
	if u.q.costs {
		a = a.Pay(uint64(r.Cost), u.share(r.Weight))
	}
	return a
}

// nextTurn gives a line its next turn, for a task of that weight and cost, and returns its round
// and what is used of it before. Without a quantum each task uses one turn, whatever it costs.
func (u *unit) nextTurn(l Line, weight int, cost int64) account.Account {
	if u.q.costs {
		u.forgetAccounts(l.Priority)
	} else {
		cost = 1
	}
	start := u.start(l, u.account(l), weight)
	u.setAccount(l, start.Pay(uint64(cost), u.share(weight)))
	return start
}

// start returns where the next turn of a line is that has such an account: by the rule of package
// account, from the round after the one being served on, or with ThisRound from that on if the
// line was not served in it.
func (u *unit) start(l Line, end account.Account, weight int) account.Account {
	now := u.currentRound(l.Priority)
	if end.Round > now || !u.joinsRound(l) {
		return end.Next(now+1, u.share(weight))
	}
	if !u.q.costs && !u.q.frontsOnly { // of fronts it has all turns, and several tasks may share one
		end = u.lastRound(l, now-1)
	}
	return end.Next(now, u.share(weight))
}

// joinsRound tells whether a line may have a turn in the round being served.
func (u *unit) joinsRound(l Line) bool {
	now := u.currentRound(l.Priority)
	if !u.q.newcomersJoin || now == 0 {
		return false
	}
	s := must(u.v.ServedOf(l))
	return s == nil || s.Taken < now
}

// forgetAccounts is called before a task becomes ready, where tasks have costs. If no other one can
// be taken before it, nobody has waited for what the lines have used. So the queue moves on to
// where their accounts are void.
func (u *unit) forgetAccounts(priority int) {
	if u.haveReady[priority] {
		return
	}
	check(u.v.Fetch(lastReadyRange(priority), furthestRange(priority)))
	last, furthest := must(u.v.LastReady(priority)), must(u.v.Furthest(priority))
	if u.haveReady == nil {
		u.haveReady = map[int]bool{}
	}
	u.haveReady[priority] = true
	if last != nil && !last.Returned || furthest == nil || furthest.Round <= u.currentRound(priority) {
		return
	}
	// Others may wait though none can be taken.
	hides := u.q.limitsInFlight || u.head.PausedKeys > 0
	if hides && must(u.v.Counts())[driver.Ready] > 0 {
		return
	}
	u.head.Rounds[priority] = furthest.Round + 1
	u.headChanged = true
}

// markServed notes that a task is taken: its round is the one being served, unless a later one is.
// What was noted when a task was taken first that has been handed back stays.
func (u *unit) markServed(r *Row) {
	if r.Round > u.currentRound(r.Priority) {
		u.head.Rounds[r.Priority] = r.Round
		u.headChanged = true
	}
	end := u.after(r)
	now := u.currentRound(r.Priority)
	ahead := u.q.costs && !r.Returned && end.Round > now
	if ahead || u.q.newcomersJoin && r.Round == now && !(u.q.costs && r.Returned) {
		check(u.v.Served().Put(&Served{r.line(), end.Round, end.Used, r.Round}))
	}
}

// newTurn takes from a task its turn, and unless it keeps it its place, so that it gets new ones
// when it becomes ready.
func (u *unit) newTurn(r *Row) {
	r.setTurn(turn{})
	r.Gap = false
	if !u.q.settings.KeepPlace {
		r.Place = 0 // behind all others of its key
	}
}

// reprioritize gives a task that is in no line another priority, and a place behind all of its line.
func (u *unit) reprioritize(r *Row, priority int) {
	delete(u.head.accounts, r.line())
	r.Priority, r.Place, r.Gap = priority, 0, false
	r.setTurn(turn{})
	if u.q.settings.KeepPlace {
		r.Place = u.number()
	}
}

// place gives a task that becomes ready its place in the order, and its turn unless there are
// fronts. The caller writes it, and then calls updateFront.
func (u *unit) place(r *Row) {
	if r.Place == 0 {
		r.Place = u.number()
	}
	if r.Round == 0 && !u.q.frontsOnly {
		u.giveTurn(r)
	}
	if r.Takeable = !u.q.frontsOnly; !r.Takeable {
		r.Front = Parked
		r.setTurn(r.turn())
	} else {
		u.readAhead = readAhead{}
		u.canBeTaken(r)
	}
}

// giveTurn gives a task the next turn of its line.
func (u *unit) giveTurn(r *Row) {
	start := u.nextTurn(r.line(), r.Weight, r.Cost)
	r.Round, r.Used = start.Round, start.Used
	if r.Seq = r.Place; r.Seq == 0 {
		r.Seq = u.number()
	}
}

// leaveGap remembers that a line has a turn that no task has any more. Of several it remembers the
// first.
func (u *unit) leaveGap(r *Row) {
	if u.gaps == nil {
		u.gaps = map[Line]turn{}
	}
	if first, ok := u.gaps[r.line()]; !ok || r.turn().compare(first) < 0 {
		u.gaps[r.line()] = r.turn()
	}
}

// closeGaps gives the turns that no task has any more to the tasks behind them. So a key that
// deletes tasks keeps its early turns, and gives up its last ones.
//
// A turn that was handed back is given on at the end of the round being served: others of the line
// may have been taken after it, and may be handed back later, and these must come first.
func (u *unit) closeGaps() {
	for l, first := range u.gaps {
		delete(u.gaps, l)
		free := first
		if first.Returned {
			free = turn{Round: u.currentRound(l.Priority)}
		}
		u.closeGap(l, first, free)
	}
}

// closeGap gives a free turn to the first task of a line after another turn, if its own is later.
// That leaves a gap behind it, which is closed in the same way when the task is taken (Row.Gap): to
// move all tasks of the line up at once would be a write for each.
func (u *unit) closeGap(l Line, after, free turn) {
	next := must(u.v.Next(l, after.Round, after.Seq))
	if next == nil || next.Round < free.Round || next.Round == free.Round && free.Seq == 0 {
		return
	}
	if free.Seq == 0 {
		free.Seq = u.number()
	}
	next.setTurn(free)
	next.Gap = true
	delete(u.head.accounts, l)
	u.readAhead = readAhead{}
	u.update(next)
}

// turn is the right of a line to have a task taken in a round, with its place in the round.
type turn struct {
	Round, Used uint64
	Seq         uint64
	Returned    bool // it was used before, and handed back
}

func (r *Row) turn() turn { return turn{r.Round, r.Used, r.Seq, r.Returned} }

func (r *Row) setTurn(t turn) {
	r.Round, r.Used, r.Seq, r.Returned = t.Round, t.Used, t.Seq, t.Returned
	switch {
	case r.Front == NoFront:
	case t == turn{}:
		r.Front = Parked
	default:
		r.Front = AtFront
	}
}

func (t turn) compare(other turn) int {
	return cmp.Or(cmp.Compare(t.Round, other.Round), cmp.Compare(t.Seq, other.Seq))
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
