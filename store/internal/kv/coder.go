package kv

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// coder encodes values one after the other, or decodes them in the same order to pointers. So one
// list of the fields of a row serves both. Numbers are varints.
type coder struct {
	b        []byte
	decoding bool
	damaged  bool // no encoding has produced these bytes
}

var errDamaged = errors.New("a row is damaged")

// encode returns the bytes that code encodes.
func encode(code func(c *coder)) []byte {
	c := coder{b: make([]byte, 0, 128)}
	code(&c)
	return c.b
}

// decode makes code decode all of b. The decoded values share no memory with b.
func decode(b []byte, code func(c *coder)) error {
	c := coder{b: b, decoding: true}
	if code(&c); c.damaged || len(c.b) > 0 {
		return errDamaged
	}
	return nil
}

// number codes an integer.
func number[N ~int | ~int64 | ~uint64 | ~uint8](c *coder, n *N) {
	if !c.decoding {
		c.b = binary.AppendVarint(c.b, int64(*n))
		return
	}
	v, size := binary.Varint(c.b)
	c.damaged = c.damaged || size <= 0 || int64(N(v)) != v
	c.b = c.b[max(0, size):]
	*n = N(v)
}

func (c *coder) flag(is *bool) {
	n := 0
	if *is {
		n = 1
	}
	number(c, &n)
	*is = n != 0
}

// text codes the number of bytes, then the bytes. It decodes to a copy.
func text[T ~string | ~[]byte](c *coder, s *T) {
	size := len(*s)
	number(c, &size)
	switch {
	case !c.decoding:
		c.b = append(c.b, *s...)
	case size < 0 || size > len(c.b):
		c.damaged = true
	default:
		*s, c.b = T(slices.Clone(c.b[:size])), c.b[size:]
	}
}

func (c *coder) err(e **driver.Error) {
	is := *e != nil
	if c.flag(&is); !is {
		return
	}
	if c.decoding {
		*e = new(driver.Error)
	}
	number(c, &(*e).Code)
	text(c, &(*e).Message)
}

func (c *coder) limits(l **driver.KeyLimits) {
	s := rows.LimitsText(*l)
	if text(c, &s); c.decoding && !c.damaged {
		var err error
		*l, err = rows.ParseLimits(s)
		c.damaged = err != nil
	}
}

// counts codes the number of tasks in each state. Element 0, their sum, is not stored.
func (c *coder) counts(n *[driver.Held + 1]int) {
	n[0] = 0
	for state := driver.Ready; state <= driver.Held; state++ {
		number(c, &n[state])
		n[0] += n[state]
	}
}

// codeTask codes all fields but the payload, which has a key of its own.
func (c *coder) codeTask(r *rows.Row) {
	number(c, &r.ID)
	text(c, &r.Key)
	text(c, &r.Kind)
	text(c, &r.UniqueKey)
	number(c, &r.Role)
	number(c, &r.Priority)
	number(c, &r.Weight)
	number(c, &r.Cost)
	number(c, &r.TTR)
	number(c, &r.MaxAttempts)
	number(c, &r.Created)
	number(c, &r.Deadline)
	text(c, &r.Metadata)
	text(c, &r.Group)
	number(c, &r.State)
	c.damaged = c.damaged || r.State < driver.Ready || r.State > driver.Held
	c.flag(&r.Takeable)
	c.flag(&r.InLine)
	number(c, &r.Round)
	number(c, &r.Used)
	c.flag(&r.Gap)
	c.flag(&r.Returned)
	c.flag(&r.Untried)
	number(c, &r.Place)
	number(c, &r.Since)
	number(c, &r.Consumer)
	number(c, &r.Follower)
	number(c, &r.Attempts)
	number(c, &r.ReadyAt)
	number(c, &r.Until)
	number(c, &r.Expires)
	number(c, &r.Latest)
	number(c, &r.Wake)
	c.err(&r.Err)
}

func (c *coder) codeKey(k *rows.Key) {
	text(c, &k.Key)
	c.limits(&k.Limits)
	c.counts(&k.Tasks)
	c.flag(&k.Paused)
	c.flag(&k.Waits)
	number(c, &k.Until)
	number(c, &k.Hold)
	number(c, &k.By)
	number(c, &k.Full)
}

func (c *coder) codeTurn(t *rows.Turn) {
	text(c, &t.Key)
	number(c, &t.Priority)
	text(c, &t.Kind)
	number(c, &t.Task)
	number(c, &t.Round)
	number(c, &t.Used)
	number(c, &t.Place)
	c.flag(&t.Leads)
	c.flag(&t.Takeable)
}

func (c *coder) codeServed(s *rows.Served) {
	number(c, &s.Priority)
	text(c, &s.Key)
	number(c, &s.Round)
	number(c, &s.Used)
}

func (c *coder) codeConsumer(r *rows.Consumer) {
	number(c, &r.Number)
	text(c, &r.Name)
	number(c, &r.Epoch)
	number(c, &r.Deadline)
}

func (c *coder) codeGroup(g *rows.Group) {
	text(c, &g.Name)
	c.flag(&g.Started)
	c.flag(&g.Cancelled)
	number(c, &g.Tasks)
	number(c, &g.Members)
}

func (c *coder) codeOutcome(o *rows.Outcome) {
	text(c, &o.UniqueKey)
	number(c, &o.ID)
	number(c, &o.Result)
	c.err(&o.Err)
	number(c, &o.Until)
	number(c, &o.Written)
}

func (c *coder) codeEnded(d *rows.Ended) {
	number(c, &d.ID)
	text(c, &d.Key)
	text(c, &d.Kind)
	text(c, &d.UniqueKey)
	text(c, &d.Payload)
	number(c, &d.Attempts)
	number(c, &d.Created)
	number(c, &d.Finished)
	number(c, &d.Result)
	c.err(&d.Err)
	number(c, &d.Until)
}
