package queue

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// This file reads the rows of claims. Each task is read individually only here, so rows are decoded
// directly from the server's format.

// fewTasks is from how many tasks on memory for all possible ones is allocated at once.
const fewTasks = 8

// read reads the rows of a claim. With more columns, a row also says how many tasks were set aside.
// A row without a task has only that.
func (g *claiming) read(rows pgx.Rows) error {
	defer rows.Close()
	for first := true; rows.Next(); first = false {
		if first { // without a row there may be no columns, because earlier statements have failed
			if err := checkFormats(rows); err != nil {
				return err
			}
		}
		r := row{fields: rows.RawValues()}
		id := r.long()
		if id != 0 {
			if n := len(g.tasks); n == cap(g.tasks) {
				room := make([]Task, n, max(fewTasks, n+1, min(g.most, n*fewTasks)))
				copy(room, g.tasks)
				g.tasks = room
			}
			g.tasks = g.tasks[:len(g.tasks)+1]
			g.task(&g.tasks[len(g.tasks)-1], id, &r)
		}
		if len(r.fields) > takenFields {
			r.next = takenFields
			g.aside += int(r.long())
		}
		if r.wrong != "" {
			return fmt.Errorf("row of a task: %s", r.wrong)
		}
	}
	return rows.Err()
}

func checkFormats(rows pgx.Rows) error {
	for _, f := range rows.FieldDescriptions() {
		if f.Format != pgx.BinaryFormatCode && f.DataTypeOID != pgtype.TextOID { // texts are the same in both formats
			return fmt.Errorf("want column %s of a task in binary form, as all modes of pgx but exec and simple_protocol give it", f.Name)
		}
	}
	return nil
}

// takenFields is the number of takenColumns.
const takenFields = 16

func (g *claiming) task(t *Task, id int64, r *row) {
	t.ID = id
	t.Type = r.text(g.last)
	g.last = t.Type
	t.Key, t.Unique = r.text(""), r.text("")
	t.Payload = json.RawMessage(append([]byte(nil), r.bytes()...))
	t.Priority, t.Slot = -r.number(), r.short()
	t.Created = r.time()
	t.Due = r.time()
	t.Deadline = r.time()
	t.Begun = r.time()
	t.Until = t.Begun.Add(g.lease)
	t.Timeout = time.Duration(r.number()) * time.Millisecond
	t.Epoch, t.Failures, t.Lost = r.number(), r.number(), r.number()
	t.Error = r.text("")
	t.State, t.Worker = g.state, g.worker
}

// A row is read column by column.
type row struct {
	fields [][]byte
	next   int
	wrong  string
}

func (r *row) bytes() []byte {
	if r.next >= len(r.fields) {
		r.wrong = fmt.Sprintf("want %d columns or more, have %d", takenFields, len(r.fields))
		return nil
	}
	r.next++
	return r.fields[r.next-1]
}

// sized returns the next column, which has a fixed size.
func (r *row) sized(size int) []byte {
	data := r.bytes()
	if len(data) != size {
		if r.wrong == "" {
			r.wrong = fmt.Sprintf("want %d bytes in column %d, have %d", size, r.next, len(data))
		}
		return make([]byte, size)
	}
	return data
}

func (r *row) long() int64 { return int64(binary.BigEndian.Uint64(r.sized(8))) }

func (r *row) number() int { return int(int32(binary.BigEndian.Uint32(r.sized(4)))) }

func (r *row) short() int { return int(int16(binary.BigEndian.Uint16(r.sized(2)))) }

// PostgreSQL counts times from here, in microseconds.
var timesBegin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func (r *row) time() time.Time { return time.UnixMicro(timesBegin + r.long()).UTC() }

// text returns a text. If it equals likely, it returns likely without allocation.
func (r *row) text(likely string) string {
	if data := r.bytes(); string(data) != likely {
		return string(data)
	}
	return likely
}
