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
	"github.com/fairq/fairq/internal/driver"
)

// Options configure a queue. Fields marked queue-wide must be the same in all programs that have
// the queue open at the same time.
type Options[V any] struct {
	// Capacity is the greatest number of tasks, in all states unless CountOnlyWaiting is set. 0 means
	// no limit. (Queue-wide.)
	Capacity int

	// KeyCapacity is the greatest number of tasks of one key, counted in the same way. 0 means no
	// limit but Capacity. (Queue-wide.)
	KeyCapacity int

	// CountOnlyWaiting makes Capacity and KeyCapacity count only the ready and delayed tasks. Then a
	// Take makes room, as does every other change by which a task is no longer ready or delayed. A
	// task that is handed back needs no room, so a queue may hold more than its Capacity, and refuses
	// Puts until it holds less. (Queue-wide.)
	CountOnlyWaiting bool

	// WhenFull decides about a Put into a full queue. (Queue-wide.) With [fairq.RejectOverShare] a
	// key may hold about as many places as are free, counted as for Capacity.
	//
	// EvictHeaviest looks at the ready and delayed tasks: from a key with the most of these (by its
	// weight) it evicts the task that became ready or delayed last. If the new task's key has as
	// many, it refuses the new task instead. EvictOldest evicts the task that became ready or delayed
	// first: from such a key, or from the new task's own key if that has as many. If no task is ready
	// or delayed, both refuse the new task. A store in a database drops no durable task: there Open
	// refuses both options.
	WhenFull fairq.WhenFull

	// OnEvict gets the tasks that a Put of this Queue has evicted. That Put calls it before it
	// returns. It must be set if, and only if, WhenFull is EvictHeaviest or EvictOldest.
	OnEvict func(*Task[V])

	// OnExpire gets the tasks, in any state, whose time to live or deadline is over, after they are
	// gone. It gets them one after the other, in the order in which they expired, in a goroutine that
	// runs while there are any. A panic of OnExpire is swallowed, and it gets the next task. It must
	// not call Close, which waits for it. If the queue is open several times, one Queue gets each
	// task. In memory that is the first opened Queue with an OnExpire. In a shared Store it is a
	// Queue of the process that noticed the end. There no Queue gets the task if that process has no
	// OnExpire, or noticed the end in a transaction that the caller commits (WithTx).
	OnExpire func(*Task[V])

	// Weight returns the number of tasks of a key in a round, 1 to [fairq.MaxWeight]; nil means 1
	// for all. Each Put calls it; a change affects tasks that become ready later. See also
	// [Queue.SetKey].
	Weight func(key string) int

	// Quantum, if not 0, makes rounds share work instead of tasks. PutOptions.Cost is the work of a
	// task. Quantum is the work of a key of weight 1 in a round, in the same units, up to
	// [fairq.MaxQuantum]. A tenth of a typical cost is good, see docs/costs.md. 0 means that each
	// task counts the same. (Queue-wide.) Open refuses another Quantum for a queue that has tasks.
	Quantum int64

	// ShareTime makes keys share the time of the workers, in rounds in which a key of weight 1 gets a
	// second. An attempt lasts from the return of Take to the call that ends the lease; see also
	// [Task.Begin]. An attempt that ends with Return does not count. Since nobody knows the time in
	// advance, a task costs the moving mean of the attempts of its key, in which each new one counts
	// an eighth. In memory the key pays that at the Take, in a database at the Put.
	//
	// A Queue learns from its own attempts, and remembers at least the last 8,192 keys. A task of a
	// key without an attempt costs the mean of all attempts. Before the first attempt each task costs
	// a second, so keys are served by count. With ShareTime a Quantum or a Cost is an error.
	// (Queue-wide.) Open refuses another ShareTime for a queue that has tasks.
	ShareTime bool

	// MaxInFlightPerKey is the greatest number of tasks of a key that are taken at the same time. 0
	// means no limit. (Queue-wide.) [Queue.SetKey] gives a key another limit.
	//
	// With 1, a key's tasks are done strictly one after the other. That takes two conditions: no
	// handler goes on when its lease is over (see Task.Context), and the clocks of the machines
	// differ by no more than the Skew of the store, if it has one.
	//
	// A worker that holds a task and waits for another one of its key, in Wait or Take, may wait for
	// itself, because its own task fills the limit. Only pool.Pool.Do notices that; a context with a
	// timeout ends it.
	MaxInFlightPerKey int

	// KeyRate limits the attempts of each key, and Rate the attempts of all keys together. The zero
	// Rate is no limit. (Queue-wide.) A key without a token waits until it gets one, as with HoldKey.
	// If Rate has no token, the whole queue waits. [Queue.SetKey] gives a key another rate.
	//
	// An attempt takes a token, and with a Quantum as many as its task costs, so that the rate is one
	// of work. It needs one token to begin: the key owes the others, and its next attempt waits for
	// them too. So over any time a key uses at most the new tokens, the burst and the cost of one
	// task. A weight changes nothing in a rate.
	//
	// A task that is handed back untried gives its tokens back; a task that failed, was snoozed
	// or whose lease was lost does not. With ShareTime each attempt takes one token.
	//
	// With a Rate, calls that take from a shared store wait for each other. On etcd and FoundationDB
	// they conflict, so that 16 processes take 1.4 times as many tasks as one; without a Rate they
	// take 15 times as many. With a KeyRate, a database has a row for each key until its bucket has
	// been full for ten seconds, so none in an idle queue.
	KeyRate, Rate Rate

	// KeepPlace keeps a key's tasks in order. It makes every task that becomes ready again, or for
	// the first time after a delay, go to the place of its Put among the tasks of its key and
	// priority. The key still needs a new turn for it, so other keys do not wait longer.
	// (Queue-wide.) Open refuses another KeepPlace for a queue that has tasks.
	KeepPlace bool

	// Priority, TTL, TTR and MaxAttempts are the defaults for [PutOptions]. 0 means the most urgent
	// priority, a task that does not expire, a lease that lasts until its consumer is closed or gone,
	// and attempts without limit.
	Priority    int
	TTL, TTR    time.Duration
	MaxAttempts int

	// Retention is the time for which the queue keeps the outcome of a task with a unique key after
	// it is gone. 0 means a minute. (Queue-wide.)
	Retention time.Duration

	// Grace is the time for which a consumer that disconnects, or whose process dies, keeps its
	// leases. 0 means 30 seconds. When a process dies it is at least a second. (Queue-wide.)
	Grace time.Duration

	// CountKeys is the number of keys for which this Queue counts taken, refused and evicted tasks,
	// for [Queue.KeyStats]: the keys with the most events. 0 means none. It costs a lock and a clock
	// reading for each taken task, and some 800 bytes for each key; for its error see
	// [fairq.Options].
	CountKeys int

	// AsIs opens a queue to look at it, or to repair it by hand. The queue must exist, or Open
	// returns [ErrNotFound]. It keeps its options, which its consumers can still change; queue-wide
	// options are ignored here. Calls that put, take or wait return an [ErrInvalid]. In
	// a shared Store there are no Events, and due changes do not happen by calls of this Queue, so
	// expired tasks are left to a Queue with an OnExpire.
	AsIs bool

	// Codec encodes and decodes payloads, where the Store writes them down; nil means JSON. A
	// memory.Store does not use it.
	Codec Codec[V]

	// Format names the encoding of payloads. (Queue-wide.) Open refuses another Format for a
	// queue that has tasks, because they could not be decoded. "" means the name of the Codec's type,
	// for JSON with the type of the payload. Set it where programs have different types for the same
	// bytes, and where a type gets another name.
	Format string
}

