// Package template copies the schema of a shard into an empty database.
package template

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/handlers/sharding/preflight"
)

// Options say what to copy.
type Options struct {
	From, To string // URLs of the databases, with a role that may create roles at To
	Place    int    // of the new shard in the map, from 0, for the ranges of its sequences
}

// A Result says what was done.
type Result struct {
	Copied   bool     // the schema; false if it was there already
	Roles    []string // that were created
	Locked   []string // of these, the ones without a password, because there was none or it could not be read
	Ranges   []string // statements that gave sequences a range of the shard's own
	Rights   []string // statements that gave the database the rights and settings of the template
	Shared   []string // tables of the template that have rows and are in no publication of a map; nothing copies their rows
	Warnings []string // sequences without such a range, and rights that the role of To may not give
}

// ErrNotEmpty reports that the database has relations, and not those of the template.
var ErrNotEmpty = errors.New("the database is not empty")

// Copy copies roles, schema, and the rights and settings of the database in one transaction, so that it can be repeated
// after a crash at any point. It copies no rows, publications and subscriptions, and not the schema procaas.
func Copy(ctx context.Context, o Options) (Result, error) {
	from, err := pgx.Connect(ctx, o.From)
	if err != nil {
		return Result{}, fmt.Errorf("connect to the template: %w", err)
	}
	defer func() { _ = from.Close(context.WithoutCancel(ctx)) }()
	// Not shared: the schema changes settings of the session.
	to, err := pgx.Connect(ctx, o.To)
	if err != nil {
		return Result{}, fmt.Errorf("connect to the new shard: %w", err)
	}
	defer func() { _ = to.Close(context.WithoutCancel(ctx)) }()
	want, err := texts(ctx, from, relations)
	if err != nil {
		return Result{}, fmt.Errorf("read the template: %w", err)
	}
	if len(want) == 0 {
		return Result{}, errors.New("the template has no tables: is --from the database of another shard?")
	}
	schema, err := dump(ctx, o.From)
	if err != nil {
		return Result{}, err
	}
	var done Result
	err = pgx.BeginFunc(ctx, to, func(tx pgx.Tx) error {
		done = Result{}
		if _, err := tx.Exec(ctx, alone); err != nil {
			return err
		}
		have, err := texts(ctx, tx, relations)
		switch {
		case err != nil:
			return err
		case slices.Equal(have, want):
			return nil
		case len(have) > 0:
			return fmt.Errorf("%w: %s", ErrNotEmpty, difference(have, want))
		}
		if err := copyRoles(ctx, from, tx, &done); err != nil {
			return fmt.Errorf("copy the roles: %w", err)
		}
		if _, err := tx.Exec(ctx, schema, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("copy the schema: %w", err)
		}
		done.Copied = true
		if err := ownRanges(ctx, tx, o.Place, &done); err != nil {
			return err
		}
		return copyRights(ctx, from, tx, &done)
	})
	if err == nil {
		done.Shared, err = shared(ctx, from)
	}
	return done, err
}

// alone lets one copy after another into a database.
const alone = `select pg_advisory_xact_lock(8104928)`

// relations lists what a schema has, without what belongs to an extension or to procaas.
const relations = `select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname !~ '^pg_' and n.nspname not in ('information_schema', 'procaas') and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
		and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
	order by 1`

// difference names relations that only one side has.
func difference(have, want []string) string {
	extra := slices.DeleteFunc(slices.Clone(have), func(s string) bool { return slices.Contains(want, s) })
	lacks := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return slices.Contains(have, s) })
	var out []string
	for _, x := range []struct {
		verb  string
		names []string
	}{{"it has", extra}, {"it lacks", lacks}} {
		if len(x.names) > 0 {
			out = append(out, x.verb+" "+strings.Join(x.names[:min(3, len(x.names))], ", "))
		}
	}
	return strings.Join(out, ", and ") + "; use an empty database, or make its schema like that of the template"
}

