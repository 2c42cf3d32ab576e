package preflight

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// oldestServer is the first version with row filters in publications.
const oldestServer = 150000

const (
	// leastSlots is how many replication slots and senders of the log a server needs at least: two for
	// a transfer, and two that are left to standbys.
	leastSlots = 4

	// freeSlots is how many of them must be free for a transfer to begin.
	freeSlots = 4
)

// byCopy says what it means that the stream cannot move a key.
const byCopy = "keys move by lock-copy-switch, and their writers wait for the copy"

// A checker collects findings.
type checker struct {
	m        Map
	facts    Facts
	findings []transfers.ShardFinding
}

// Check judges facts about a shard. It returns all findings at once, so that an operator restarts a
// server only once.
func Check(m Map, facts Facts) []transfers.ShardFinding {
	c := &checker{m: m, facts: facts}
	c.server()
	for i, t := range m.Tables {
		c.table(t, &facts.Tables[i])
	}
	c.publications()
	c.neighbours()
	return c.findings
}

// Blocks reports whether one of the findings is an error.
func Blocks(findings []transfers.ShardFinding) bool {
	return slices.ContainsFunc(findings, func(f transfers.ShardFinding) bool { return f.Level == transfers.FindingError })
}

func (c *checker) add(level, table, problem, effect, mend string) {
	c.findings = append(c.findings, transfers.ShardFinding{Level: level, Table: table, Problem: problem, Effect: effect, Mend: mend})
}

// fail adds an error, and warn a warning.
func (c *checker) fail(table, problem, effect, mend string) {
	c.add(transfers.FindingError, table, problem, effect, mend)
}

func (c *checker) warn(table, problem, effect, mend string) {
	c.add(transfers.FindingWarning, table, problem, effect, mend)
}

func (c *checker) server() {
	s := c.facts.Server
	if s.Version < oldestServer {
		c.fail("", fmt.Sprintf("the server has version %d, want 15 or later", s.Version/10000), "its publications have no row filters",
			"upgrade it")
	}
	if s.WALLevel != "logical" {
		c.warn("", fmt.Sprintf("wal_level is %s, want logical", s.WALLevel), "no stream can read the changes of a key: "+byCopy,
			"alter system set wal_level = logical, then restart the server")
	} else {
		c.stream()
	}
	if c.m.TwoPhase && s.PreparedMax == 0 {
		c.fail("", "max_prepared_transactions is 0, but the map registers in two phases", "no key could be registered",
			"alter system set max_prepared_transactions = 20, then restart the server")
	}
	if s.Dangling > 0 {
		c.warn("", fmt.Sprintf("%d prepared transactions are older than a minute", s.Dangling), "they hold up transfers",
			"commit them or roll them back")
	}
}

// stream checks what the stream of a transfer needs of the server.
func (c *checker) stream() {
	s := c.facts.Server
	for _, x := range []struct {
		setting    string
		most, used int
	}{{"max_replication_slots", s.Slots, s.SlotsInUse}, {"max_wal_senders", s.Senders, s.SendersInUse}} {
		switch {
		case x.most < leastSlots:
			c.fail("", fmt.Sprintf("%s is %d, want %d at least", x.setting, x.most, leastSlots), "a transfer would leave no room to standbys",
				fmt.Sprintf("alter system set %s = 20, then restart the server", x.setting))
		case x.most-x.used < freeSlots:
			c.warn("", fmt.Sprintf("%d of %d of %s are in use", x.used, x.most, x.setting), "a transfer waits until there is room for it",
				"finish transfers that are observed, or raise "+x.setting)
		}
	}
	if !s.Replicates {
		c.warn("", "the role of procaas has no right to replicate", "it cannot read the log: "+byCopy, "alter role … replication")
	}
}

func (c *checker) table(t Table, facts *TableFacts) {
	switch {
	case facts.Kind == "":
		c.fail(t.Name, "there is none", "no row of it could move", "create it on all shards alike, or remove it from the map")
		return
	case transfer.Oddity(facts.Kind, facts.Children) != "":
		problem, mend, _ := strings.Cut(transfer.Oddity(facts.Kind, facts.Children), ": ")
		c.fail(t.Name, "it "+problem, "no method can tell which of its rows are where", mend)
		return
	}
	if !facts.Owned {
		c.fail(t.Name, "the role of procaas does not own it", "the role cannot publish it", "alter table … owner to the role, or make the role "+
			"a member of the owner")
	}
	switch facts.Persistence {
	case "u":
		c.fail(t.Name, "it is unlogged", "its changes are not in the log that the stream reads", "alter table … set logged")
	case "t":
		c.fail(t.Name, "it is temporary", "it ends with the session that made it", "make it an ordinary table")
	}
	if facts.Hidden {
		c.fail(t.Name, "row security is active for the role of procaas", "rows that a policy hides would stay behind, so no key moves",
			"alter role … bypassrls")
	}
	c.identity(t, facts)
	c.key(t, facts)
	c.rows(t, facts)
}

