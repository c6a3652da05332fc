package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/task/driver"
)

// Options say how a queue behaves. All that have it open at the same time must agree on the fields
// that are marked as the queue's.
type Options[V any] struct {
	// Capacity is how many tasks the queue can hold, in all states unless CountOnlyWaiting says
	// otherwise; it is the queue's. 0 means no limit: a task that is refused has nowhere else to
	// be.
	Capacity int

	// KeyCapacity is how many tasks of one key it can hold, counted in the same way; it is the
	// queue's. 0 means no limit but Capacity.
	KeyCapacity int

	// CountOnlyWaiting makes Capacity and KeyCapacity count only the tasks that wait, those that
	// are ready or delayed; it is the queue's. Then a Take makes room, as does everything else by
	// which a task does not wait any more. A task that comes to wait again, as by a Release, needs
	// none, so there may be more for a while, until Puts are not refused any more.
	CountOnlyWaiting bool

	// WhenFull says what a Put into a full queue does; it is the queue's. RejectOverShare keeps
	// room free: a key may hold about as many places as are free, counted as for Capacity, so one
	// that floods the queue does not keep others out of it; see [fairq.RejectOverShare].
	//
	// EvictHeaviest looks at the tasks that are ready or delayed: of a key with the most of these
	// (by its weight) it evicts the one that got into this state last, unless the new task's key
	// has as many. EvictOldest evicts the one that got into this state first, of the new task's own
	// key if that has as many. If no task is ready or delayed, either refuses. A store in a
	// database drops nothing that it has made durable: there Open refuses both.
	WhenFull fairq.WhenFull

	// OnEvict is given the tasks that were evicted by a Put of this Queue, by that Put, before it
	// returns. It must be set if, and only if, WhenFull is EvictHeaviest or EvictOldest.
	OnEvict func(*Task[V])

	// OnExpire is given the tasks whose time to live or deadline has ended, in whatever state, once
	// they are gone: one after the other, in that order, in a goroutine that runs as long as there
	// are any. If it panics, the panic is swallowed, and it is given the next one. It must not call
	// Close, which waits for it. If several have the queue open, each task is given to one of them:
	// in memory to the first one that was opened of those with an OnExpire; where processes share a
	// Store, in the process that noticed, if there is an OnExpire and it was not in a transaction
	// that the caller commits (WithTx).
	OnExpire func(*Task[V])

	// Newcomers says which round a key joins that has no task ready; it is the queue's.
	Newcomers fairq.Newcomers

	// Weight tells how many tasks of a key a round takes, 1 to [fairq.MaxWeight]; nil means 1 for
	// all. It is called at each Put; a change concerns what becomes ready later.
	Weight func(key string) int

	// Quantum, if not 0, makes rounds share work instead of tasks: each task is as much as its
	// PutOptions.Cost says, and Quantum is how much a key of weight 1 may have done in a round, in
	// the same units, up to [fairq.MaxQuantum]. It is the queue's. A tenth of a typical cost is
	// good, see docs/costs.md. 0 means that each task counts the same.
	Quantum int64

	// PriorCost, with a Quantum, is for costs that nobody knows before the task is done: a task
	// that is put without a Cost costs what [Queue.ReportCost] has told of its key's tasks, in a moving
	// mean of which each new cost is an eighth. In memory a key is charged what is known when it is
	// given the turn for the task, one turn at a time, if the queue was opened with a PriorCost
	// first; in a database what was known at the Put. PriorCost, 1 to 65,536 quanta, is the cost for
	// a key of which this Queue has been told nothing. It remembers at least the 8,192 keys that it
	// was told of last. 0 means that costs are not learned.
	PriorCost int64

	// MaxInFlightPerKey is how many tasks of a key can be taken at the same time; it is the
	// queue's. With 1, a key's tasks are done strictly one after the other. 0 means no limit.
	MaxInFlightPerKey int

	// KeyRate limits how many attempts of each key may begin, and Rate those of all keys together;
	// both are the queue's, and the zero Rate is no limit. A key that has no token waits until it
	// gets one, as with HoldKey, and so does the queue.
	//
	// An attempt takes a token, and with a Quantum as many as its task costs, so that the rate is one
	// of work. It needs one token to begin: those that are missing are owed, and the next attempt
	// waits for them too. So over any time a key gets the tokens that come, those of the burst, and
	// what one task costs. A task that is handed back untried gives its tokens back; one that failed,
	// was snoozed or whose lease was lost does not. A weight changes nothing in a rate. With a
	// PriorCost no rate can be set, for the tokens are taken before the cost is known. A Rate makes
	// those who take from a shared store wait for each other.
	KeyRate, Rate Rate

	// KeepPlace makes every task that becomes ready again, or for the first time after a delay, go
	// to where it was put, instead of behind what its key has queued; it is the queue's. The key
	// still needs a new turn for it, so the other keys do not wait longer. Choose it where a key's
	// tasks must be done in order.
	KeepPlace bool

	// Priority, TTL, TTR and MaxAttempts are for tasks that are put without their own; see
	// [PutOptions]. 0 means the most urgent priority, that a task does not expire, that its lease
	// lasts until its consumer is closed or gone, and that it may be tried without limit.
	Priority    int
	TTL, TTR    time.Duration
	MaxAttempts int

	// Retention is how long the outcome of a task with a unique key can be asked for after it is
	// gone; it is the queue's. 0 means a minute.
	Retention time.Duration

	// Grace is how long a consumer that disconnects, or whose process dies, keeps its leases; it is
	// the queue's. 0 means 30 seconds. When a process dies it is a second at least.
	Grace time.Duration

	// CountKeys is the number of keys, those with the most events, of which this Queue counts the
	// tasks taken, refused and evicted, for [Queue.KeyStats]. 0 means none. It costs a lock and a
	// clock reading for each task that is taken, and some 800 bytes for each key; for its error
	// see [fairq.Options].
	CountKeys int

	// AsIs opens a queue to look at it, or to help by hand, whatever it was opened with elsewhere:
	// it must exist, or Open returns [ErrNotFound], and it keeps the options that it has, which
	// those who work on it can still change; what is marked as the queue's does not count here.
	// Nothing can be put, taken or waited for, which returns an [ErrInvalid], and where processes
	// share a Store there are no Events. There nothing becomes due by it either, so what expires
	// meanwhile is left to those who have an OnExpire.
	AsIs bool

	// Codec turns payloads into bytes and back, where the Store writes them down; nil means JSON. A
	// memory.Store does not use it.
	Codec Codec[V]

	// Format names what payloads look like then; it is the queue's. A queue that has tasks is not
	// opened with another one, for they could not be decoded. "" means the name of the Codec's
	// type, for JSON with that of the payload. Set it where programs have types of their own for
	// the same bytes, and where a type gets another name.
	Format string
}

