package fairshare

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const never = time.Duration(math.MaxInt64)

// client asks for a permit, holds it, thinks, and asks again. A key has any number of clients.
type client struct {
	key      func() int
	weight   int
	hold     func() time.Duration
	think    func() time.Duration
	patience func() time.Duration // after which it gives up

	at     time.Duration // of what it does next
	k      *key          // nil while it thinks
	number uint64        // not 0 while it waits
	came   time.Duration
	holds  time.Duration // since then
}

type key = Key[int, data]

type data struct{ line []*client }

func (d data) first() uint64 {
	if len(d.line) == 0 {
		return 0
	}
	return d.line[0].number
}

// world lets clients share permits in virtual time.
type world struct {
	Shares[int, data]
	next        func() *key // if it is not Shares.Next
	limit, held int
	clients     []*client
	now         time.Duration
	arrived     uint64

	came     func(k *key) // is about to ask; of these functions any may be nil
	admitted func(c *client)
	left     func(k *key) // has given up
	released func(k *key, held time.Duration)
}

// run lets time pass until then, or until n events have happened.
func (w *world) run(until time.Duration, events int) {
	for ; events > 0; events-- {
		c := slices.MinFunc(w.clients, func(a, b *client) int { return cmp.Compare(a.at, b.at) })
		if c.at > until {
			return
		}
		w.now = c.at
		switch {
		case c.k == nil:
			w.ask(c)
		case c.number != 0:
			k := c.k
			i := slices.Index(k.Data.line, c)
			k.Data.line = slices.Delete(k.Data.line, i, i+1)
			w.Leave(k, k.Data.first(), w.now)
			call(w.left, k)
			c.k, c.number, c.at = nil, 0, w.now+c.think()
		default:
			k := c.k
			c.k, c.at = nil, w.now+c.think()
			w.held--
			w.Release(k, 0, w.now)
			if w.released != nil {
				w.released(k, w.now-c.holds)
			}
			w.admit()
		}
	}
}

func (w *world) ask(c *client) {
	name := c.key()
	k := w.Find(name)
	w.arrived++
	c.came = w.now
	free := w.held < w.limit && w.Len() == 0 && w.MayHold(k)
	k = w.Add(k, name, c.weight)
	call(w.came, k)
	c.k, c.number = k, w.arrived
	if free {
		w.Hold(k)
		w.begin(c)
		return
	}
	c.at = never
	if c.patience != nil {
		c.at = w.now + c.patience()
	}
	k.Data.line = append(k.Data.line, c)
	w.Wait(k, k.Data.first(), w.now)
}

func (w *world) begin(c *client) {
	w.held++
	c.holds = w.now
	c.at = w.now + c.hold()
	call(w.admitted, c)
	c.number = 0
}

func (w *world) admit() {
	for w.held < w.limit && w.Len() > 0 {
		k := w.Next()
		if w.next != nil {
			k = w.next()
		}
		c := k.Data.line[0]
		k.Data.line = k.Data.line[1:]
		w.Admit(k, k.Data.first(), w.now)
		w.begin(c)
	}
}

func call[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}
