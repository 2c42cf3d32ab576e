package sql

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers/sql/language"
)

// An execution is one attempt of a call.
type execution struct {
	*SQL

	call  *engine.Call
	limit time.Duration // of the attempt
}

// These are about the table of keys, see [DDL].
const (
	claimKey   = "insert into procaas_applied (key) values ($1) on conflict (key) do nothing"
	findResult = "select result::text from procaas_applied where key = $1"
	keepResult = "update procaas_applied set result = $2::text::json where key = $1"
)

// in executes the statement in a transaction. It reports whether it was applied before.
//
// The key is written first. So a repeat waits for the first attempt if that still is at work, and never executes a statement whose
// effect is there already, which might fail by it.
func (x *execution) in(ctx context.Context, p *Pool, c *connection, d *language.Database) (response map[string]any, repeated bool, err error) {
	values, err := x.values()
	if err != nil {
		return nil, false, model.Permanent(err)
	}
	conn, err := c.Acquire(ctx)
	if errors.Is(err, context.DeadlineExceeded) && c.Stat().AcquiredConns() == c.Config().MaxConns {
		return nil, false, fmt.Errorf("all %d connections are in use: %w", c.Config().MaxConns, err)
	}
	p.note(c, err)
	if err != nil {
		return nil, false, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin(d, x.limit, x.ReadOnly)})
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after a commit; if it fails, nobody gets the connection again
	if !x.ReadOnly {
		first, err := x.claim(ctx, tx)
		if err == nil && !first {
			response, err = x.former(ctx, tx)
		}
		if err != nil || !first {
			return response, !first, err
		}
	}
	if response, err = x.result(ctx, tx.Conn(), values); err != nil {
		return nil, false, err
	}
	if !x.ReadOnly {
		if response, err = x.keep(ctx, tx, response); err != nil {
			return nil, false, err
		}
	}
	return response, false, tx.Commit(ctx)
}

// begin begins a transaction in which texts have one form, whatever the settings of the user are. A node that stands still holds
// its locks no longer than the attempt may take.
func begin(d *language.Database, limit time.Duration, readOnly bool) string {
	var b strings.Builder
	b.WriteString("begin")
	if readOnly {
		b.WriteString(" read only")
	}
	most := max(1, limit.Milliseconds())
	fmt.Fprintf(&b, "; set local statement_timeout = %d; set local idle_in_transaction_session_timeout = %d", most, most)
	b.WriteString("; set local timezone = 'UTC'; set local datestyle = 'ISO'; set local intervalstyle = 'iso_8601'" +
		"; set local bytea_output = 'hex'; set local extra_float_digits = 1; set local standard_conforming_strings = on")
	at, _, _ := d.Place() // it was good enough to connect
	for i, schema := range at.SearchPath {
		b.WriteString([]string{"; set local search_path = ", ", "}[min(i, 1)] + pgx.Identifier{schema}.Sanitize())
	}
	return b.String()
}

// claim writes the key of the call. It reports whether it was not there.
func (x *execution) claim(ctx context.Context, tx pgx.Tx) (first bool, err error) {
	tag, err := tx.Exec(ctx, claimKey, x.call.IdempotencyKey)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case undefinedTable:
			err = &refusal{text: "there is no table procaas_applied, by which a statement is applied once: make it with procaas sql ddl, " +
				"or write read-only: true if the statement only reads", status: http.StatusBadRequest, from: e}
		case insufficientPrivilege:
			err = &refusal{text: e.Message + ": grant select, insert, update and delete on procaas_applied to the user of the node",
				status: http.StatusForbidden, from: e}
		}
	}
	return tag.RowsAffected() > 0, err
}

// former returns the response of the attempt that was applied.
func (x *execution) former(ctx context.Context, tx pgx.Tx) (map[string]any, error) {
	var text string
	if err := tx.QueryRow(ctx, findResult, x.call.IdempotencyKey).Scan(&text); err != nil {
		return nil, fmt.Errorf("read the result of the first attempt: %w", err)
	}
	return decoded([]byte(text))
}

// keep writes the response beside the key, and returns it as a repeat would read it.
func (x *execution) keep(ctx context.Context, tx pgx.Tx, response map[string]any) (map[string]any, error) {
	text, err := datum.FormatJSON(response)
	if err != nil {
		return nil, model.Permanent(err)
	}
	if _, err = tx.Exec(ctx, keepResult, x.call.IdempotencyKey, string(text)); err != nil {
		return nil, err
	}
	return decoded(text)
}

func decoded(text []byte) (map[string]any, error) {
	data, err := datum.ParseJSON(text)
	response, ok := data.(map[string]any)
	if err == nil && !ok {
		err = errors.New("the result in procaas_applied is no response of a statement")
	}
	if err != nil {
		return nil, model.Permanent(err)
	}
	return response, nil
}

// result executes the statement and reads what it returns.
func (x *execution) result(ctx context.Context, conn *pgx.Conn, values []any) (map[string]any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	texts, err := encode(ctx, conn.PgConn(), x.Statement, values)
	if err != nil {
		return nil, err
	}
	if x.call.Sent != nil {
		size := len(x.Statement)
		for _, text := range texts {
			size += len(text)
		}
		x.call.Sent(int64(size))
	}
	found := conn.PgConn().ExecParams(ctx, x.Statement, texts, nil, nil, nil)
	rows, err := x.read(ctx, conn.TypeMap(), found)
	if err != nil {
		cancel() // the rest is not read: the connection is given up, which takes back the statement
	}
	tag, failed := found.Close()
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return nil, failed
	}
	affected := int(tag.RowsAffected())
	if err := x.expected(max(affected, len(rows))); err != nil {
		return nil, err
	}
	response := map[string]any{"rows-affected": affected}
	if x.Expect != "one" {
		response["rows"] = rows
		return response, nil
	}
	response["row"] = nil
	if len(rows) == 1 {
		response["row"] = rows[0]
	}
	return response, nil
}

// expected returns an error if the statement has not found as many rows as it must.
func (x *execution) expected(rows int) error {
	status := 0
	switch {
	case (x.Expect == "one" || x.Expect == "some") && rows == 0:
		status = http.StatusNotFound
	case x.Expect == "one" && rows > 1, x.Expect == "none" && rows > 0:
		status = http.StatusConflict
	default:
		return nil
	}
	return &refusal{text: fmt.Sprintf("the statement has %d rows, and expect is %s", rows, x.Expect), status: status}
}
