package storetest

import (
	"fmt"

	"github.com/fairq/fairq/task"
)

// upcoming asks both queues for the next n tasks, and takes n.
func (c *comparison) upcoming() {
	n, w := 1+c.IntN(6), oneOf(c, c.workers...)
	got, want := c.nextOf(w.at, n), c.nextOf(c.want, n)
	c.did("Upcoming(%d): %d tasks", n, len(got))
	if !c.equal("upcoming tasks", got, want) {
		return
	}
	for i := range n {
		taken := c.takeOne(w, task.Filter{})
		if !c.equal("whether another task was taken", taken, i < len(got)) || !taken {
			return
		}
		c.equal("the next task", c.leases[len(c.leases)-1].want.ID, want[i].id)
	}
}

// upcoming has the fields of an UpcomingTask.
type upcoming struct {
	id            task.ID
	info          string
	round, weight int
}

func (c *comparison) nextOf(s *side, n int) (next []upcoming) {
	tasks, err := s.Upcoming(ctx, n)
	c.ok("Upcoming", err)
	for _, u := range tasks {
		id := u.ID
		if s != c.want {
			id = c.ids[id]
		}
		next = append(next, upcoming{id, fmt.Sprint(c.info(s, u.Info)), u.Round, u.Weight})
	}
	return next
}