// PutOptions are the options of a task. The zero value is right for most tasks.
type PutOptions struct {
	// Priority decides first: tasks of priority 0 are taken before tasks of priority 1, and so on up
	// to [MaxPriority]. 0 means Options.Priority; negative means priority 0.
	Priority int

	// Cost is the work of the task, in units of your choice: tokens, bytes, seconds. Without
	// Options.Quantum it is only stored. It is at most 65,536 quanta, and [fairq.MaxCost]. 0 means 1,
	// and with Options.ShareTime the time that the key is expected to need, in milliseconds.
	//
	// A key that has had more than its share of a round pays with its shares of later rounds, even if
	// it has no task in between. When a task becomes ready as the only one of the queue, the debts of
	// its priority are void. The key pays when the task is taken, and again for each retry after a
	// failure.
	Cost int64

	// Delay is the time until the task is ready. 0 or less means at once.
	Delay time.Duration

	// MaxDelay, with Replace, bounds the delays of a task that is replaced again and again. The bound
	// runs from the first Put with a MaxDelay since the task was last taken or buried: that long
	// after it Replace still changes the task, but no longer delays it. 0 means no bound.
	// Queue.Change with a Delay ends it. A follower has a bound of its own.
	MaxDelay time.Duration

	// TTL, the time to live, runs from Put, and each delay extends it. At its end the task leaves the
	// queue. A running task may finish then, but is not retried or buried. 0 means
	// Options.TTL; negative means no end.
	TTL time.Duration

	// Deadline is the time at which the task expires, as at the end of its TTL, whatever its delays.
	// If it has both, the earlier one counts. A deadline in the past is no error: the task is put and
	// expires. The zero Time means none; a deadline must be before the year 10,000.
	Deadline time.Time

	// TTR, the time to run, is the duration of a lease. Task.Touch extends it. After its end another
	// consumer can take the task. 0 means Options.TTR; negative, or 0 there too, means that a lease
	// lasts until its consumer is closed or gone.
	TTR time.Duration

	// MaxAttempts is how often the task can be taken; after the last attempt in vain it is buried. 0
	// means Options.MaxAttempts; negative means no limit.
	MaxAttempts int

	// Kind names the handler for the task; see [Filter].
	Kind string

	// UniqueKey is a name by which callers can wait for the outcome, with Queue.Wait. No two tasks
	// have the same name at the same time.
	UniqueKey string

	// With Replace, the task takes the place of the task with its UniqueKey, if that is ready,
	// delayed or held:
	//
	//   - That task gets the new payload, delay, TTL, deadline, TTR, MaxAttempts, metadata and cost.
	//     Its attempts and its error are forgotten.
	//   - It keeps its id, which Put returns. So all callers that have put it have the same id:
	//     Delete, Bury and Change by that id concern the work of all.
	//   - It keeps its place. But a different Priority, or with a Quantum a different Cost, puts it
	//     behind all others of its key.
	//   - With a Delay the last Put decides when the task is ready, up to MaxDelay.
	//
	// See also [ErrReplace].
	//
	// If the task with the UniqueKey is taken, the new task follows it. The follower is held, without
	// a unique key, and the next Put with Replace replaces it.
	//
	//   - When the first task has left the queue or is buried, the follower gets the unique key. It
	//     is ready, or delayed until the end of its own Delay.
	//   - If the first task is to be tried again instead, the follower takes its place, as above.
	//   - Queue.Wait waits for the first task until its end, and after that for the follower.
	//   - A task that is buried while it is followed, or follows, loses its unique key.
	Replace bool

	// Group holds the task back until Queue.StartGroup. Role is its role in the group.
	Group string
	Role  Role

	// Metadata is for readers that do not know the payload: the trace of the task, or its author. It
	// is in every Info of the task. Names and values are UTF-8, and together at most [MaxMetadata]
	// bytes. The map is copied.
	Metadata map[string]string
}