// identity checks how the stream names rows. A server refuses updates and deletes of a table that a
// publication has, if it cannot name the rows or the filter needs other columns.
func (c *checker) identity(t Table, facts *TableFacts) {
	const fails = "every update and delete of the table would fail as soon as a publication has it"
	primary := facts.primary()
	switch {
	case primary == nil:
		c.warn(t.Name, "it has no primary key", "its rows cannot be told apart in the stream, so no publication has it: "+byCopy,
			"alter table … add primary key")
	case facts.Identity == "f":
	case facts.Identity != "d":
		c.fail(t.Name, "its replica identity is neither its primary key nor full", fails, "alter table … replica identity default")
	case primary.Deferrable:
		c.fail(t.Name, "its primary key is deferrable, so it cannot name rows in the stream", fails,
			fmt.Sprintf("make it not deferrable: alter table … drop constraint %s, add primary key (%s); or alter table … replica identity "+
				"full", primary.Name, strings.Join(primary.Columns, ", ")))
	}
	if primary == nil {
		return
	}
	for _, name := range primary.Columns {
		if x := facts.column(name); x.Generated && !slices.Contains(t.Key, name) {
			c.warn(t.Name, "the column "+name+" of its primary key is generated", "the stream does not carry it: "+byCopy,
				"leave it out of the primary key")
		}
	}
}

// key checks the columns with the parts of the key.
func (c *checker) key(t Table, facts *TableFacts) {
	allowed := []string{"text", "character varying"}
	if c.m.Ints {
		allowed = []string{"bigint", "integer", "smallint"}
	}
	primary := facts.primary()
	for i, name := range t.Key {
		x := facts.column(name)
		if x == nil {
			c.fail(t.Name, "it has no column "+name+", which holds a part of the key", "no row of it could be found",
				"add the column, or name its columns with key: in the map")
			continue
		}
		held := "the column " + name + ", which holds a part of the key, "
		slow := "a key with a part there moves by lock-copy-switch, and its writers wait for the copy"
		switch {
		case primary != nil && !slices.Contains(primary.Columns, name):
			c.fail(t.Name, held+"is not in its primary key", "every update and delete of the table would fail", "add it to the primary key")
		case x.Generated:
			c.fail(t.Name, held+"is generated", "the stream does not carry it, so no method moves its rows", "make it an ordinary column")
		case i == 0 && !slices.Contains(allowed, x.Type):
			c.keyType(t, x, allowed)
		case x.Collation != "":
			tell, effect := c.warn, slow
			if i == 0 && c.m.Filtered {
				tell, effect = c.fail, "publications do not filter by it"
			}
			problem := held + "has the collation " + x.Collation + ", which is not one of the server's own"
			if x.Folds {
				problem = held + "has the collation " + x.Collation + ", which takes different texts for equal"
			}
			tell(t.Name, problem, effect, `alter table … alter column … type text collate "C"`)
		case isCitext(x.Type):
			c.warn(t.Name, held+"is citext, which takes Ann and ann for equal", "they are two keys for the map: rows go with the key that "+
				"has their exact text, "+slow, fmt.Sprintf("alter table %s alter column %s type text", quoted(t.Name), quoteName(name)))
		case !transfer.Publishable(x.Type):
			c.warn(t.Name, fmt.Sprintf("publications do not filter by the column %s, which is %s", name, x.Type), slow,
				"use an integer, a uuid or text")
		}
	}
}

// keyType reports a first part of the key of a type by which publications do not filter.
func (c *checker) keyType(t Table, x *Column, allowed []string) {
	problem := fmt.Sprintf("the column %s is %s, want %s for a key of this type", x.Name, x.Type, strings.Join(allowed, " or "))
	effect := "publications do not filter by it"
	change := fmt.Sprintf("alter table %s alter column %s type ", quoted(t.Name), quoteName(x.Name))
	mend := change + allowed[0] + ", or change key-type in the map"
	text := change + "text using " + quoteName(x.Name) + "::text"
	if c.m.Ints {
		text = "make a map with key-type: text, and " + text
	}
	switch {
	case x.Base != "":
		problem += ": it is a domain over " + x.Base
		mend = change + x.Base
	case x.Type == "uuid":
		effect = "publications filter by a hash of the text, which a uuid has not, so enroll would fail"
		mend = text + "; change columns that refer to it in the same transaction, on all shards alike"
	case isCitext(x.Type):
		effect = "Ann and ann are one value for the table and two keys for the map: the same rows would be on two shards"
		mend = strings.Replace(text, quoteName(x.Name)+"::text", "lower("+quoteName(x.Name)+"::text)", 1) + ", add check (" +
			quoteName(x.Name) + " = lower(" + quoteName(x.Name) + ")); then writers and clients use the lower-case form"
	}
	c.fail(t.Name, problem, effect, mend)
}

