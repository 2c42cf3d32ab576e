// Package sql executes statements of flows in databases of PostgreSQL.
package sql

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/dsl/typing"
	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/handlers/sql/language"
)

// SQL executes one statement in a database of PostgreSQL, and applies it once.
//
// The statement and a row with the Idempotency-Key of the call are committed together, in the table procaas_applied of the
// database. Whenever the call is repeated, also after a crash, the handler finds the row: it returns the first result and applies
// nothing. procaas sql ddl prints the table. A statement with read-only: true only reads, and needs no table.
//
// The response has rows, a list of mappings from column to value, and rows-affected. With expect: one it has row instead of rows.
// bigint, integer, smallint and floats are numbers, and boolean, json, jsonb and arrays are values. bytea is base64, timestamptz is
// RFC 3339 in UTC. Everything else is the text of PostgreSQL, also numeric, so that it keeps all its digits.
//
//	id: charge
//	sql:
//	  database: billing
//	  statement: insert into charges (order_id, amount) values ($1, $2) returning id
//	  parameters: [!$ event.payload.id, 42]
//	  expect: one
type SQL struct {
	pool *Pool // nil in commands that have no node

	// Database is the id of a declared database.
	Database string `yaml:"database" required:"true"`

	// Statement is a single select, insert, update, delete, merge, with, values or call. It is fixed text: data comes as parameters.
	Statement string `yaml:"statement" required:"true"`

	// Parameters are the values of $1, $2 and so on. The server converts them to the types of the statement. A mapping becomes
	// JSON. So does a list, unless the type is an array. They take no secret.
	Parameters []any `yaml:"parameters"`

	// ReadOnly lets the statement only read, in a transaction that cannot write.
	ReadOnly bool `yaml:"read-only" expr:"no"`

	// Expect says how many rows the statement must return or change: any, one, some or none. Otherwise it takes no effect, and the
	// error has the class 404 for too few rows and 409 for too many.
	Expect string `yaml:"expect" enum:"any,one,some,none" default:"any"`

	// MaxRows is the highest number of rows that the statement may return. With more it takes no effect, and there is no retry.
	MaxRows int `yaml:"max-rows" default:"1000" min:"1" max:"100000"`

	// MaxResponse is the largest size of the rows. Its default is 1MiB. Larger ones are as too many.
	MaxResponse datum.Bytes `yaml:"max-response" min:"1" max:"64MiB"`

	// Timeout is the longest time of one attempt. Its default is the timeout of the handler, then that of the database.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
}

//go:embed sql.go
var typeFiles embed.FS

// Types lists the handler type sql as the language sees it, or with the pool of a node.
func Types(pool *Pool) []engine.HandlerType {
	t := engine.Type[SQL]("sql", spec.Read(typeFiles))
	t.New = func() engine.Handler { return &SQL{pool: pool} }
	return []engine.HandlerType{t}
}

// Handle implements [engine.Handler].
func (h *SQL) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	d := language.Of(c.Bundle, h.Database)
	switch {
	case d == nil:
		return model.Result{}, model.Permanent(fmt.Errorf("database %q is not declared", h.Database))
	case h.pool == nil:
		return model.Result{}, engine.WithoutNode("databases")
	}
	limit := cmp.Or(h.Timeout, c.Timeout, d.Timeout)
	if h.Timeout > 0 || c.Timeout == 0 {
		var cancel context.CancelFunc
		ctx, cancel = clock.WithTimeout(ctx, limit)
		defer cancel()
	}
	if c.TimeLeft > 0 {
		limit = min(limit, c.TimeLeft)
	}
	response, err := h.pool.execute(ctx, d, &execution{SQL: h, call: c, limit: limit})
	if err != nil {
		return model.Result{}, err
	}
	return model.Result{Response: response}, nil
}

// Peer returns the database that a body calls.
func (*SQL) Peer(body *expr.Value) string {
	id, _ := body.Get("database").Text()
	return id
}

// Response returns what the response has.
func (*SQL) Response(body *expr.Value) *typing.Outline {
	row, affected := typing.OfShape(datum.MapShape), typing.OfShape(datum.NumberShape)
	if expect, _ := body.Get("expect").Text(); expect == "one" {
		row.Inferred = true // null for a statement that changes a row and returns nothing
		return typing.Record(map[string]*typing.Outline{"row": row, "rows-affected": affected})
	}
	return typing.Record(map[string]*typing.Outline{"rows": {Shape: datum.ListShape, Elem: row}, "rows-affected": affected})
}

// Takes returns the longest time of an attempt.
func (*SQL) Takes(b *tree.Body) tree.Longest {
	if d, ok := b.Timeout(); ok {
		return tree.Longest{Time: d}
	}
	id, _ := b.Field("database").Text()
	if database := language.Of(b.Bundle, id); database != nil {
		return tree.Longest{Time: database.Timeout}
	}
	return tree.Longest{}
}

// CheckBody checks what the tags of [SQL] cannot express.
func (*SQL) CheckBody(b *tree.Body) {
	checkDatabase(b)
	checkStatement(b)
	b.Value.Secrets(func(v *expr.Value) {
		b.Errorf(v.Span, rules.Body, "keep it in the database", "a server logs the values of statements, so a parameter takes no secret")
	})
	if v := b.Handler.Verification(); v != nil && v.Body == b.Value {
		if reads, _ := b.Field("read-only").Literal(); reads != true {
			b.Errorf(b.Span, rules.Body, "add read-only: true", "a verification that may write would count as the call that it asks about")
		}
	}
}

func checkDatabase(b *tree.Body) {
	name := b.Field("database")
	if name == nil {
		return
	}
	id, ok := name.Text()
	if !ok {
		b.Errorf(name.Span, rules.Body, "write the id of a database", "database cannot be computed: data must not choose where statements go")
		return
	}
	if language.Of(b.Bundle, id) != nil {
		return
	}
	var known []string
	for _, d := range language.All(b.Bundle) {
		known = append(known, d.ID)
	}
	hint := "declare it below databases, with its address"
	if near := diag.Suggest(id, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	b.Errorf(name.Span, rules.Body, hint, "database %q is not declared", id)
}

// checkStatement checks the text of the statement, and that it has a parameter for each value.
func checkStatement(b *tree.Body) {
	at := b.Field("statement")
	if at == nil {
		return
	}
	text, ok := at.Text()
	if !ok {
		b.Errorf(at.Span, rules.Body, "write $1 in the text, and the value below parameters:",
			"statement cannot be computed: data in its text could change what it does")
		return
	}
	s, err := language.ParseStatement(text)
	if err != nil {
		b.Errorf(at.Span, rules.Body, "", "%v", err)
		return
	}
	given := b.Field("parameters")
	if given.Expr() != nil {
		return // the call counts them
	}
	if have := len(given.Items()); have != s.Parameters {
		place := at.Span
		if given != nil {
			place = given.Span
		}
		b.Errorf(place, rules.Body, s.Remedy(), "%v", s.Count(have))
	}
}