// PutOptions are what a task can have beyond a key and a payload. The zero value is right for most.
type PutOptions struct {
	// Priority comes before everything else: tasks of priority 0 are taken before those of priority
	// 1, and so on up to [MaxPriority]. 0 means Options.Priority; negative means 0, whatever that
	// is.
	Priority int

	// Cost is how much work the task is, in units of your choice: tokens, bytes, seconds. See
	// Options.Quantum, without which it is only kept. It is 65,536 quanta at most, and
	// [fairq.MaxCost]. 0 means 1, and with Options.PriorCost what was learned of the key.
	//
	// A key that has had more than its share of a round pays with those that follow, also if it has
	// no task meanwhile, unless no other task of the priority is ready. The key pays when the task
	// gets its turn. With MaxInFlightPerKey, and in a database with KeepPlace or once a task with a
	// Kind was put, that is when the task is its key's next one, else when it becomes ready.
	Cost int64

	// Delay is how long it takes until the task is ready. 0 or less means that it is at once.
	Delay time.Duration

	// TTL, time to live, is how long the task is of use, from Put on, to which each delay is added.
	// Then it leaves the queue, unless it is running: then it may be finished, but neither tried
	// again nor buried. 0 means Options.TTL; negative means no end.
	TTL time.Duration

	// Deadline is when the task is of no use any more, however it was delayed: then it leaves the
	// queue as at the end of its TTL. If it has both, the sooner one counts. A deadline that is
	// over already is no error: the task is put and has expired. The zero Time means none; it must
	// be before the year 10,000.
	Deadline time.Time

	// TTR, time to run, is how long a lease lasts. Task.Touch extends it. When it has run out, the
	// task is handed to somebody else. 0 means Options.TTR; negative, or 0 there too, means that
	// it lasts until its consumer is closed or gone.
	TTR time.Duration

	// MaxAttempts is how often the task can be taken; one that was not done then is buried. 0 means
	// Options.MaxAttempts; negative means no limit.
	MaxAttempts int

	// Kind says which handler the task is for; see [Filter].
	Kind string

	// UniqueKey is a name by which one can wait for the outcome, with Queue.Wait. No two tasks have
	// the same at the same time.
	UniqueKey string

	// Group holds the task back until Queue.StartGroup. Role says what the task is in the group.
	Group string
	Role  Role

	// Metadata goes with the task, for those who need not know its payload: which trace it belongs
	// to, or who has put it. Info.Metadata tells it, wherever the task is told about. Names and
	// values are UTF-8, and [MaxMetadata] bytes together at most. The map is copied.
	Metadata map[string]string
}

