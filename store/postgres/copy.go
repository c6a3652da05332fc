package postgres

import (
	"bytes"
	"encoding/binary"

	"github.com/fairq/fairq/store/internal/rows"
)

const sqlCopy = `COPY fairq.tasks (queue, id, created, round, place, since, ttr, max_attempts,
	deadline, consumer, follower, ready_at, until, expires, latest, wake,
	err_code, used, weight, cost, attempts, priority, state, role, front, takeable, gap, returned,
	untried, hidden, key, kind, unique_key, grp, err_message, metadata, payload)
FROM STDIN (FORMAT binary)`

// copyData has rows in the binary format of COPY: a header, and for each row the number of its
// columns and each column with its length, which is -1 for NULL.
type copyData struct{ data []byte }

func newCopyData(rows int) *copyData {
	c := &copyData{make([]byte, 0, 512*rows)}
	c.data = append(c.data, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	return c
}

// add adds a row. The columns are those of sqlCopy.
func (c *copyData) add(queue int64, r *rows.Row) {
	c.data = binary.BigEndian.AppendUint16(c.data, 37)
	for _, n := range [...]int64{
		queue, int64(r.ID), r.Created, int64(r.Round), int64(r.Place), int64(r.Since),
	} {
		c.bigint(n)
	}
	for _, n := range [...]int64{
		int64(r.TTR), int64(r.MaxAttempts), r.Deadline, int64(r.Consumer), int64(r.Follower), r.ReadyAt,
		r.Until, r.Expires, r.Latest, r.Wake, codeOf(r.Err),
		int64(r.Used),
	} {
		c.nullable(n, 0)
	}
	c.nullable(int64(r.Weight), 1)
	c.nullable(r.Cost, 1)
	c.bigint(int64(r.Attempts))
	for _, n := range [...]int{r.Priority, int(r.State), int(r.Role), int(r.Front)} {
		c.data = binary.BigEndian.AppendUint32(c.data, 2)
		c.data = binary.BigEndian.AppendUint16(c.data, uint16(n))
	}
	for _, b := range [...]bool{r.Takeable, r.Gap, r.Returned, r.Untried, r.Hidden} {
		c.data = binary.BigEndian.AppendUint32(c.data, 1)
		c.data = append(c.data, byte(bit(b)))
	}
	c.text(r.Key)
	c.text(r.Kind)
	c.bytes(optional(r.UniqueKey))
	c.bytes(optional(r.Group))
	c.bytes(messageOf(r.Err))
	c.bytes(optional(r.Metadata))
	c.bytes(r.Payload)
}

func (c *copyData) bigint(n int64) {
	c.data = binary.BigEndian.AppendUint32(c.data, 8)
	c.data = binary.BigEndian.AppendUint64(c.data, uint64(n))
}

// nullable adds a column in which NULL stands for a number.
func (c *copyData) nullable(n, null int64) {
	if n == null {
		c.bytes(nil)
	} else {
		c.bigint(n)
	}
}

func (c *copyData) text(s string) {
	c.data = binary.BigEndian.AppendUint32(c.data, uint32(len(s)))
	c.data = append(c.data, s...)
}

// bytes adds a column, NULL for nil.
func (c *copyData) bytes(b []byte) {
	if b == nil {
		c.data = binary.BigEndian.AppendUint32(c.data, 1<<32-1)
		return
	}
	c.data = binary.BigEndian.AppendUint32(c.data, uint32(len(b)))
	c.data = append(c.data, b...)
}

// copyIn sends the buffered writes, and then the rows.
func (t *tx) copyIn(c *copyData) {
	if t.failed = t.send("write"); t.failed != nil {
		return
	}
	c.data = binary.BigEndian.AppendUint16(c.data, 1<<16-1)
	_, err := t.conn.Conn().PgConn().CopyFrom(t.ctx, bytes.NewReader(c.data), t.db.text(sqlCopy))
	if err != nil {
		t.failed = t.db.failed("insert", err)
	}
}
