package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// buckets is how many parts a table is divided into to locate differences.
const buckets = 1024

// Verify compares all rows of both sides as of one position of the stream, and forgets the rows
// touched before it. Writes to the source continue meanwhile.
func (m *Mover) Verify(ctx context.Context) error { return m.spoilt(ctx, m.verify(ctx)) }

func (m *Mover) verify(ctx context.Context) error {
	if err := m.resume(ctx); err != nil {
		return err
	}
	if _, err := m.ping(ctx); err != nil { // so that the slot below has little to skip
		return err
	}
	if err := m.at("verify"); err != nil {
		return err
	}
	slot, lsn, snapshot, err := m.createSlot(ctx, m.spec.Source, m.slot()+"_verify", true)
	if err != nil {
		return err
	}
	defer closeNow(slot) // also drops the slot
	read, err := connect(ctx, m.spec.Source, m.spec.SourceShard)
	if err != nil {
		return err
	}
	defer func() { _ = read.Close(context.WithoutCancel(ctx)) }()
	tx, err := read.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "set transaction snapshot "+literal(snapshot)); err != nil {
		return fmt.Errorf("take the snapshot of the slot: %w", err)
	}
	if err := m.passed(ctx, lsn); err != nil {
		return err
	}
	if err := m.nothingLeft(ctx); err != nil {
		return err
	}
	rows, err := m.compare(ctx, read)
	if err != nil {
		return err
	}
	clear(m.apply.touched)
	m.report(Progress{Step: "verify", Rows: rows, Total: rows}, true)
	return nil
}

// compare compares the rows that both connections see.
func (m *sides) compare(ctx context.Context, source *pgx.Conn) (rows int64, err error) {
	for _, t := range m.tables {
		n, err := compareTable(ctx, source, m.target, t)
		if err != nil {
			return rows, err
		}
		rows += n
		m.report(Progress{Step: "verify", Rows: rows}, false)
	}
	return rows, nil
}

// A digest is the same on both sides if the rows are, in any order.
type digest struct {
	rows int64
	// The sum of the rows' hashes as text, because a sum of 64-bit numbers needs more than 64 bits.
	// Unlike an exclusive or, it distinguishes one row from three equal rows.
	sum string
}

// bucket returns an expression that divides rows alike on both sides.
func (t *shape) bucket() string {
	if len(t.primary) == 0 {
		return "(" + t.digest("") + " & " + fmt.Sprint(buckets-1) + ")::int"
	}
	return `(hashtextextended((row(` + quoteAll(t.primary) + `))::text collate "C", 1) & ` + fmt.Sprint(buckets-1) + ")::int"
}

