package driver

import "time"

// Record is a task as a Store returns it: the fields of [Info] in less memory, and the payload.
type Record struct {
	ID       ID
	Key      string
	Kind     string
	Priority int
	Attempts int
	Payload  any    // as it was put
	Consumer string // that holds it, if it is taken
	Details
}

// Details has the fields that few callers read. Times are in nanoseconds since 1970, and 0 is
// none.
type Details struct {
	Lease       uint64 // its number; 0 if the task is not taken
	Created     int64
	ReadyAt     int64
	Until       int64
	Expires     int64 // 0 even if the task expires at its deadline
	TTR         time.Duration
	Cost        int64
	MaxAttempts int32
	State       State
	Rare        *Rare // nil if all its fields are zero; it never changes
}

// Rare has the fields that few tasks have.
type Rare struct {
	UniqueKey string
	Group     string
	Role      Role
	Deadline  time.Time
	Err       *Error
	Metadata  map[string]string // that no other code has
}

// Attempt is a task that was just taken, as TakeOne returns it: it is small.
type Attempt struct {
	ID       ID
	Key      string
	Kind     string
	Priority int
	Attempts int
	Payload  any
	Lease    uint64
	Created  int64
	More     *Details // nil if the task is plain; it never changes
}

// Attempt returns the Attempt of a task that was just taken.
func (r *Record) Attempt() Attempt {
	a := Attempt{r.ID, r.Key, r.Kind, r.Priority, r.Attempts, r.Payload, r.Lease, r.Created, nil}
	// Most tasks are plain: no option was set, and they were ready at once.
	if r.ReadyAt != r.Created || r.Cost != 1 || r.Rare != nil ||
		r.Until|r.Expires|int64(r.TTR)|int64(r.MaxAttempts) != 0 {
		a.More = new(r.Details)
	}
	return a
}

// New returns a New with which this task replaces another one at a time: with the rest of its
// delay and of its time to live.
func (r *Record) New(now int64) New {
	i := r.Info()
	n := New{
		Key: r.Key, Payload: r.Payload, Cost: r.Cost, Priority: r.Priority, Kind: r.Kind,
		Replace: true, Group: i.Group, Role: i.Role, Deadline: i.Deadline, TTR: r.TTR,
		MaxAttempts: i.MaxAttempts, Metadata: i.Metadata,
	}
	n.Delay = time.Duration(max(0, r.Until-now))
	if r.Expires != 0 {
		n.TTL = time.Duration(r.Expires-now) - n.Delay
	}
	return n
}

// Info returns the task without its payload.
func (r *Record) Info() Info {
	i := Info{
		ID: r.ID, Key: r.Key, Kind: r.Kind, State: r.State, Priority: r.Priority, Cost: r.Cost,
		Attempts: r.Attempts, MaxAttempts: int(r.MaxAttempts), TTR: r.TTR,
		Created: timeOf(r.Created), ReadyAt: timeOf(r.ReadyAt),
		Until: timeOf(r.Until), Expires: r.expiresAt(), Consumer: r.Consumer,
	}
	if rare := r.Rare; rare != nil {
		i.UniqueKey, i.Group, i.Role = rare.UniqueKey, rare.Group, rare.Role
		i.Deadline, i.Err, i.Metadata = rare.Deadline, rare.Err, rare.Metadata
	}
	return i
}

// expiresAt returns the time at which the task expires, the zero Time for never.
func (d *Details) expiresAt() time.Time {
	if d.Expires == 0 && d.Rare != nil {
		return d.Rare.Deadline
	}
	return timeOf(d.Expires)
}

// RecordOf returns the Record of a task that is not taken.
func RecordOf(i *Info) Record {
	r := Record{
		ID: i.ID, Key: i.Key, Kind: i.Kind, Priority: i.Priority, Attempts: i.Attempts,
		Consumer: i.Consumer,
		Details: Details{
			Created: Nanos(i.Created), ReadyAt: Nanos(i.ReadyAt), Until: Nanos(i.Until),
			TTR: i.TTR, Cost: i.Cost, MaxAttempts: int32(i.MaxAttempts), State: i.State,
			Rare: &Rare{i.UniqueKey, i.Group, i.Role, i.Deadline, i.Err, i.Metadata},
		},
	}
	if !i.Expires.Equal(i.Deadline) {
		r.Expires = Nanos(i.Expires)
	}
	return r
}

// Nanos returns a time in the form of a Record.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}
