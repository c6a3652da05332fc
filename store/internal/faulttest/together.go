package faulttest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task/driver"
)

func init() {
	ownRoles["share"] = (*Self).share
	ownRoles["fill"] = (*Self).fill
	ownRoles["wake"] = (*Self).wake
	ownRoles["attend"] = (*Self).attend
}

// Share lets processes put tasks into a small queue and take them, and checks its limits.
func Share(t *testing.T, open Opener, where func(*testing.T) string) {
	for _, processes := range []int{2, 4} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) { share(t, open, where(t), processes) })
	}
}

func share(t *testing.T, open Opener, where string, processes int) {
	journal, path := newJournal(t)
	all := make([]*Process, processes)
	for i := range all {
		all[i] = Start(t, Job{
			Role: "share", Name: fmt.Sprintf("%d of %d", i, processes), Where: where, Journal: path,
			Seed:   rand.Uint64(),
			Queues: []string{"serial"}, Args: map[string]int{"tasks": 400 / processes, "slot": i},
		})
	}
	for _, p := range all {
		for _, what := range []string{"ready", "done"} {
			require.Equal(t, what, p.Await())
		}
	}
	for _, p := range all {
		p.Stop()
	}
	s, err := open(context.Background(), where)
	require.NoError(t, err)
	gone := drain(t, s, journal, "serial")
	require.NoError(t, s.Close())
	a := newAudit(t)
	a.read(readJournal(t, path))
	a.end(gone)
	require.Zero(t, a.unrecorded)
	t.Logf("%d tasks, %d of them at once, %d waited for outcomes, %d leases of stalled processes "+
		"lost, the longest call took %v",
		len(a.tasks), a.fullest, a.waits, a.lost, a.longest)
}

// share puts some tasks, reports that, and works on until it must end.
func (s *Self) share() error {
	l, err := s.open("serial")
	if err != nil {
		return err
	}
	l.orderly = true
	put, worked := l.start(2, (*load).putUntilDone), l.start(2, (*load).workOnSomething)
	s.Say("ready")
	err = put()
	s.Say("done")
	if err = cmp.Or(worked(), err); err != nil {
		return err
	}
	return s.close(l)
}

// putUntilDone puts something, or waits for room to do so.
func (l *load) putUntilDone() error {
	if l.tasks.Load() >= int64(l.Args["tasks"]) {
		return errDone
	}
	if l.chance(50) {
		return l.putSomething()
	}
	p := l.newPut()
	done := l.Journal.begin(line{Op: "put", Queue: l.name, Puts: []putTask{p}})
	id, err := l.queue.PutWait(l.Stop, p.Key, p.Name, p.options())
	end := line{Err: class(err)}
	if err == nil {
		end.IDs = []driver.ID{id}
	}
	done(end)
	return err
}
