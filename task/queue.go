package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/keycount"
	"github.com/fairq/fairq/internal/printable"
)

// Queue is a queue of tasks with payloads of one type. [Open] makes one. All methods are safe for
// concurrent use. With a store in memory only Take, TakeBatch, PutWait, Wait and Close wait, and
// only calls that take or wait return the error of a done context.
type Queue[V any] struct {
	name     string
	options  Options[V]
	backend  driver.Backend
	notifier *notifier
	self     *Consumer[V] // of Take and TakeBatch
	counts   *keycount.Counter[string]
	waits    waits

	close  sync.Mutex // held by Close
	closed bool       // all tasks are handed back, and the backend is closed

	mu        sync.Mutex              // protects consumers and made
	consumers map[string]*Consumer[V] // by id, the newest of each
	made      int                     // the number of consumers ever made
}

// Open opens the queue of that name in a store, and makes it if there is none, unless Options.AsIs
// is set. nil options are the defaults.
func Open[V any](
	ctx context.Context, store Store, name string, options *Options[V],
) (*Queue[V], error) {
	v := reflect.ValueOf(store)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("Open: the store", nil, "a Store, such as new(memory.Store)")
	}
	if name == "" {
		return nil, invalid("Open: the name", name, fmt.Sprintf("1 to %d bytes long", MaxName))
	}
	if err := checkName("Open: the name", name); err != nil {
		return nil, err
	}
	q := &Queue[V]{name: name, consumers: map[string]*Consumer[V]{}}
	if options != nil {
		q.options = *options
	}
	if err := q.options.complete(); err != nil {
		return nil, err
	}
	q.counts = keycount.New[string](q.options.CountKeys)
	q.waits.keys = map[string]*fairq.Histogram{}
	q.notifier = newNotifier(reflect.TypeFor[V]())
	q.notifier.learns = q.options.ShareTime
	q.notifier.expiries.wanted = q.options.OnExpire != nil
	q.notifier.putters.policy = q.options.WhenFull
	q.self = q.NewConsumer(Filter{})
	backend, err := store.Open(ctx, name, q.options.settings(), q.notifier)
	if err != nil {
		return nil, err
	}
	q.backend = backend
	q.notifier.start(backend)
	q.notifier.expiries.start(q.expired)
	return q, nil
}

// Put puts a task of a key into the queue, and returns its id. If there is no room it returns a
// [*FullError]; see also [ErrInvalid], [ErrDuplicate], [ErrGroupCancelled], [ErrWeight], [ErrCost]
// and [ErrPanic]. If it returns an error there is no new task, and the id is 0, except if OnEvict
// has panicked: then the task is there, and the id is not 0.
func (q *Queue[V]) Put(
	ctx context.Context, key string, payload V, options PutOptions,
) (ID, error) {
	var n driver.New
	if err := q.newTask(&n, key, payload, &options); err != nil {
		return 0, err
	}
	id, err := q.put(ctx, &n)
	if err != nil {
		q.countRefusal(ctx, key, err)
	}
	return id, err
}

// Entry is a task for PutBatch.
type Entry[V any] struct {
	Key     string
	Payload V
	Options PutOptions
}

// PutBatch puts tasks one after the other, in one transaction, until one is refused. It returns
// the ids of the tasks that were put, and the error of Put for the refused one. A store may limit
// the size of a batch, and refuse a larger one as a whole, with a FieldError that has the limit.
func (q *Queue[V]) PutBatch(ctx context.Context, tasks []Entry[V]) ([]ID, error) {
	news, ids := make([]driver.New, len(tasks)), make([]ID, len(tasks))
	var invalid error
	for i := range tasks {
		t := &tasks[i]
		if invalid = q.newTask(&news[i], t.Key, t.Payload, &t.Options); invalid != nil {
			news = news[:i]
			break
		}
	}
	if len(news) == 0 {
		return nil, cmp.Or(q.notifier.over(), invalid)
	}
	if err := q.notifier.admit(news[0].Key); err != nil {
		q.countRefusal(ctx, news[0].Key, err)
		return nil, err
	}
	n, evicted, err := q.backend.Put(ctx, news, ids[:len(news)])
	if n < len(news) {
		q.countRefusal(ctx, news[n].Key, err)
	}
	return ids[:n], cmp.Or(err, invalid, q.handOut(evicted))
}

