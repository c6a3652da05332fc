package memory

import "github.com/fairq/fairq/internal/driver"

// outcomes remembers how tasks with unique keys ended, for a while.
type outcomes struct {
	by          map[string]*ending
	first, last *ending // in the order in which they are forgotten
	peak        int     // how many there once were
}

type ending struct {
	uniqueKey  string
	id         driver.ID
	err        error
	until      int64
	prev, next *ending
}

func (o *outcomes) add(uniqueKey string, id driver.ID, err error, until int64) {
	o.forget(uniqueKey)
	e := &ending{uniqueKey: uniqueKey, id: id, err: err, until: until, prev: o.last}
	if o.last == nil {
		o.first = e
	} else {
		o.last.next = e
	}
	o.last = e
	if o.by == nil {
		o.by = map[string]*ending{}
	}
	o.by[uniqueKey] = e
}

func (o *outcomes) get(uniqueKey string, now int64) (driver.Outcome, bool) {
	if e := o.by[uniqueKey]; e != nil && e.until > now {
		return driver.Outcome{ID: e.id, Done: true, Err: e.err}, true
	}
	return driver.Outcome{}, false
}

func (o *outcomes) forget(uniqueKey string) {
	e := o.by[uniqueKey]
	if e == nil {
		return
	}
	remove(&o.by, &o.peak, uniqueKey)
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

// expire forgets old outcomes, at most the given number.
func (o *outcomes) expire(now int64, most int) {
	for ; most > 0 && o.first != nil && o.first.until <= now; most-- {
		o.forget(o.first.uniqueKey)
	}
}