// setFilter is a filter as it is set for a consumer.
type setFilter struct {
	driver.Taker
	id string // equal for equal filters
}

// set returns a copy of a filter that shares nothing. Its kinds are in order, each once.
func set(f *Filter, of driver.Handle) *setFilter {
	s := &setFilter{Taker: driver.Taker{Handle: of, Filter: driver.Filter{Kinds: slices.Clone(f.Kinds)}}}
	slices.Sort(s.Kinds)
	s.Kinds = slices.Compact(s.Kinds)
	if f.MaxPriority != nil {
		s.MaxPriority = new(*f.MaxPriority)
		s.id = fmt.Sprint(*f.MaxPriority)
	}
	if f.Kinds != nil {
		s.id += fmt.Sprintf("%q", s.Kinds)
	}
	return s
}

// Codec turns payloads into bytes and back. What Encode returns must not change later: after an
// [ErrUnknown] the call may still be reading it. So a Codec that returns a payload which is a []byte
// as it is needs callers who do not change that after a Put that returned one.
type Codec[V any] interface {
	Encode(payload V) ([]byte, error)
	Decode(data []byte) (V, error)
}

type jsonCodec[V any] struct{}

func (jsonCodec[V]) Encode(payload V) ([]byte, error) { return json.Marshal(payload) }

func (jsonCodec[V]) Decode(data []byte) (payload V, err error) {
	err = json.Unmarshal(data, &payload)
	return payload, err
}

// Validate returns the error that [Open] would return for the options, as far as they say it.
func (o Options[V]) Validate() error { return o.complete() }

