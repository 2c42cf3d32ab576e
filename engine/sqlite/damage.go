package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"procaas/engine/store"
)

// A page of the file that cannot be read makes each statement fail that needs a row on it, also one
// that only changes another column: SQLite writes whole rows. Such rows stay where they are, and
// with them the later runs of their keys. The process leaves them out of what it searches. Indexes
// have other pages, so they still say which rows there are.

// unreadable returns whether an error means that the file has a page that cannot be read.
func unreadable(err error) bool {
	code, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch code.Code() {
	case sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS:
		return true
	}
	return code.Code()&0xff == sqlite3.SQLITE_CORRUPT || code.Code()&0xff == sqlite3.SQLITE_NOTADB
}

// explain marks errors that a caller's data causes, which a retry would not change, and errors of
// damaged data.
func explain(file string, err error) error {
	if unreadable(err) && !errors.Is(err, store.ErrDamaged) {
		return fmt.Errorf("%w: the file %s has a page that cannot be read: %w. Check the disk. "+
			"Stop the node, then restore the file from a backup, or recover it with sqlite3 .recover", store.ErrDamaged, file, err)
	}
	if code, ok := errors.AsType[*sqlite.Error](err); ok {
		switch code.Code() & 0xff {
		case sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH:
			return fmt.Errorf("%w: %w", store.ErrRefused, err)
		}
	}
	return err
}

// full marks the error of a disk without room.
func full(err error) error {
	if code, ok := errors.AsType[*sqlite.Error](err); ok && code.Code()&0xff == sqlite3.SQLITE_FULL {
		return fmt.Errorf("%w: %w", store.ErrNoRoom, err)
	}
	return err
}

func (t *tx) explain(err error) error { return explain(t.file, err) }

// isDamage reports whether a careful write may leave out what it could not read.
func (t *tx) isDamage(err error) bool { return t.careful && unreadable(err) }

// readable returns a condition that leaves out the runs whose rows cannot be read.
func (t *tx) readable() string {
	if len(t.damaged) == 0 {
		return ""
	}
	return " and seq not in (" + seqList(slices.Sorted(maps.Keys(t.damaged))) + ")"
}

// seqList returns numbers as an SQL list.
func seqList(seqs []int64) string {
	text := make([]string, len(seqs))
	for i, n := range seqs {
		text[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(text, ", ")
}

// probe has all columns that a run's row may keep on pages of its own.
const probe = "select id, event, checkpoint, error, bundle, awaits, labels from runs where seq = ?"

// readableOf reads the numbers of runs, and leaves out those whose rows cannot be read.
func (t *tx) readableOf(query string, args ...any) (seqs []int64, err error) {
	all, err := rows(t, query, args, func(r *sql.Rows) (seq int64, err error) { return seq, r.Scan(&seq) })
	for _, seq := range all {
		var columns [7]any
		_, failed := t.row(probe, []any{seq}, &columns[0], &columns[1], &columns[2], &columns[3], &columns[4], &columns[5], &columns[6])
		switch {
		case failed == nil:
			seqs = append(seqs, seq)
		case unreadable(failed):
			t.leaveOut(seq, failed)
		default:
			return nil, failed
		}
	}
	return seqs, err
}

// leaveOut leaves a run out from now on.
func (t *tx) leaveOut(seq int64, why error) {
	if t.damaged == nil {
		t.damaged, t.told = map[int64]error{}, map[int64]bool{}
	}
	t.damaged[seq] = fmt.Errorf("row %d of the table runs, with its key, stands still: %w", seq, t.explain(why))
}

// untold lists the runs left out that no claim has returned yet.
func (t *tx) untold() (seqs []int64) {
	for _, seq := range slices.Sorted(maps.Keys(t.damaged)) {
		if !t.told[seq] {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// tell notes that a claim has returned them.
func (t *tx) tell(seqs []int64) {
	for _, seq := range seqs {
		t.told[seq] = true
	}
}

// sound reads the runs that a condition chooses, without those whose rows cannot be read.
func (t *tx) sound(where string, args ...any) ([]row, error) {
	condition, order, _ := strings.Cut(where, " order by ")
	where = condition + t.readable() + " order by " + order
	if t.careful {
		seqs, err := t.readableOf("select seq from runs where "+where, args...)
		if err != nil {
			return nil, err
		}
		where, args = "seq in ("+seqList(seqs)+") order by "+strings.TrimSuffix(order, " limit ?"), nil
	}
	return rows(t, "select "+rowColumns+" from runs where "+where, args, scanRow)
}
