package main

import "math"

// shares compares what each user gets with its fair share, while a simulation runs.
type shares struct {
	servers float64
	weight  []float64 // by user, as running, queued and place
	running []float64 // jobs on a server
	queued  []float64 // jobs waiting
	active  []int     // the users that have jobs, in any order
	place   []int     // where in active a user is
	open    []int     // scratch space of level
	waiting int       // jobs waiting, of all users
	last    int64     // the time of the latest event

	own tally // each user counted while it waits
	all tally // each user counted while it has jobs and anybody waits
}

// A tally is what each user had and what it was due, in server-seconds.
type tally struct{ held, due []float64 }

func newShares(servers int, weights []int) *shares {
	n := len(weights)
	s := &shares{
		servers: float64(servers),
		weight:  make([]float64, n),
		running: make([]float64, n),
		queued:  make([]float64, n),
		place:   make([]int, n),
		own:     tally{make([]float64, n), make([]float64, n)},
		all:     tally{make([]float64, n), make([]float64, n)},
	}
	for u, w := range weights {
		s.weight[u] = float64(w)
	}
	return s
}

func (s *shares) arrived(now int64, j job) {
	s.advance(now)
	if s.demand(j.user) == 0 {
		s.place[j.user] = len(s.active)
		s.active = append(s.active, j.user)
	}
	s.queued[j.user]++
	s.waiting++
}

func (s *shares) started(now int64, j job) {
	s.advance(now)
	s.queued[j.user]--
	s.running[j.user]++
	s.waiting--
}

func (s *shares) finished(now int64, j job) {
	s.advance(now)
	s.running[j.user]--
	if s.demand(j.user) == 0 {
		at, end := s.place[j.user], len(s.active)-1
		s.active[at] = s.active[end]
		s.place[s.active[at]] = at
		s.active = s.active[:end]
	}
}

// demand is how many servers the user could keep busy.
func (s *shares) demand(u int) float64 { return s.running[u] + s.queued[u] }

// advance accounts for the time since the latest event, in which nothing changed. If nobody waits,
// everybody has all that it wants, and that tells nothing about the line.
func (s *shares) advance(now int64) {
	span := float64(now - s.last)
	s.last = now
	if span == 0 || s.waiting == 0 {
		return
	}
	level := s.level()
	for _, u := range s.active {
		held := span * s.running[u]
		due := span * min(s.demand(u), level*s.weight[u])
		s.all.add(u, held, due)
		if s.queued[u] > 0 {
			s.own.add(u, held, due)
		}
	}
}

// level pours the servers over the users like water: each user's vessel is as wide as its weight
// and holds as much as its demand. It returns how high the water stands in the vessels that are
// not full. The max-min fair share of a user is then min(demand, level*weight).
func (s *shares) level() float64 {
	left, width := s.servers, 0.0
	for _, u := range s.active {
		width += s.weight[u]
	}
	s.open = append(s.open[:0], s.active...)
	open := s.open
	for len(open) > 0 {
		// A vessel that would be full at this level is full in the end, for the level can only
		// rise: what the vessel does not take is left to the others.
		level, n := left/width, 0
		for _, u := range open {
			if d := s.demand(u); d <= level*s.weight[u] {
				left -= d
				width -= s.weight[u]
			} else {
				open[n] = u
				n++
			}
		}
		if n == len(open) {
			return level
		}
		open = open[:n]
	}
	return math.Inf(1)
}

func (t tally) add(u int, held, due float64) {
	t.held[u] += held
	t.due[u] += due
}

// jain returns Jain's index over x = held/due of the n users that were due anything. It is 1 if
// all x are equal, be it that all are 0, and 1/n if one user has everything.
//
// x is not capped at 1. What some users leave unused is part of the others' fair shares already,
// so a user that holds more than its own holds what somebody waits for. To cap x would hide just
// those users who crowd out the rest.
func (t tally) jain() (index float64, n int) {
	sum, squares := 0.0, 0.0
	for u, due := range t.due {
		if due > 0 {
			x := t.held[u] / due
			sum += x
			squares += x * x
			n++
		}
	}
	if squares == 0 {
		return 1, n
	}
	return sum * sum / (float64(n) * squares), n
}
