package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Plans checks how PostgreSQL would run a store's statements with the most misleading statistics:
// those of a quiet moment, when the tables of unfinished work were empty. If a planner expects one
// row, reading the whole table costs as much as an index lookup. The plan stays until the next
// analysis, which may be a minute and a million rows away. So no regular statement may have a plan
// that reads a whole table. [Plans.Check] reports those that do.
//
// The zero value with Tables set is ready to use.
type Plans struct {
	Tables  []string          // tables that may become large, with their partitions
	Allowed map[string]string // prefixes of statements that may read a whole table → why they may
	Small   []string          // indexes with few rows, however large their tables are

	mu     sync.Mutex        // guards the following
	seen   map[string]bool   // statements
	faults map[string]string // statement → what is wrong with its plan
}

// A prepared is a prepared statement from pg_prepared_statements.
type prepared struct {
	Name, Text string
	Types      []string // of its arguments
}

const (
	findPrepared = `select name, statement, parameter_types::text[] from pg_prepared_statements
	where statement ~* '^\s*(select|insert|update|delete|with)'`
	emptied = "delete from %s"
)

// Read checks the statements that the connections of a store have prepared so far. It empties the
// tables, so call it at the end of a test. It ignores statements that begin with a comment, because
// those are planned anew for people.
func (p *Plans) Read(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	idle := pool.AcquireAllIdle(ctx)
	defer func() {
		for _, c := range idle {
			c.Release()
		}
	}()
	misled := false
	for _, c := range idle {
		all, err := p.unseen(ctx, c)
		if err == nil && len(all) > 0 && !misled {
			err = p.mislead(ctx, c) // makes all connections plan again
			misled = true
		}
		for _, s := range all {
			if err == nil {
				err = p.explain(ctx, c, s)
			}
		}
		if err != nil {
			t.Errorf("plans: %v", err)
			return
		}
	}
}

// mislead makes the server believe that the tables are empty.
func (p *Plans) mislead(ctx context.Context, c *pgxpool.Conn) error {
	for _, table := range p.Tables {
		if _, err := c.Exec(ctx, fmt.Sprintf(emptied, table)); err != nil {
			return err
		}
	}
	_, err := c.Exec(ctx, "analyze "+strings.Join(p.Tables, ", "))
	return err
}

// unseen lists the statements of a connection that were not checked yet.
func (p *Plans) unseen(ctx context.Context, c *pgxpool.Conn) ([]prepared, error) {
	rows, err := c.Query(ctx, findPrepared, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prepared])
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen, p.faults = map[string]bool{}, map[string]string{}
	}
	return slices.DeleteFunc(all, func(s prepared) bool {
		known := p.seen[s.Text]
		p.seen[s.Text] = true
		return known
	}), err
}

// explain checks the generic plan.
func (p *Plans) explain(ctx context.Context, c *pgxpool.Conn, s prepared) error {
	for begin := range p.Allowed {
		if strings.HasPrefix(strings.TrimSpace(s.Text), begin) {
			return nil
		}
	}
	args := ""
	if n := len(s.Types); n > 0 {
		args = "(null" + strings.Repeat(", null", n-1) + ")"
	}
	var text string
	err := c.QueryRow(ctx, "explain (format json) execute "+pgx.Identifier{s.Name}.Sanitize()+args,
		pgx.QueryExecModeSimpleProtocol).Scan(&text)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Text, err)
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return err
	}
	for _, plan := range plans {
		if fault := p.fault(&plan.Plan, false); fault != "" {
			p.mu.Lock()
			p.faults[s.Text] = fault
			p.mu.Unlock()
		}
	}
	return nil
}

// A planNode has the needed parts of a plan.
type planNode struct {
	Kind   string `json:"Node Type"`
	Table  string `json:"Relation Name"`
	Index  string `json:"Index Name"`
	Cond   string `json:"Index Cond"`
	Place  string `json:"TID Cond"`
	Filter string
	Plans  []planNode
}

// fault returns which part of a plan reads a whole table. A part below a limit without a filter
// reads only as many rows as it returns.
func (p *Plans) fault(n *planNode, limited bool) string {
	for i := range n.Plans {
		below := n.Kind == "Limit" || limited && (n.Kind == "LockRows" || n.Kind == "Result")
		if fault := p.fault(&n.Plans[i], below); fault != "" {
			return fault
		}
	}
	reads := strings.HasSuffix(n.Kind, "Scan") && n.Kind != "Bitmap Heap Scan" && n.Kind != "Sample Scan" && n.Cond == "" && n.Place == ""
	large := slices.ContainsFunc(p.Tables, func(t string) bool { return n.Table == t || strings.HasPrefix(n.Table, t+"_2") })
	if !reads || !large || limited && n.Filter == "" || slices.Contains(p.Small, n.Index) {
		return ""
	}
	return strings.TrimSpace(n.Kind + " of " + n.Table + " " + n.Index)
}

// Check fails a test for each statement whose plan reads a whole table, and if there was no
// statement.
func (p *Plans) Check(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) == 0 {
		t.Error("plans: want the statements of the store, have seen none")
	}
	for text, fault := range p.faults {
		t.Errorf("with statistics of empty tables, a statement reads a whole table (%s); join by = any (array[…]), "+
			"look up in a lateral query, or order by an expression:\n%s", fault, text)
	}
}