// PutWait is Put that waits for room. Waiting calls are admitted in rounds by key, each when a
// task is gone. If ctx is done first, PutWait returns its error, and there is no new task. In a
// transaction of the caller's own it does not wait, because it could keep other calls from making
// room. With
//
//   - EvictHeaviest only calls whose key is among the heaviest wait, and with EvictOldest only if
//     no task can be evicted, or the key is full. A Put that makes room for itself may overtake.
//   - RejectOverShare a call whose key is over its share waits until a task of the key leaves, or
//     another Put of the key comes. So it may wait although the share has grown.
func (q *Queue[V]) PutWait(
	ctx context.Context, key string, payload V, options PutOptions,
) (ID, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var n driver.New
	if err := q.newTask(&n, key, payload, &options); err != nil {
		return 0, err
	}
	id, err := q.put(ctx, &n)
	if err == nil || !errors.Is(err, fairq.ErrFull) || q.backend.Joined(ctx) != nil {
		return id, err
	}
	id, evicted, err := q.notifier.put(ctx, &n, err)
	return id, q.handOutOne(evicted, err)
}

func (q *Queue[V]) put(ctx context.Context, task *driver.New) (ID, error) {
	n := q.notifier
	if err := n.admit(task.Key); err != nil {
		return 0, err
	}
	// In memory a Put calls the functions of the Watches that it makes due; else goroutines do.
	watched := n.inMemory && n.takersWaiting.Load() > 0
	if watched {
		n.putting.Add(1)
	}
	id, evicted, err := q.backend.PutOne(ctx, *task)
	if watched {
		n.putting.Add(-1)
		n.call()
	}
	if evicted != nil {
		err = q.handOutOne(evicted, err)
	}
	return id, err
}

// whenFinal calls f when the changes of a call with ctx are final. That is at once, or after the
// commit of a transaction of the caller's own. If only the caller knows of the commit, f is never
// called.
func (q *Queue[V]) whenFinal(ctx context.Context, f func()) {
	if tx := q.backend.Joined(ctx); tx != nil {
		tx.OnCommit(f)
	} else {
		f()
	}
}

// handOut gives evicted tasks to OnEvict. If OnEvict panics, or ends the goroutine, it still gets
// the rest.
func (q *Queue[V]) handOut(evicted []driver.Record) (err error) {
	if len(evicted) == 0 {
		return nil
	}
	defer func() {
		if bad := q.handOut(evicted[1:]); err == nil {
			err = bad
		}
	}()
	q.count(evicted[0].Key, keycount.Counts{Evicted: 1})
	t, _ := q.show(&evicted[0])
	return guard("Options.OnEvict", func() { q.options.OnEvict(t) })
}

// handOutOne is handOut for the task that a put has evicted, if any.
func (q *Queue[V]) handOutOne(evicted *driver.Record, err error) error {
	if evicted != nil {
		err = cmp.Or(err, q.handOut([]driver.Record{*evicted}))
	}
	return err
}

// Name returns the queue's name.
func (q *Queue[V]) Name() string { return q.name }

// InMemory reports whether the tasks are in the memory of this process, so that no call takes the
// time of a transaction.
func (q *Queue[V]) InMemory() bool { return q.notifier.inMemory }

// AsIs reports whether Options.AsIs is set.
func (q *Queue[V]) AsIs() bool { return q.options.AsIs }

// Take takes the first task in order: by priority, then in rounds by key, and within a key in the
// order in which its tasks became ready. If there is none, it waits for one. Waiting calls are
// served first come, first served. If ctx is done first, Take returns its error.
//
// The tasks of Take and TakeBatch belong to a consumer that is closed with the queue.
func (q *Queue[V]) Take(ctx context.Context) (*Task[V], error) { return q.self.Take(ctx) }

// TakeBatch takes up to n tasks, in order. If there is none, it waits for one.
func (q *Queue[V]) TakeBatch(ctx context.Context, n int) ([]*Task[V], error) {
	return q.self.TakeBatch(ctx, n)
}

// TryTake is Take that does not wait, and does not queue up behind calls that wait. If there is no
// task, ok is false.
func (q *Queue[V]) TryTake(ctx context.Context) (t *Task[V], ok bool, err error) {
	return q.self.TryTake(ctx)
}