// setFilter is the filter of a consumer.
type setFilter struct {
	driver.Taker
	id string // equal for equal filters
}

// set returns a deep copy of a filter. Its kinds are in order, each once.
func set(f *Filter, of driver.Handle) *setFilter {
	s := &setFilter{Taker: driver.Taker{Handle: of}}
	s.Kinds = slices.Clone(f.Kinds)
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

// Codec encodes and decodes payloads. The result of Encode must not change later, because the call
// may still read it after it has returned an [ErrUnknown]. So if Encode returns a []byte payload
// itself, callers must not change that payload after such a Put.
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

// Validate returns the error that [Open] would return for the options, whatever the store.
func (o Options[V]) Validate() error { return o.complete() }

// complete checks the options and fills in defaults.
func (o *Options[V]) complete() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"Capacity", o.Capacity},
		{"KeyCapacity", o.KeyCapacity},
		{"CountKeys", o.CountKeys},
		{"MaxInFlightPerKey", o.MaxInFlightPerKey},
		{"MaxAttempts", o.MaxAttempts},
	} {
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
	case o.ShareTime && o.Quantum != 0:
		return invalid("Options.Quantum", o.Quantum, "0 with ShareTime, which shares milliseconds")
	case o.WhenFull != fairq.Reject && o.Capacity == 0:
		return invalid("Options.Capacity", 0,
			"set unless WhenFull is Reject, because a queue without limit is never full")
	case o.WhenFull >= fairq.EvictHeaviest && o.OnEvict == nil:
		return invalid("Options.OnEvict", nil,
			fmt.Sprintf("set with WhenFull %v, or tasks would be lost in silence", o.WhenFull))
	case o.WhenFull < fairq.EvictHeaviest && o.OnEvict != nil:
		return invalid("Options.OnEvict", "set",
			fmt.Sprintf("nil with WhenFull %v, because nothing is ever evicted", o.WhenFull))
	}
	if o.ShareTime {
		o.Quantum = timeQuantum
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
		Quantum:           o.Quantum,
		ShareTime:         o.ShareTime,
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

// errAsIs is returned by calls that a queue opened with AsIs does not allow.
var errAsIs = invalid("Options.AsIs", true, "false, to put, take or wait for tasks")

// fill checks the options of a task, and sets all fields of a New but its payload.
func (o *Options[V]) fill(n *driver.New, key string, p *PutOptions) (err error) {
	if o.AsIs {
		return errAsIs
	}
	n.Key, n.Weight, n.Cost = key, 1, 1
	n.Priority, n.TTL, n.TTR, n.MaxAttempts = o.Priority, o.TTL, o.TTR, o.MaxAttempts
	if p.isZero() && len(key) <= MaxName && o.Weight == nil { // the usual case
		return nil
	}
	n.Kind, n.UniqueKey, n.Group, n.Role = p.Kind, p.UniqueKey, p.Group, p.Role
	n.Replace, n.Delay, n.Deadline = p.Replace, max(p.Delay, 0), p.Deadline
	n.MaxDelay = p.MaxDelay
	if o.ShareTime && p.Cost != 0 {
		return invalid("PutOptions.Cost", p.Cost, "0 with Options.ShareTime, which measures it")
	}
	n.Cost = cmp.Or(p.Cost, 1)
	if limit := o.costLimit(); n.Cost < 1 || n.Cost > limit {
		return fmt.Errorf("%w: it is %d for a task of key %q; with Options.Quantum %d "+
			"the limits are 1 and %d",
			fairq.ErrCost, n.Cost, key, o.Quantum, limit)
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
	if err := checkDelay("PutOptions.MaxDelay", n.MaxDelay); err != nil {
		return err
	}
	if !p.Deadline.Before(noDeadline) {
		return invalid("PutOptions.Deadline", p.Deadline,
			"before the year 10,000, or the zero Time for none")
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
	if len(key)+len(p.Kind)+len(p.UniqueKey)+len(p.Group) > MaxName { // rare
		for _, f := range []struct{ name, value string }{
			{"the key", key},
			{"PutOptions.Kind", p.Kind},
			{"PutOptions.UniqueKey", p.UniqueKey},
			{"PutOptions.Group", p.Group},
		} {
			if err := checkName(f.name, f.value); err != nil {
				return err
			}
		}
	}
	switch {
	case p.Replace && p.UniqueKey == "":
		return invalid("PutOptions.Replace", true, "false if there is no PutOptions.UniqueKey")
	case p.MaxDelay > 0 && !p.Replace:
		return invalid("PutOptions.MaxDelay", p.MaxDelay, "0 without PutOptions.Replace")
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
			return fmt.Errorf("%w: it is %d for key %q; the limits are 1 and %d",
				fairq.ErrWeight, n.Weight, key, fairq.MaxWeight)
		}
	}
	return nil
}

// isZero reports whether no option is set.
func (p *PutOptions) isZero() bool {
	numbers := int64(p.Priority|p.MaxAttempts|int(p.Role)) | p.Cost |
		int64(p.Delay|p.MaxDelay|p.TTL|p.TTR)
	return numbers == 0 && len(p.Kind)|len(p.UniqueKey)|len(p.Group) == 0 &&
		p.Metadata == nil && p.Deadline.IsZero() && !p.Replace
}

// copyMetadata checks metadata and returns a copy, nil if it is empty.
func copyMetadata(m map[string]string) (map[string]string, error) {
	if len(m) == 0 {
		return nil, nil
	}
	size := 0
	for name, value := range m {
		if size += len(name) + len(value); !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, invalid("PutOptions.Metadata",
				fmt.Sprintf("%.20q: %.20q", name, value), "valid UTF-8")
		}
	}
	if size > MaxMetadata {
		return nil, invalid("the length of PutOptions.Metadata", size,
			fmt.Sprintf("%d bytes at most", MaxMetadata))
	}
	return maps.Clone(m), nil
}

// completeRate checks a rate and fills in its burst.
func completeRate(field string, r Rate) (Rate, error) {
	switch {
	case r == Rate{}:
		return r, nil
	case !(r.Limit > 0 && r.Limit <= MaxRate): // NaN too
		return r, invalid(field+".Limit", r.Limit,
			fmt.Sprintf("more than 0 and %d at most, or 0 without a Burst", MaxRate))
	case r.Burst < 0 || r.Burst > MaxRate:
		return r, invalid(field+".Burst", r.Burst, fmt.Sprintf("1 to %d, or 0 for 1", MaxRate))
	}
	r.Burst = max(r.Burst, 1)
	return r, nil
}

// limits checks the limits of a key.
func (o *Options[V]) limits(l KeyLimits) (driver.KeyLimits, error) {
	switch {
	case l.Weight < 0 || l.Weight > fairq.MaxWeight:
		return driver.KeyLimits{}, invalid("KeyLimits.Weight", l.Weight,
			fmt.Sprintf("1 to %d, or 0 for that of Options.Weight", fairq.MaxWeight))
	case l.MaxInFlight > fairq.MaxLen:
		return driver.KeyLimits{}, invalid("KeyLimits.MaxInFlight", l.MaxInFlight,
			fmt.Sprintf("%d at most, or negative for no limit", fairq.MaxLen))
	case l.Rate.Limit < 0 && l.Rate.Burst != 0:
		return driver.KeyLimits{}, invalid("KeyLimits.Rate.Burst", l.Rate.Burst,
			"0 if Rate.Limit is negative")
	case l.Rate.Limit < 0:
		l.Rate.Limit = -1
	default:
		var err error
		if l.Rate, err = completeRate("KeyLimits.Rate", l.Rate); err != nil {
			return driver.KeyLimits{}, err
		}
	}
	return driver.KeyLimits{
		Weight: l.Weight, MaxInFlight: max(l.MaxInFlight, -1), Rate: driver.Rate(l.Rate),
	}, nil
}

// timeQuantum is the quantum of a queue with ShareTime, in milliseconds.
const timeQuantum = 1000

// costLimit returns the greatest cost of a task.
func (o *Options[V]) costLimit() int64 {
	if o.Quantum == 0 {
		return fairq.MaxCost
	}
	return account.CostLimit(o.Quantum)
}

// noDeadline is later than all valid deadlines, because a Store must be able to write them down.
var noDeadline = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)

// limit checks a time to live or to run. A result of 0 means that there is none.
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
		return invalid(field, fmt.Sprintf("%.20s...", name),
			fmt.Sprintf("%d bytes at most; it has %d", MaxName, len(name)))
	}
	return nil
}