// isCitext reports whether a type is that of the extension, in any schema.
func isCitext(typ string) bool { return typ == "citext" || strings.HasSuffix(typ, ".citext") }

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// OwnRange returns the statement that limits a sequence to numbers that no other shard has. most is
// the end of what its type can hold. Ranges go by the place of the shard, from 0. ok is false if the
// type is too small, or there is no place.
func OwnRange(sequence string, most int64, place int) (sql string, ok bool) {
	width := int64(1_000_000_000_000_000)
	if most <= math.MaxInt32 {
		width = 100_000_000
	}
	first := int64(place)*width + 1
	if place < 0 || most <= math.MaxInt16 || first+width-1 > most {
		return "", false
	}
	sql = fmt.Sprintf("alter sequence %s minvalue %d maxvalue %d", sequence, first, first+width-1)
	if place > 0 {
		sql += fmt.Sprintf(" start with %d restart", first)
	}
	return sql, true
}

// rows checks what may happen to rows that arrive on another shard.
func (c *checker) rows(t Table, facts *TableFacts) {
	for _, x := range facts.Indexes {
		shared := slices.ContainsFunc(t.Key, func(k string) bool { return slices.Contains(x.Columns, k) })
		if !shared {
			kind := "the unique index "
			switch {
			case x.Partial && x.Expression:
				kind = "the partial unique index of expressions "
			case x.Partial:
				kind = "the partial unique index "
			case x.Expression:
				kind = "the unique index of expressions "
			}
			c.warn(t.Name, kind+x.Name+" has no column of the key", "two keys may have the same value on two shards; such a key cannot move to "+
				"the other shard", "add the key's columns to the index, or make its values unique over all shards")
		}
		for _, name := range x.Columns {
			if col := facts.column(name); col != nil && col.Sequence != "" {
				mend := "make the column a bigint, and give its sequence a range of its own on each shard"
				if sql, ok := OwnRange(col.Sequence, col.Most, c.m.Place); ok {
					mend = "give its sequence a range of its own on each shard, here: " + sql
				}
				c.warn(t.Name, fmt.Sprintf("the column %s of the unique index %s counts from 1 on each shard", name, x.Name),
					"sequences do not move: a key that has moved may get a number again that it has already, and the insert fails", mend)
			}
		}
	}
	for _, name := range facts.Triggers {
		c.warn(t.Name, "the trigger "+name+" is ENABLE ALWAYS or REPLICA", "it fires again for rows that arrive or leave; if it changes them, "+
			"the two sides differ and no key moves", "alter table … enable trigger "+name)
	}
}

func (c *checker) publications() {
	for _, p := range c.facts.Publications {
		switch own := slices.Contains(c.m.Publications, p.Name); {
		case own && p.AllTables:
			c.fail("", "the publication "+p.Name+" exists for all tables", "it cannot be given the tables of the map", "drop publication "+p.Name)
		case own && !p.Owned:
			c.fail("", "the publication "+p.Name+" exists and has another owner", "it cannot be given the tables of the map",
				"alter publication … owner to the role of procaas")
		case own || len(p.Tables) == 0 || strings.HasPrefix(p.Name, "procaas_"):
		default:
			c.warn(strings.Join(p.Tables, ", "), "the publication "+p.Name+" has it, too", "its subscribers see the rows of a key that "+
				"moves as inserted on one shard, and as deleted on the other", "let the subscribers expect that, or drop the publication")
		}
	}
}

// neighbours checks the tables that the map does not list.
func (c *checker) neighbours() {
	for _, n := range c.facts.Neighbours {
		switch {
		case n.Stays && n.Kind == child:
			c.warn(n.Table, "it refers to "+n.Of+" by a foreign key, and its rows stay", "they refer to rows that are gone when their key has "+
				"moved", "drop the foreign key, or list the table under tables:")
		case n.Stays:
		case n.Kind == partition:
			c.fail(n.Table, "it is a partition of the same table as "+n.Of+", and the map does not list it",
				"its rows would stay behind when their key moves", "list it under tables:, on all shards alike, or detach it")
		case n.Kind == child:
			c.fail(n.Table, "it refers to "+n.Of+" by a foreign key, and the map does not list it",
				"its rows would stay behind, without the rows to which they refer", "list it under tables: with its columns of the key, or drop "+
					"the foreign key")
		case n.Kind == parent:
			c.warn(n.Table, "the table "+n.Of+" refers to it by a foreign key, and the map does not list it",
				"foreign keys are not checked for rows that arrive: what they refer to may be missing", "keep the same rows in it on all shards, "+
					"or list it under tables:")
		default:
			c.warn(n.Table, "it has a column of the key, and the map does not list it", "a transfer fails if it has rows of the key",
				"list it under tables:, or under stays: if its rows shall stay")
		}
	}
	for _, name := range c.facts.Missing {
		c.warn(name, "there is none, and the map says that its rows stay", "if the name is wrong, transfers fail", "correct the name, or drop it")
	}
}