// List returns tasks in the order of their ids, or, with ListOptions.NextFirst, in the order of
// their next change. For the next ready tasks see Upcoming.
//
// List is
//
//   - with NextFirst O(Limit log Limit), in memory with the queue locked;
//   - for delayed, buried and held tasks O(Limit), but in memory O(tasks);
//   - for taken tasks O(taken tasks), and otherwise O(tasks).
//
// Tasks that it passes over because of Key or Kind come on top, and for delayed tasks with
// NextFirst also leases and lives that end earlier. Without NextFirst a queue in memory is locked
// for 64 tasks at a time, so two tasks of the result may be from different moments.
func (q *Queue[V]) List(ctx context.Context, options ListOptions) ([]*Task[V], error) {
	if err := q.checkSelection(&options); err != nil {
		return nil, err
	}
	records, err := q.backend.List(ctx, driver.ListOptions(options))
	if err != nil {
		return nil, err
	}
	tasks := make([]*Task[V], len(records))
	for i := range records {
		tasks[i], _ = q.show(&records[i])
	}
	return tasks, nil
}

// checkSelection checks the options of a call about some tasks.
func (q *Queue[V]) checkSelection(o *ListOptions) error {
	switch {
	case o.Limit < 0:
		return invalid("ListOptions.Limit", o.Limit, "0 or more")
	case o.State > Held:
		return invalid("ListOptions.State", o.State, "a state, or 0 for all")
	case o.NextFirst && o.State != Delayed && o.State != Buried:
		return invalid("ListOptions.State", o.State, "delayed or buried, with NextFirst")
	case o.NextFirst && (o.Group != "" || o.After != 0):
		return invalid("ListOptions.NextFirst", true, "false, with a Group or After")
	case o.Limit == 0:
		o.Limit = 100
	}
	return q.notifier.over()
}

// Count returns the number of tasks of a State, Key, Kind and Group, and ignores After and Limit.
// Without Kind and Group it is O(1) in memory. In other stores it is O(1) without a Key, or if the
// queue counts by key anyway (KeyCapacity, MaxInFlightPerKey). Otherwise it reads tasks as List
// does, and does not hold up other calls. (With an index it would be faster, but each Put slower.)
func (q *Queue[V]) Count(ctx context.Context, options ListOptions) (int, error) {
	if err := q.checkSelection(&options); err != nil {
		return 0, err
	}
	return q.backend.Count(ctx, driver.ListOptions(options))
}

// Kick makes up to Limit buried tasks of a Key and Kind ready, in the order in which they were
// buried, and returns their number. They have all their attempts again. State, if set, must be
// Buried, and neither Group nor After can be set.
func (q *Queue[V]) Kick(ctx context.Context, options ListOptions) (int, error) {
	switch {
	case options.State != 0 && options.State != Buried:
		return 0, invalid("Kick: ListOptions.State", options.State, "Buried, or 0")
	case options.Group != "":
		return 0, invalid("Kick: ListOptions.Group", options.Group, "empty")
	case options.After != 0:
		return 0, invalid("Kick: ListOptions.After", options.After, "0")
	}
	if err := q.checkSelection(&options); err != nil {
		return 0, err
	}
	return q.backend.Kick(ctx, driver.ListOptions(options))
}

// Pause stops the taking of tasks, until Resume. Leases stay, and tasks can be put.
func (q *Queue[V]) Pause(ctx context.Context) error { return q.pause(ctx, nil, true) }

// Resume undoes Pause.
func (q *Queue[V]) Resume(ctx context.Context) error { return q.pause(ctx, nil, false) }

// PauseKey is Pause for the tasks of one key, which need not have any. In a database PauseKey,
// ResumeKey and HoldKey lock the queue, and write one task for each priority in which the key has
// tasks. With 99 such priorities that takes 30 ms on Postgres.
func (q *Queue[V]) PauseKey(ctx context.Context, key string) error {
	return q.pause(ctx, &key, true)
}

// HoldKey makes a key wait for d, which must be more than 0: none of its tasks is taken until
// then. The wait costs other keys nothing, outlasts this process, and ends by itself, with the
// next turn for the key if it has missed one or more. A longer wait of the key stays. The key need
// not have tasks. Leases stay; see also [Task.HoldKey]. PauseKey says what it costs.
func (q *Queue[V]) HoldKey(ctx context.Context, key string, d time.Duration) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	if err := checkName("the key", key); err != nil {
		return err
	}
	if err := checkDelay("HoldKey: the duration", d); err != nil {
		return err
	}
	if d == 0 {
		return invalid("HoldKey: the duration", d,
			fmt.Sprintf("more than 0, and %v at most", driver.MaxDuration))
	}
	return q.backend.HoldKey(ctx, key, d)
}

