package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairq/fairq/task"
)

// grace is Options.Grace of all queues.
const grace = 2 * time.Second

// queues are the queues of the load. In the second one lines have the turns.
var queues = map[string]task.Options[string]{
	"plain": {Grace: grace, Retention: time.Hour},
	"limited": {
		Grace: grace, Retention: time.Hour, MaxInFlightPerKey: 2, Capacity: 60, KeyCapacity: 25,
	},
	"fair": {Retention: time.Hour},
	"room": {Retention: time.Hour, Capacity: 1},
}

func openQueue(ctx context.Context, s Store, name string) (*task.Queue[string], error) {
	o := queues[name]
	return task.Open(ctx, s, name, &o)
}

var ownRoles = map[string]func(*Self) error{
	"put":  func(s *Self) error { return s.load(2, (*load).putSomething) },
	"work": func(s *Self) error { return s.load(3, (*load).workOnSomething) },
}

// load is the work of a process, or of one of its goroutines, on a queue.
type load struct {
	*Self
	name  string // of the queue
	queue *task.Queue[string]
	rand  *rand.Rand
	id    int64 // no other goroutine of any process has it
	full  bool  // the queue was, when it was last asked

	consumer *task.Consumer[string] // of its own: it holds only the next task of its last ack
}

// open opens a queue.
func (s *Self) open(name string) (*load, error) {
	q, err := openQueue(s.Stop, s.Store, name)
	return &load{Self: s, name: name, queue: q}, err
}

// start lets n goroutines repeat something until the process must end. The function that it
// returns waits for them, and returns the first error.
func (l *load) start(n int, do func(*load) error) (wait func() error) {
	var all sync.WaitGroup
	failures := make(chan error, n)
	for range n {
		one := *l
		run := l.runs.Add(1)
		one.id, one.rand = int64(l.Slot)*10+run, rand.New(rand.NewPCG(l.Seed, uint64(run)))
		one.consumer = l.queue.NewConsumer(task.Filter{})
		all.Go(func() {
			for l.Stop.Err() == nil {
				if err := do(&one); err != nil {
					if l.Stop.Err() == nil {
						failures <- err
					}
					return
				}
			}
		})
	}
	return func() error {
		all.Wait()
		close(failures)
		return <-failures
	}
}

// load lets n goroutines for each queue do something until the process must end.
func (s *Self) load(n int, do func(*load) error) error {
	var all []*load
	var waits []func() error
	for _, name := range killed {
		l, err := s.open(name)
		if err != nil {
			return err
		}
		all, waits = append(all, l), append(waits, l.start(n, do))
	}
	s.Say("ready")
	for _, wait := range waits {
		if err := wait(); err != nil {
			return err
		}
	}
	return s.close(all...)
}

