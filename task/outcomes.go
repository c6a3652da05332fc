package task

// outcomes remembers how tasks with addresses ended, for a while.
type outcomes struct {
	by          map[string]*ending
	first, last *ending // in the order in which they are forgotten
	most        int     // how many there once were
}

type ending struct {
	address    string
	id         ID
	err        error
	until      int64
	prev, next *ending
}

func (o *outcomes) add(address string, id ID, err error, until int64) {
	o.forget(address)
	e := &ending{address: address, id: id, err: err, until: until, prev: o.last}
	if o.last == nil {
		o.first = e
	} else {
		o.last.next = e
	}
	o.last = e
	if o.by == nil {
		o.by = map[string]*ending{}
	}
	o.by[address] = e
}

func (o *outcomes) get(address string, now int64) (Outcome, bool) {
	if e := o.by[address]; e != nil && e.until > now {
		return Outcome{ID: e.id, Done: true, Err: e.err}, true
	}
	return Outcome{}, false
}

func (o *outcomes) forget(address string) {
	e := o.by[address]
	if e == nil {
		return
	}
	remove(&o.by, &o.most, address)
	if e.prev == nil {
		o.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		o.last = e.prev
	} else {
		e.next.prev = e.prev
	}
}

// expire forgets what is too old, the given number at most.
func (o *outcomes) expire(now int64, most int) {
	for ; most > 0 && o.first != nil && o.first.until <= now; most-- {
		o.forget(o.first.address)
	}
}