// SetKey gives a key limits of its own, in place of its earlier ones; nil removes them. The store
// keeps them with the queue, even while the key has no tasks, and all processes obey them from
// their next call on. The queue must have a MaxInFlightPerKey or a KeyRate, which may be so high
// that it limits nothing, such as [fairq.MaxLen].
//
// A lower limit takes nothing back: taken tasks stay taken, and count. A new Weight holds from the
// next turn of the key on, and for the room that RejectOverShare leaves to it. With a new Rate the
// key keeps its tokens, up to the new Burst, or the whole Burst if it had no rate.
func (q *Queue[V]) SetKey(ctx context.Context, key string, limits *KeyLimits) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	if err := checkName("the key", key); err != nil {
		return err
	}
	var l driver.KeyLimits
	if limits != nil {
		var err error
		if l, err = q.options.limits(*limits); err != nil {
			return err
		}
	}
	return q.backend.SetKey(ctx, key, l)
}

// LimitedKeys returns the first n keys with limits of their own, in alphabetical order, from the
// key from on; 100 if n is 0. For the next page, from is the last of these keys + "\x00". In
// memory it is O(keys).
func (q *Queue[V]) LimitedKeys(ctx context.Context, from string, n int) ([]LimitedKey, error) {
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	if n < 0 {
		return nil, invalid("LimitedKeys: the number", n, "0 or more")
	}
	found, err := q.backend.LimitedKeys(ctx, from, cmp.Or(n, 100))
	keys := make([]LimitedKey, len(found))
	for i, k := range found {
		keys[i] = LimitedKey{k.Key, KeyLimits{k.Weight, k.MaxInFlight, Rate(k.Rate)}}
	}
	return keys, err
}

// ResumeKey undoes PauseKey and HoldKey. The key has the next turn if it has missed one or more.
// PauseKey says what it costs.
func (q *Queue[V]) ResumeKey(ctx context.Context, key string) error {
	return q.pause(ctx, &key, false)
}

func (q *Queue[V]) pause(ctx context.Context, key *string, paused bool) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	if key != nil {
		if err := checkName("the key", *key); err != nil {
			return err
		}
	}
	return q.backend.Pause(ctx, key, paused)
}

// StartGroup makes the tasks of a group ready, and also tasks that are put into it later. When all
// its members are gone, its AtEnd tasks become ready and the group is over. A buried member is not
// gone. StartGroup returns [ErrNotFound] if the group has no task, and [ErrGroupCancelled] if it
// is cancelled. A task that is put into a group that is over begins a new group of that name.
func (q *Queue[V]) StartGroup(ctx context.Context, group string) error {
	return q.changeGroup(ctx, group, false)
}

// CancelGroup removes all members of a group that are not taken, and ends the contexts of the
// taken ones, see Task.Context. When these are done or handed back, the AtAbort tasks become ready
// and the group is over. CancelGroup returns [ErrNotFound] if the group has no task.
func (q *Queue[V]) CancelGroup(ctx context.Context, group string) error {
	return q.changeGroup(ctx, group, true)
}

func (q *Queue[V]) changeGroup(ctx context.Context, group string, cancel bool) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	return nameMissing(q.backend.Group(ctx, group, cancel), "group", strconv.Quote(group))
}

// Wait waits until the task with that unique key is gone or buried. It returns nil if the task was
// acked, the recorded [*Error] if it is buried or was discarded (without its stack), else
// [ErrDeleted] or [ErrExpired]. If ctx is done first, Wait returns its error. The outcome of a
// task that is gone is kept during Options.Retention, unless its unique key is used again. Without
// an outcome and a task Wait returns [ErrNotFound]. With PutOptions.Replace the outcome may be
// that of the work that another caller has put in place of this one.
//
// There is no Wait for an id: the store keeps outcomes by unique key, so that a task without one
// costs nothing once it is done. Give a task a unique key, such as a random one, to wait for it.
func (q *Queue[V]) Wait(ctx context.Context, uniqueKey string) error {
	if q.options.AsIs {
		return cmp.Or[error](q.notifier.over(), errAsIs)
	}
	err := q.notifier.wait(ctx, uniqueKey)
	if e, ok := errors.AsType[*Error](err); ok {
		message, _, _ := strings.Cut(e.Message, printable.StackMark)
		err = &Error{Code: e.Code, Message: message}
	}
	return err
}