// complete checks the options and fills in defaults.
func (o *Options[V]) complete() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"Capacity", o.Capacity}, {"KeyCapacity", o.KeyCapacity}, {"MaxInFlightPerKey", o.MaxInFlightPerKey}, {"MaxAttempts", o.MaxAttempts}, {"CountKeys", o.CountKeys}} {
		if f.value < 0 || f.value > fairq.MaxLen {
			return invalid("Options."+f.name, f.value, fmt.Sprintf("0 to %d", fairq.MaxLen))
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Retention", o.Retention}, {"Grace", o.Grace}} {
		if f.value < 0 || f.value > MaxDuration {
			return invalid("Options."+f.name, f.value, "0 to "+MaxDuration.String())
		}
	}
	var err error
	if o.TTL, err = limit("Options.TTL", o.TTL, 0); err != nil {
		return err
	}
	if o.TTR, err = limit("Options.TTR", o.TTR, 0); err != nil {
		return err
	}
	if o.KeyRate, err = completeRate("Options.KeyRate", o.KeyRate); err != nil {
		return err
	}
	if o.Rate, err = completeRate("Options.Rate", o.Rate); err != nil {
		return err
	}
	switch {
	case o.Priority < 0 || o.Priority > MaxPriority:
		return invalid("Options.Priority", o.Priority, fmt.Sprintf("0 to %d", MaxPriority))
	case o.WhenFull < 0 || o.WhenFull > fairq.EvictOldest:
		return invalid("Options.WhenFull", o.WhenFull,
			"fairq.Reject, fairq.RejectOverShare, fairq.EvictHeaviest or fairq.EvictOldest")
	case o.Quantum < 0 || o.Quantum > fairq.MaxQuantum:
		return invalid("Options.Quantum", o.Quantum, fmt.Sprintf("0 to %d", fairq.MaxQuantum))
	case o.PriorCost < 0 || o.PriorCost > 0 && (o.Quantum == 0 || o.PriorCost > o.costLimit()):
		return invalid("Options.PriorCost", o.PriorCost, "0 to 65,536 times Options.Quantum, and fairq.MaxCost at most")
	case o.PriorCost > 0 && (o.KeyRate != Rate{} || o.Rate != Rate{}):
		return invalid("Options.PriorCost", o.PriorCost, "0 with a Rate or KeyRate: their tokens are taken before the cost is known")
	case o.Newcomers < 0 || o.Newcomers > fairq.ThisRound:
		return invalid("Options.Newcomers", o.Newcomers, "fairq.NextRound or fairq.ThisRound")
	case o.WhenFull != fairq.Reject && o.Capacity == 0:
		return invalid("Options.Capacity", 0, "set unless WhenFull is Reject, for a queue without limit is never full")
	case o.WhenFull >= fairq.EvictHeaviest && o.OnEvict == nil:
		return invalid("Options.OnEvict", nil,
			fmt.Sprintf("set with WhenFull %v, or tasks would be lost in silence", o.WhenFull))
	case o.WhenFull < fairq.EvictHeaviest && o.OnEvict != nil:
		return invalid("Options.OnEvict", "set",
			fmt.Sprintf("nil with WhenFull %v, for nothing is ever evicted", o.WhenFull))
	}
	if o.Capacity == 0 {
		o.Capacity = fairq.MaxLen
	}
	if o.KeyCapacity == 0 || o.KeyCapacity > o.Capacity {
		o.KeyCapacity = o.Capacity
	}
	if o.Retention == 0 {
		o.Retention = time.Minute
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	if o.Codec == nil {
		o.Codec = jsonCodec[V]{}
	}
	if o.Format == "" {
		o.Format = fmt.Sprintf("%T", o.Codec)
	}
	return nil
}

func (o *Options[V]) settings() driver.Settings {
	return driver.Settings{
		Capacity:          o.Capacity,
		KeyCapacity:       o.KeyCapacity,
		CountOnlyWaiting:  o.CountOnlyWaiting,
		WhenFull:          o.WhenFull,
		Newcomers:         o.Newcomers,
		Quantum:           o.Quantum,
		MaxInFlightPerKey: o.MaxInFlightPerKey,
		KeyRate:           driver.Rate(o.KeyRate),
		Rate:              driver.Rate(o.Rate),
		KeepPlace:         o.KeepPlace,
		Retention:         o.Retention,
		Grace:             o.Grace,
		Format:            o.Format,
		AsIs:              o.AsIs,
	}
}

// errAsIs is returned by calls that a queue is not open for.
var errAsIs = invalid("Options.AsIs", true, "false, to put, take or wait for tasks")

// fill checks the options of a task and makes of them all of a New but its payload.
func (o *Options[V]) fill(n *driver.New, key string, p *PutOptions) (err error) {
	if o.AsIs {
		return errAsIs
	}
	n.Key, n.Weight, n.Cost = key, 1, 1
	n.Priority, n.TTL, n.TTR, n.MaxAttempts = o.Priority, o.TTL, o.TTR, o.MaxAttempts
	if p.isZero() && len(key) <= MaxName && o.Weight == nil { // as a rule
		return nil
	}
	n.Kind, n.UniqueKey, n.Group, n.Role, n.Delay, n.Deadline = p.Kind, p.UniqueKey, p.Group, p.Role, max(p.Delay, 0), p.Deadline
	n.Cost = cmp.Or(p.Cost, 1)
	if limit := o.costLimit(); n.Cost < 1 || n.Cost > limit {
		return fmt.Errorf("%w: it is %d for a task of key %q; with Options.Quantum %d the limits are 1 and %d", fairq.ErrCost, n.Cost, key, o.Quantum, limit)
	}
	switch {
	case p.Priority > MaxPriority:
		return invalid("PutOptions.Priority", p.Priority, fmt.Sprintf("%d at most", MaxPriority))
	case p.Priority != 0:
		n.Priority = max(p.Priority, 0)
	}
	if err := checkDelay("PutOptions.Delay", n.Delay); err != nil {
		return err
	}
	if !p.Deadline.Before(noDeadline) {
		return invalid("PutOptions.Deadline", p.Deadline, "before the year 10,000, or the zero Time for none")
	}
	if n.TTL, err = limit("PutOptions.TTL", p.TTL, o.TTL); err != nil {
		return err
	}
	if n.TTR, err = limit("PutOptions.TTR", p.TTR, o.TTR); err != nil {
		return err
	}
	switch {
	case p.MaxAttempts > fairq.MaxLen:
		return invalid("PutOptions.MaxAttempts", p.MaxAttempts, fmt.Sprintf("%d at most", fairq.MaxLen))
	case p.MaxAttempts != 0:
		n.MaxAttempts = max(p.MaxAttempts, 0)
	}
	if len(key)+len(p.Kind)+len(p.UniqueKey)+len(p.Group) > MaxName { // rarely; then which is it?
		for _, f := range []struct{ name, value string }{
			{"the key", key}, {"PutOptions.Kind", p.Kind}, {"PutOptions.UniqueKey", p.UniqueKey}, {"PutOptions.Group", p.Group},
		} {
			if err := checkName(f.name, f.value); err != nil {
				return err
			}
		}
	}
	switch {
	case p.Role > AtAbort:
		return invalid("PutOptions.Role", p.Role, "Member, AtEnd or AtAbort")
	case p.Role != Member && p.Group == "":
		return invalid("PutOptions.Role", p.Role, "Member if there is no PutOptions.Group")
	}
	if n.Metadata, err = copyMetadata(p.Metadata); err != nil {
		return err
	}
	if o.Weight != nil {
		if err := guard("Options.Weight", func() { n.Weight = o.Weight(key) }); err != nil {
			return err
		}
		if n.Weight < 1 || n.Weight > fairq.MaxWeight {
			return fmt.Errorf("%w: it is %d for key %q; the limits are 1 and %d", fairq.ErrWeight, n.Weight, key, fairq.MaxWeight)
		}
	}
	return nil
}

// isZero tells whether no option is set.
func (p *PutOptions) isZero() bool {
	numbers := int64(p.Priority|p.MaxAttempts|int(p.Role)) | p.Cost | int64(p.Delay|p.TTL|p.TTR)
	return numbers == 0 && len(p.Kind)|len(p.UniqueKey)|len(p.Group) == 0 && p.Metadata == nil && p.Deadline.IsZero()
}

// copyMetadata checks metadata and returns a copy, nil if it is empty.
func copyMetadata(m map[string]string) (map[string]string, error) {
	if len(m) == 0 {
		return nil, nil
	}
	size := 0
	for name, value := range m {
		if size += len(name) + len(value); !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, invalid("PutOptions.Metadata", fmt.Sprintf("%.20q: %.20q", name, value), "valid UTF-8")
		}
	}
	if size > MaxMetadata {
		return nil, invalid("the length of PutOptions.Metadata", size, fmt.Sprintf("%d bytes at most", MaxMetadata))
	}
	return maps.Clone(m), nil
}