// digestsOf reads one side in one pass. The sums are per part, which locates a difference.
func digestsOf(ctx context.Context, c *pgx.Conn, t *shape) (map[int]digest, error) {
	rows, err := c.Query(ctx, "select "+t.bucket()+", count(*), sum("+t.digest("")+"::numeric)::text from "+t.quoted()+" where "+
		t.where+" group by 1")
	if err != nil {
		return nil, fmt.Errorf("compare table %s: %w", t.title(), err)
	}
	out := map[int]digest{}
	var bucket int
	var d digest
	_, err = pgx.ForEachRow(rows, []any{&bucket, &d.rows, &d.sum}, func() error {
		out[bucket] = d
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare table %s: %w", t.title(), err)
	}
	return out, nil
}

// compareTable compares a table on both sides at once. Only if a part differs, it reads that part
// again to find the rows.
func compareTable(ctx context.Context, source, target *pgx.Conn, t *shape) (int64, error) {
	type answer struct {
		digests map[int]digest
		err     error
	}
	// Of size 1, so that the reader of the target ends even if the source has failed first.
	other := make(chan answer, 1)
	go func() {
		d, err := digestsOf(ctx, target, t)
		other <- answer{d, err}
	}()
	have, err := digestsOf(ctx, source, t)
	there := <-other
	if err != nil {
		return 0, err
	}
	if there.err != nil {
		return 0, there.err
	}
	var rows, targets int64
	var differ []int
	for b := range buckets {
		rows, targets = rows+have[b].rows, targets+there.digests[b].rows
		if have[b] != there.digests[b] {
			differ = append(differ, b)
		}
	}
	if len(differ) == 0 {
		return rows, nil
	}
	names, err := differing(ctx, source, target, t, differ[0])
	if err != nil {
		return 0, err
	}
	return 0, &DivergedError{t.title(), fmt.Sprintf("%d rows in the source and %d in the target; %d of %d parts differ, such as the rows %s",
		rows, targets, len(differ), buckets, names)}
}

// differing names a few rows of a bucket that differ.
func differing(ctx context.Context, source, target *pgx.Conn, t *shape, bucket int) (string, error) {
	names := t.primary
	if len(names) == 0 {
		names = t.names()
	}
	sql := fmt.Sprintf("select (row(%s))::text, %s::text from %s where %s and %s = %d", quoteAll(names), t.digest(""), t.quoted(), t.where,
		t.bucket(), bucket)
	read := func(c *pgx.Conn) (map[string]string, error) {
		rows, err := c.Query(ctx, sql)
		if err != nil {
			return nil, err
		}
		out := map[string]string{}
		var name, sum string
		_, err = pgx.ForEachRow(rows, []any{&name, &sum}, func() error {
			out[name] += sum
			return nil
		})
		return out, err
	}
	a, err := read(source)
	if err != nil {
		return "", err
	}
	b, err := read(target)
	if err != nil {
		return "", err
	}
	var found []string
	for name, sum := range a {
		if b[name] != sum {
			found = append(found, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return strings.Join(found[:min(len(found), 3)], ", "), nil
}

// recheck compares the rows that were touched since the last comparison, while the source is frozen
// and the target has all of its changes.
func (m *Mover) recheck(ctx context.Context) error {
	for _, t := range m.tables {
		touched := m.apply.touched[t.title()]
		if len(touched) == 0 || len(t.primary) == 0 {
			continue
		}
		columns := make([][]string, len(t.primary))
		for _, row := range touched {
			for i, v := range row {
				columns[i] = append(columns[i], v)
			}
		}
		sql, args := touchedSQL(t, columns)
		have := make(chan digest, 1)
		failed := make(chan error, 1)
		go func() {
			var d digest
			failed <- m.source.QueryRow(ctx, sql, args...).Scan(&d.rows, &d.sum)
			have <- d
		}()
		var there digest
		err := m.target.QueryRow(ctx, sql, args...).Scan(&there.rows, &there.sum)
		if other := <-failed; other != nil {
			return fmt.Errorf("compare touched rows of %s: %w", t.title(), other)
		}
		if err != nil {
			return fmt.Errorf("compare touched rows of %s: %w", t.title(), err)
		}
		if here := <-have; here != there {
			return &DivergedError{t.title(), fmt.Sprintf("of %d rows that were written during the transfer, %d are in the source and %d in the "+
				"target, or their values differ",
				len(touched), here.rows, there.rows)}
		}
	}
	return nil
}

// touchedSQL returns the digest query for rows with given primary keys. The keys are texts, which
// each server casts to the column types. So one statement serves any number of keys.
func touchedSQL(t *shape, columns [][]string) (string, []any) {
	var places, names, joins []string
	var args []any
	for i, name := range t.primary {
		places = append(places, fmt.Sprintf("$%d::text[]", i+1))
		names = append(names, fmt.Sprintf("c%d", i))
		joins = append(joins, fmt.Sprintf("t.%s = k.c%d::%s", quote(name), i, t.column(name).typ))
		args = append(args, columns[i])
	}
	return "select count(*), coalesce(sum(" + t.digest("t.") + "::numeric), 0)::text from " + t.quoted() + " t join unnest(" +
		strings.Join(places, ", ") + ") as k(" + strings.Join(names, ", ") + ") on " + strings.Join(joins, " and "), args
}