// dump returns the schema of a database, by the program of its vendor.
func dump(ctx context.Context, dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.User == nil {
		return "", fmt.Errorf("want a URL such as postgres://admin@db1/mail for the template")
	}
	env := os.Environ()
	// Other users of the machine can read arguments.
	if password, ok := u.User.Password(); ok {
		env = append(env, "PGPASSWORD="+password)
		u.User = url.User(u.User.Username())
	}
	cmd := exec.CommandContext(ctx, "pg_dump", "--schema-only", "--no-publications", "--no-subscriptions", "--no-tablespaces",
		"--exclude-schema=procaas", "--dbname="+u.String())
	var out, failure bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &failure
	err = cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("pg_dump is not on the PATH: install the client programs of PostgreSQL, in the version of the servers or later")
	}
	if err != nil {
		return "", fmt.Errorf("pg_dump: %w: %s", err, strings.TrimSpace(failure.String()))
	}
	lines := slices.DeleteFunc(strings.Split(out.String(), "\n"), func(line string) bool {
		return strings.HasPrefix(line, `\restrict`) || strings.HasPrefix(line, `\unrestrict`) // for psql
	})
	return strings.Join(lines, "\n"), nil
}

// These read the roles that have something to do with a database, and what they are.
const (
	readRoles = `with here as (select oid from pg_database where datname = current_database())
		select distinct r.rolname::text, 'create role ' || quote_ident(r.rolname) || case when r.rolcanlogin then ' login' else '' end
			|| case when r.rolinherit then '' else ' noinherit' end || ' connection limit ' || r.rolconnlimit
		from pg_shdepend d join pg_roles r on r.oid = d.refobjid
		where d.refclassid = 'pg_authid'::regclass and r.rolname !~ '^pg_' and (d.dbid = (select oid from here)
			or d.dbid = 0 and d.classid = 'pg_database'::regclass and d.objid = (select oid from here) and d.deptype = 'a')
		order by 1`
	readPassword = `select rolpassword from pg_authid where rolname = $1`
	readMembers  = `select format('grant %I to %I', g.rolname, m.rolname) from pg_auth_members a join pg_roles g on g.oid = a.roleid
		join pg_roles m on m.oid = a.member where m.rolname = any($1) order by 1`
	knowsRole = `select exists (select from pg_roles where rolname = $1)`
)

// copyRoles creates the roles that the schema names. Those that exist stay as they are.
func copyRoles(ctx context.Context, from *pgx.Conn, to pgx.Tx, done *Result) error {
	rows, err := from.Query(ctx, readRoles)
	if err != nil {
		return err
	}
	type role struct{ Name, SQL string }
	roles, err := pgx.CollectRows(rows, pgx.RowToStructByPos[role])
	if err != nil {
		return err
	}
	for _, r := range roles {
		var known bool
		if err := to.QueryRow(ctx, knowsRole, r.Name).Scan(&known); err != nil {
			return err
		}
		if known {
			continue
		}
		var password *string
		err := from.QueryRow(ctx, readPassword, r.Name).Scan(&password)
		if refused, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || refused.Code != insufficientPrivilege) {
			return err
		}
		sql := r.SQL
		if password != nil {
			sql += " password '" + strings.ReplaceAll(*password, "'", "''") + "'"
		} else {
			done.Locked = append(done.Locked, r.Name)
		}
		if _, err := to.Exec(ctx, sql); err != nil {
			return fmt.Errorf("role %s: %w", r.Name, err)
		}
		done.Roles = append(done.Roles, r.Name)
	}
	grants, err := texts(ctx, from, readMembers, done.Roles)
	if err != nil {
		return err
	}
	for _, sql := range grants {
		if _, err := to.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

const insufficientPrivilege = "42501"

// readRights lists what pg_dump leaves out without --create: rights on the database, its settings, and those of roles in it. $1 is
// the name of the other database. Rights of the owner come with it. Settings that are lists are stored with their quotes.
const readRights = `with here as (select * from pg_database where datname = current_database()),
	rights as (select a.grantee, a.grantor, string_agg(a.privilege_type, ', ' order by a.privilege_type) as what, a.is_grantable
		from here, aclexplode(datacl) a where a.grantee <> datdba group by 1, 2, 4),
	settings as (select coalesce('role ' || quote_ident(r.rolname) || ' in ', '') as whose, split_part(x, '=', 1) as name,
			substr(x, strpos(x, '=') + 1) as value
		from here join pg_db_role_setting s on s.setdatabase = here.oid cross join unnest(s.setconfig) x left join pg_roles r on r.oid = s.setrole
		where s.setrole = 0 or r.oid is not null)
	select sql from (
		select 1, format('revoke all on database %I from public', $1::text) as sql from here where datacl is not null
		union all select 2, format('grant %s on database %I to %s%s', what, $1, coalesce(quote_ident(r.rolname), 'public'),
				case when is_grantable then ' with grant option' else '' end)
			from rights left join pg_roles r on r.oid = grantee where grantee = 0 or r.oid is not null
		union all select 3, format('alter %sdatabase %I set %I to %s', whose, $1, name,
				case when name in ('search_path', 'temp_tablespaces', 'local_preload_libraries', 'session_preload_libraries')
					then value else quote_literal(value) end)
			from settings) x order by 1`

// copyRights gives the database the rights and settings of the template.
func copyRights(ctx context.Context, from *pgx.Conn, to pgx.Tx, done *Result) error {
	var name string
	if err := to.QueryRow(ctx, "select current_database()").Scan(&name); err != nil {
		return err
	}
	rights, err := texts(ctx, from, readRights, name)
	if err != nil {
		return fmt.Errorf("read the rights of the template: %w", err)
	}
	for _, sql := range rights {
		err := pgx.BeginFunc(ctx, to, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sql); return err })
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == insufficientPrivilege {
			done.Warnings = append(done.Warnings, "this needs the owner of the database: "+sql)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		done.Rights = append(done.Rights, sql)
	}
	return nil
}

