package sqlite

import (
	"database/sql/driver"
	"strconv"

	"github.com/fairq/fairq/store/internal/rows"
)

func readConsumer(c *cells) rows.Consumer {
	return rows.Consumer{Number: c.uint(), Name: c.text(), Epoch: c.uint(), Deadline: c.int()}
}

func (v *view) consumers(s statement, values ...driver.Value) (all []rows.Consumer, err error) {
	err = v.session.each(s, func(c *cells) { all = append(all, readConsumer(c)) }, values...)
	return all, err
}

func (v *view) Consumer(name string) (*rows.Consumer, error) {
	all, err := v.consumers(selectConsumer, v.queue, name)
	if len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (v *view) AddConsumer(name string, epoch uint64, deadline int64) (*rows.Consumer, error) {
	if _, err := v.session.exec(insertConsumer, v.queue, name, int64(epoch), deadline); err != nil {
		return nil, err
	}
	return v.Consumer(name)
}

func (v *view) ConsumerNames(numbers []uint64) (map[uint64]string, error) {
	names := make(map[uint64]string, len(numbers))
	for _, n := range numbers {
		err := v.session.each(consumerName, func(c *cells) { names[n] = c.text() }, int64(n), v.queue)
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Alive implements rows.View. Nobody else can delete any until the end of the transaction.
func (v *view) Alive(numbers []uint64) (found []uint64, err error) {
	for _, n := range numbers {
		err = v.session.each(consumerName, func(*cells) { found = append(found, n) }, int64(n), v.queue)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (v *view) Beat(numbers []uint64, deadline int64) (found []uint64, err error) {
	for _, n := range numbers {
		changed, err := v.session.exec(beatConsumer, deadline, int64(n), v.queue)
		if err != nil {
			return nil, err
		}
		if changed > 0 {
			found = append(found, n)
		}
	}
	return found, nil
}

func (v *view) DueConsumers(now int64, n int) ([]rows.Consumer, error) {
	return v.consumers(dueConsumers, v.queue, now, int64(n))
}

func (v *view) NextDeadline() (int64, error) { return v.session.number(nextDeadline, v.queue) }

func (v *view) DeleteConsumer(number uint64) error {
	_, err := v.session.exec(deleteConsumer, int64(number), v.queue)
	return err
}

func (v *view) Consumers(prefix string, after int64) ([]rows.Consumer, error) {
	end, bounded := behind(prefix)
	return v.consumers(listConsumers, v.queue, prefix, end, bit(!bounded), after)
}

// behind returns the least string greater than all that begin with prefix, false if there is none.
func behind(prefix string) (string, bool) {
	b := []byte(prefix)
	for len(b) > 0 {
		if last := len(b) - 1; b[last] < 0xff {
			b[last]++
			return string(b), true
		}
		b = b[:len(b)-1]
	}
	return "", false
}

func (v *view) Group(name string) (g *rows.Group, err error) {
	err = v.session.each(selectGroup, func(c *cells) {
		g = &rows.Group{
			Name: name, Started: c.bool(), Cancelled: c.bool(), Tasks: int(c.int()), Members: int(c.int()),
		}
	}, v.queue, name)
	return g, err
}

func (v *view) SetGroup(g *rows.Group) error {
	if g.Tasks == 0 {
		_, err := v.session.exec(deleteGroup, v.queue, g.Name)
		return err
	}
	_, err := v.session.exec(setGroup, v.queue, g.Name, bit(g.Started), bit(g.Cancelled),
		int64(g.Tasks), int64(g.Members))
	return err
}

func (v *view) Outcome(address string) (o *rows.Outcome, err error) {
	err = v.session.each(selectOutcome, func(c *cells) {
		o = &rows.Outcome{UniqueKey: address, ID: c.uint(), How: rows.How(c.int()), Err: c.error(), Until: c.int()}
	}, v.queue, address)
	return o, err
}

func (v *view) SetOutcome(o *rows.Outcome) error {
	if o.Until == 0 {
		_, err := v.session.exec(deleteOutcome, v.queue, o.UniqueKey)
		return err
	}
	number, err := v.Number()
	if err != nil {
		return err
	}
	code, message := errorCells(o.Err)
	_, err = v.session.exec(setOutcome, v.queue, o.UniqueKey, int64(o.ID), int64(o.How), code, message, o.Until, int64(number))
	return err
}

// Ended implements rows.View. A mark is the greatest number that was given, as all that is written later gets a greater one.
func (v *view) Ended(mark string) (ended []*rows.Outcome, next string, err error) {
	next = strconv.FormatUint(v.head.number, 10)
	if mark == "" {
		return nil, next, nil
	}
	since, err := strconv.ParseInt(mark, 10, 64)
	if err == nil {
		err = v.session.each(selectEnded, func(c *cells) {
			ended = append(ended, &rows.Outcome{ID: c.uint(), How: rows.How(c.int()), Err: c.error()})
		}, v.queue, since)
	}
	return ended, next, err
}

func (v *view) SweepOutcomes(now int64, n int) error {
	_, err := v.session.exec(sweepOutcomes, v.queue, now, int64(n))
	return err
}

func (v *view) NextOutcome() (int64, error) { return v.session.number(nextOutcome, v.queue) }

func (v *view) AddDone(d *rows.Done) error {
	code, message := errorCells(d.Err)
	_, err := v.session.exec(insertDone, v.rowid(d.ID), v.queue, d.Key, d.Kind, d.UniqueKey, int64(d.Attempts), d.Created, d.Finished,
		int64(d.How), code, message, d.Until, d.Payload)
	return err
}

func (v *view) Done(after uint64, n int) (all []*rows.Done, err error) {
	err = v.session.each(selectDone, func(c *cells) {
		all = append(all, &rows.Done{
			ID: c.uint() & maxID, Key: c.text(), Kind: c.text(), UniqueKey: c.text(), Attempts: int(c.int()),
			Created: c.int(), Finished: c.int(), How: rows.How(c.int()), Err: c.error(), Until: c.int(), Payload: c.blob(),
		})
	}, v.rowid(after), v.rowid(maxID), int64(n))
	return all, err
}

func (v *view) SweepDone(now int64, n int) error {
	_, err := v.session.exec(sweepDone, v.queue, now, int64(n))
	return err
}

func (v *view) NextDone() (int64, error) { return v.session.number(nextDone, v.queue) }