// completeRate checks a rate and fills in its burst.
func completeRate(field string, r Rate) (Rate, error) {
	switch {
	case r == Rate{}:
		return r, nil
	case !(r.Limit > 0 && r.Limit <= MaxRate): // also if it is not a number
		return r, invalid(field+".Limit", r.Limit, fmt.Sprintf("more than 0, and %d at most", MaxRate))
	case r.Burst < 0 || r.Burst > MaxRate:
		return r, invalid(field+".Burst", r.Burst, fmt.Sprintf("1 to %d, or 0 for 1", MaxRate))
	}
	r.Burst = max(r.Burst, 1)
	return r, nil
}

// costLimit returns the most that a task can cost.
func (o *Options[V]) costLimit() int64 {
	if o.Quantum == 0 {
		return fairq.MaxCost
	}
	return account.CostLimit(o.Quantum)
}

// noDeadline is when none can be any more: a Store must be able to write it down.
var noDeadline = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)

// limit checks a time to live or to run. In the result 0 means that there is none.
func limit(field string, d, unset time.Duration) (time.Duration, error) {
	switch {
	case d < 0:
		return 0, nil
	case d == 0:
		return unset, nil
	case d > MaxDuration:
		return 0, invalid(field, d, MaxDuration.String()+" at most")
	}
	return d, nil
}

func checkDelay(field string, d time.Duration) error {
	if d < 0 || d > MaxDuration {
		return invalid(field, d, "0 to "+MaxDuration.String())
	}
	return nil
}

func checkName(field, name string) error {
	if len(name) > MaxName {
		return invalid(field, fmt.Sprintf("%.20s...", name), fmt.Sprintf("%d bytes at most; it has %d", MaxName, len(name)))
	}
	return nil
}
