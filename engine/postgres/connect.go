package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// This file makes connections that do not hang. Neither the process nor the server waits for the
// other too long.

// These are the timeouts of a statement, of a wait for a lock, of an idle transaction and, if the
// server supports it, of a whole transaction. A node that hangs inside a transaction holds locks
// that others need.
const (
	statementTimeout   = 15 * time.Second
	lockTimeout        = 5 * time.Second
	idleTimeout        = 3 * time.Second
	transactionTimeout = 20 * time.Second
)

// These bound the time to connect, and the time until the server detects that a process is gone
// without notice.
const (
	connectTimeout = 5 * time.Second
	keepIdle       = 5 * time.Second
	keepInterval   = 2 * time.Second
	keepCount      = 3
)

// prepareConfig parses an address, and finds out whether there is a pooler in front of the server.
func prepareConfig(ctx context.Context, dsn string) (config *pgxpool.Config, pooled bool, err error) {
	if config, err = pgkit.ParseOperators(ctx, dsn); err != nil {
		return nil, false, err
	}
	c := config.ConnConfig
	loggedIn := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, server *pgconn.PgConn) error {
		return errors.Join(loggedIn(ctx, server), checkEncoding(server))
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	pgkit.NoticeLoss(c, pgkit.LostAfter)
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "procaas"
	}
	if pooled, err = pgkit.Pooled(ctx, c); err != nil {
		return nil, false, explainStart(err)
	}
	if pooled {
		// Cache the types of statements, not the statements.
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return config, pooled, nil
}

// checkEncoding refuses a database that is not UTF-8. Such a database keeps texts that later
// statements cannot read, and refuses texts that others can keep.
func checkEncoding(server *pgconn.PgConn) error {
	have := server.ParameterStatus("server_encoding")
	if have == "" || have == "UTF8" { // some poolers do not tell
		return nil
	}
	return fmt.Errorf("the encoding of the database is %s, want UTF8: make another one by "+
		"create database NAME encoding 'UTF8' template template0, and name it in the address of the store", have)
}

// explainStart explains errors of poolers that their administrator must mend.
func explainStart(err error) error {
	code, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !isUnsupportedParameter(code) {
		return err
	}
	return fmt.Errorf("%w: PgBouncer does not pass this parameter on. Remove it from the address of the store, "+
		"and set it for the role, such as alter role NAME set search_path = SCHEMA. "+
		"ignore_startup_parameters of PgBouncer drops it, so it needs the setting of the role, too", err)
}

// sessionSettings is a statement because poolers refuse these settings in the start-up packet.
//
// Every regular statement finds its few rows by an index, whatever its arguments are. So the
// planner need not plan each call, which would take longer than the statement, and must not be
// misled by tables that were empty when they were analyzed. [database.freely] is for people's queries.
const sessionSettings = `select set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false),
	set_config('idle_in_transaction_session_timeout', $3, false),
	case when current_setting('server_version_num')::int >= 170000 then set_config('transaction_timeout', $4, false) end,
	set_config('tcp_keepalives_idle', $5, false), set_config('tcp_keepalives_interval', $6, false),
	set_config('tcp_keepalives_count', $7, false), set_config('plan_cache_mode', 'force_generic_plan', false),
	set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)`

// prepareSession prepares a new connection. It refuses a server that may lose data, because the
// server may be another one after a failover. If that server lacks what was acknowledged, nothing can
// be written through the connection. People can still read what is left. Nor can anything be written
// through a connection to a standby, whatever becomes of it: [database.mayPass] makes another one, which
// asks the server after its promotion. Each statement runs once, so it is not prepared first, which would
// take another round trip.
func prepareSession(ctx context.Context, c *pgx.Conn, acked *acknowledged, pooled, unsafe bool) error {
	pgkit.WriteArraysPlainly(c.TypeMap())
	if !pooled {
		args := append(timeouts(), seconds(keepIdle), seconds(keepInterval), fmt.Sprint(keepCount))
		if _, err := c.Exec(ctx, sessionSettings, append([]any{pgx.QueryExecModeExec}, args...)...); err != nil {
			return err
		}
	}
	server, err := acked.check(ctx, c)
	lost := errors.Is(err, store.ErrLost)
	if err != nil && !lost {
		return err
	}
	if lost {
		c.PgConn().CustomData()[ofLoss] = err
	}
	if (lost || server.standby) && !pooled { // behind a pooler, the session is not this process's own
		if _, err := c.Exec(ctx, "set default_transaction_read_only = on"); err != nil {
			return err
		}
	}
	if unsafe {
		return nil
	}
	var off []string
	if err := c.QueryRow(ctx, findUnsafe, pgx.QueryExecModeExec, durability).Scan(&off); err != nil {
		return err
	}
	if len(off) > 0 {
		return fmt.Errorf("the server may lose what it acknowledges: %s is off; set it to on in the settings of the server",
			strings.Join(off, ", "))
	}
	return nil
}

const findUnsafe = "select array(select n from unnest($1::text[]) n where current_setting(n) = 'off')"

// timeouts returns the first arguments of sessionSettings and of localSettings.
func timeouts() []any {
	return []any{
		milliseconds(statementTimeout), milliseconds(lockTimeout), milliseconds(idleTimeout), milliseconds(transactionTimeout),
	}
}

func seconds(d time.Duration) string { return fmt.Sprint(int(d.Seconds())) }

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// durability lists the settings that must not be off for an acknowledged event to survive.
var durability = []string{"fsync", "full_page_writes", "synchronous_commit"}