// DeleteSome deletes the tasks of a State, Key and Kind, as Delete does, and returns their number.
// It deletes taken tasks only if State is Taken. It ignores Limit, and neither Group nor After can
// be set. It deletes in no order: of a group it may delete tasks that wait for other members
// before these members.
//
// It makes a transaction for each 1,000 tasks, and other calls go on between them. So if it
// returns an error, some tasks may be gone. With a Key it is O(tasks of the key), but in memory
// O(tasks), like List.
func (q *Queue[V]) DeleteSome(ctx context.Context, options ListOptions) (int, error) {
	switch {
	case options.Group != "":
		return 0, invalid("DeleteSome: ListOptions.Group", options.Group, "empty")
	case options.After != 0:
		return 0, invalid("DeleteSome: ListOptions.After", options.After, "0")
	case options.NextFirst:
		return 0, invalid("DeleteSome: ListOptions.NextFirst", true, "false")
	}
	if err := q.checkSelection(&options); err != nil {
		return 0, err
	}
	return q.backend.DeleteSome(ctx, driver.ListOptions(options))
}

// Truncate deletes all tasks, and returns their number. All leases are lost.
func (q *Queue[V]) Truncate(ctx context.Context) (int, error) {
	if err := q.notifier.over(); err != nil {
		return 0, err
	}
	return q.backend.Truncate(ctx)
}

// Drop deletes the queue with all its tasks. All calls on it, waiting ones too, return
// [ErrDropped] from now on; a later Open makes a new queue.
func (q *Queue[V]) Drop(ctx context.Context) error { return q.drop(ctx, false) }

// DropUnlessTaken is Drop, but if a task is taken it changes nothing and returns [ErrTaken]. If it
// fails after it has deleted some of very many tasks, it leaves the queue paused.
func (q *Queue[V]) DropUnlessTaken(ctx context.Context) error { return q.drop(ctx, true) }

func (q *Queue[V]) drop(ctx context.Context, unlessTaken bool) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	return q.backend.Drop(ctx, unlessTaken)
}

// Stats returns counters and gauges of one moment. In memory it is O(1); a Store that must count
// the keys may do so only now and then. If the database does not answer, Stats returns an error
// and the counters of this process.
func (q *Queue[V]) Stats(ctx context.Context) (Stats, error) {
	if err := q.notifier.over(); err != nil {
		return Stats{}, err
	}
	counts, err := q.backend.Stats(ctx)
	s := Stats(counts)
	s.Refused += q.notifier.refused.Load()
	s.WaitingPut = int(q.notifier.puttersWaiting.Load())
	s.WaitingTake = int(q.notifier.takersWaiting.Load())
	return s, err
}

// Events returns the events of the queue's tasks from now on, in order, until ctx is done or the
// queue is closed. A slow reader does not hold up the queue: a reader that is more than 65,536
// events behind misses the oldest, and the next event has their number. The caller must run the
// loop or end ctx, because until then the queue keeps the events.
func (q *Queue[V]) Events(ctx context.Context) iter.Seq[Event] { return q.notifier.events(ctx) }

// Close ends the use of the queue: all calls, waiting ones too, return [ErrClosed]. First the
// tasks of its consumers are handed back, even while workers work on them: their Ack returns
// ErrClosed. The tasks stay in the store. Then Close waits until Options.OnExpire has got all
// expired tasks. If ctx is done first, Close returns its error. After an error call Close again,
// to finish; after success a second call does nothing.
func (q *Queue[V]) Close(ctx context.Context) error {
	q.close.Lock()
	defer q.close.Unlock()
	if !q.closed {
		if err := q.end(ctx); err != nil {
			return err
		}
		q.closed = true
	}
	return q.notifier.expiries.wait(ctx)
}

// end is Close without the wait for OnExpire.
func (q *Queue[V]) end(ctx context.Context) error {
	// From now on no call takes tasks. A call that is taking one sees that afterwards, and hands it
	// back.
	q.notifier.stop(ErrClosed)
	q.mu.Lock()
	consumers := slices.SortedFunc(maps.Values(q.consumers), func(a, b *Consumer[V]) int {
		return a.number - b.number
	})
	q.mu.Unlock()
	for _, c := range consumers {
		if err := q.dismiss(ctx, c); err != nil && !errors.Is(err, ErrResumed) {
			return err
		}
	}
	q.notifier.running.Wait()
	return q.backend.Close()
}