// close closes queues, and writes down that their taken tasks are handed back.
func (s *Self) close(all ...*load) error {
	s.Journal.write(line{Op: "close"})
	for _, l := range all {
		if err := l.queue.Close(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// maxTasks limits the tasks in a queue.
const maxTasks = 60

func (l *load) chance(percent int) bool { return l.rand.IntN(100) < percent }

// expected returns nil for an error that the rules of the queue allow, and err otherwise.
func expected(err error) error {
	if ruleErrors[class(err)] == nil {
		return err
	}
	return nil
}

func (l *load) putSomething() error {
	if l.full || l.chance(10) {
		stats, err := l.queue.Stats(l.Stop)
		if l.full = stats.Len() > maxTasks; l.full || err != nil {
			time.Sleep(20 * time.Millisecond)
			return err
		}
	}
	switch p := l.rand.IntN(100); {
	case p < 50:
		return expected(l.put(l.newPut()))
	case p < 75:
		puts := make([]putTask, 2+l.rand.IntN(7))
		for i := range puts {
			puts[i] = l.newPut()
		}
		return expected(l.put(puts...))
	case p < 90:
		return l.putUnique()
	default:
		return l.putGroup()
	}
}

func (l *load) newName() string { return fmt.Sprintf("%s-%d", l.Name, l.tasks.Add(1)) }

func (l *load) newPut() putTask {
	p := putTask{Name: l.newName(), Key: fmt.Sprint("key", l.rand.IntN(1+l.rand.IntN(10)))}
	if l.chance(20) {
		p.Delay = time.Duration(1+l.rand.IntN(200)) * time.Millisecond
	}
	if l.chance(15) {
		p.TTR = time.Duration(50+l.rand.IntN(200)) * time.Millisecond
	}
	if l.chance(10) {
		p.MaxAttempts = 3
	}
	if l.chance(10) {
		p.Priority = l.rand.IntN(3)
	}
	if l.name == "limited" && l.chance(30) {
		p.Kind = fmt.Sprint("kind", l.rand.IntN(2))
	}
	return p
}

func (p *putTask) options() task.PutOptions {
	return task.PutOptions{
		Priority: p.Priority, Kind: p.Kind, Delay: p.Delay, TTR: p.TTR, MaxAttempts: p.MaxAttempts,
		UniqueKey: p.UniqueKey,
		Group:     p.Group, Role: p.Role,
	}
}

// put puts tasks. One in five that is put alone waits for room until the process must end.
func (l *load) put(puts ...putTask) error {
	begun := line{Op: "put", Queue: l.name, Puts: puts}
	done, ctx := l.Journal.begin(begun), context.Background()
	batch := make([]task.Entry[string], len(puts))
	for i, p := range puts {
		batch[i] = task.Entry[string]{Key: p.Key, Payload: p.Name, Options: p.options()}
	}
	ids, err := make([]task.ID, 1), error(nil)
	switch one := batch[0]; {
	case len(puts) > 1:
		ids, err = l.queue.PutBatch(ctx, batch)
	case l.chance(20):
		ids[0], err = l.queue.PutWait(l.Stop, one.Key, one.Payload, one.Options)
		if err != nil && l.Stop.Err() != nil {
			return err
		}
	default:
		ids[0], err = l.queue.Put(ctx, one.Key, one.Payload, one.Options)
	}
	if len(puts) == 1 && err != nil {
		ids = nil
	}
	done(line{IDs: ids, Err: class(err)})
	return err
}

// putUnique puts a task with a unique key that only this goroutine uses, and maybe waits for its
// end.
func (l *load) putUnique() error {
	p := l.newPut()
	p.UniqueKey = fmt.Sprintf("unique key %d %d", l.id, l.rand.IntN(4))
	if err := l.put(p); err != nil || l.chance(50) {
		return expected(err)
	}
	ctx, cancel := context.WithTimeout(l.Stop, 2*time.Second)
	defer cancel()
	err := l.queue.Wait(ctx, p.UniqueKey)
	if err != nil && ctx.Err() != nil {
		return nil // it takes too long, which is no mistake
	}
	end := line{Op: "waited", Queue: l.name, Name: p.Name, Err: class(err)}
	if failed := (*task.Error)(nil); errors.As(err, &failed) {
		end.Err, err = failed.Message, nil
	}
	l.Journal.write(end)
	return err
}

func (l *load) putGroup() error {
	group, puts := l.newName(), make([]putTask, 3+l.rand.IntN(3))
	for i := range puts {
		puts[i] = l.newPut()
		puts[i].Group = group
	}
	puts[0].Role, puts[1].Role = task.AtEnd, task.AtAbort
	if err := l.put(puts...); err != nil {
		return expected(err)
	}
	switch p := l.rand.IntN(100); {
	case p < 75:
		return l.endGroup("start", group)
	case p < 90:
		return l.endGroup("cancel", group)
	}
	return nil // later the test does
}

func (l *load) endGroup(op, group string) error {
	end := l.queue.StartGroup
	if op == "cancel" {
		end = l.queue.CancelGroup
	}
	done := l.Journal.begin(line{Op: op, Queue: l.name, Name: group})
	err := end(context.Background(), group)
	done(line{Err: class(err)})
	return expected(err)
}