// readUnpublished lists tables that no map publishes.
const readUnpublished = `select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where n.nspname !~ '^pg_' and n.nspname not in ('information_schema', 'procaas') and c.relkind = 'r'
		and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
		and not exists (select from pg_publication_tables p
			where p.pubname like 'procaas\_%' and p.schemaname = n.nspname and p.tablename = c.relname)
	order by 1`

// shared lists the tables of the template that no map publishes and that have rows.
func shared(ctx context.Context, from *pgx.Conn) (out []string, err error) {
	names, err := texts(ctx, from, readUnpublished)
	if err != nil {
		return nil, fmt.Errorf("read the tables of the template: %w", err)
	}
	for _, name := range names {
		var filled bool
		if err := from.QueryRow(ctx, "select exists (select from "+name+")").Scan(&filled); err != nil {
			return nil, fmt.Errorf("read table %s of the template: %w", name, err)
		}
		if filled {
			out = append(out, name)
		}
	}
	return out, nil
}

// readSequences lists the sequences of columns, with the end of what their type can hold.
const readSequences = `select s.seqrelid::regclass::text, case s.seqtypid when 'smallint'::regtype then 32767
		when 'integer'::regtype then 2147483647 else 9223372036854775807 end, s.seqincrement = 1
	from pg_sequence s join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = s.seqrelid and d.deptype in ('a', 'i')
		and d.refclassid = 'pg_class'::regclass
	order by 1`

// ownRanges gives each sequence of a column the range of the shard's place. The schema has those of
// the template.
func ownRanges(ctx context.Context, tx pgx.Tx, place int, done *Result) error {
	rows, err := tx.Query(ctx, readSequences)
	if err != nil {
		return err
	}
	type sequence struct {
		Name string
		Most int64
		One  bool // its increment
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sequence])
	if err != nil {
		return err
	}
	for _, s := range found {
		sql, ok := preflight.OwnRange(s.Name, s.Most, place)
		if !ok || !s.One {
			done.Warnings = append(done.Warnings, "the sequence "+s.Name+" has the range and the increment of the template: see that no two "+
				"shards count alike")
			continue
		}
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		done.Ranges = append(done.Ranges, sql)
	}
	return nil
}

// A querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func texts(ctx context.Context, q querier, sql string, args ...any) ([]string, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
