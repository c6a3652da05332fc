package postgres

import (
	"bytes"
	"encoding/binary"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

var sqlCopy = "COPY fairq.tasks (queue, " + taskColumns + ") FROM STDIN (FORMAT binary)"

// copyData has rows in the binary format of COPY: a header, and then the rows. A row is the number
// of its columns, and each column with its length before it, -1 for NULL.
type copyData struct{ data []byte }

func newCopyData(rows int) *copyData {
	c := &copyData{make([]byte, 0, 512*rows)}
	c.data = append(c.data, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	return c
}

// add adds a row. The columns are those of sqlCopy.
func (c *copyData) add(queue int64, r *rows.Row) {
	cells := columns.Tasks.CellsOf(r)
	defer columns.Tasks.Done(cells)
	c.data = binary.BigEndian.AppendUint16(c.data, uint16(1+len(cells.Fields)))
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(queue))
	c.bytes(number[:])
	for i, field := range cells.Fields {
		of := &columns.Tasks.Columns[i]
		switch value := columns.Value(field).(type) {
		case int64:
			n := number[:]
			binary.BigEndian.PutUint64(n, uint64(value))
			switch {
			case of.Null && value == of.Zero:
				n = nil
			case of.Bool:
				n = n[7:]
			case of.Small:
				n = n[6:]
			}
			c.bytes(n)
		case string:
			if of.Null && value == "" {
				c.bytes(nil)
			} else {
				c.data = binary.BigEndian.AppendUint32(c.data, uint32(len(value)))
				c.data = append(c.data, value...)
			}
		case []byte:
			c.bytes(value)
		default:
			c.bytes(nil)
		}
	}
}

// bytes adds a column, NULL for nil.
func (c *copyData) bytes(b []byte) {
	size := uint32(len(b))
	if b == nil {
		size = 1<<32 - 1
	}
	c.data = append(binary.BigEndian.AppendUint32(c.data, size), b...)
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
