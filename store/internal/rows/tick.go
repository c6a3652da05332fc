package rows

// mostDue is how many things one transaction makes happen because they are due.
const mostDue = 1000

// advance makes happen what is due.
func (u *unit) advance() {
	q := u.q
	if q.joined {
		return // what concerns the task in question is looked at anyway
	}
	u.beat()
	if q.due == 0 || q.due > u.now {
		return
	}
	left := mostDue
	rows := must(u.v.Due(u.now, left, u.whole()))
	if u.q.byKey() {
		u.read(false, keysOf(rows)...)
	}
	for _, r := range rows {
		if r = u.again(r); r != nil && r.isDue(u.now) {
			u.fire(r)
		}
	}
	if left = u.dead(left - len(rows)); left > 0 {
		check(u.v.SweepOutcomes(u.now, left))
		check(u.v.SweepDone(u.now, left))
		u.sweepServed(left)
	}
	u.advanced = true
	u.arm(must(u.v.NextWake()))
	u.arm(must(u.v.NextDeadline()))
	u.armOutcome(must(u.v.NextOutcome()))
	u.arm(must(u.v.NextDone()))
}

// armOutcome sees to it that an outcome is forgotten that is told until then. It does not matter when, so it is done for many at
// a time.
func (u *unit) armOutcome(until int64) {
	if until != 0 {
		u.arm(plus(until, u.q.settings.Retention/4))
	}
}

// again returns a row as it is by now, if something that happened before may have changed it.
func (u *unit) again(r *Row) *Row {
	if r.Group == "" {
		return r
	}
	return must(u.v.Get(r.ID, u.whole()))
}

// sweepServed forgets which keys were served in rounds that are over.
func (u *unit) sweepServed(n int) {
	if u.q.thisTurn {
		for priority, round := range u.head.Rounds {
			check(u.v.SweepServed(priority, round, n))
		}
	}
}
