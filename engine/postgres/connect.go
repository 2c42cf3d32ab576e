package postgres

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/pgkit"
)

// This file makes connections that do not hang: neither the process nor the server
// waits for the other one longer than others can do without it.

// The bounds of one statement, of a wait for a lock, of the time that a transaction
// may stand still because its process does, and of a transaction as a whole, where
// the server knows that one. A node that is stuck in the middle of a transaction
// holds locks that others need.
const (
	statementTimeout   = 15 * time.Second
	lockTimeout        = 5 * time.Second
	idleTimeout        = 3 * time.Second
	transactionTimeout = 20 * time.Second
)

// The bounds of finding out that the other end is not there any more, when nothing
// says so.
const (
	connectTimeout = 5 * time.Second
	keepIdle       = 5 * time.Second
	keepInterval   = 2 * time.Second
	keepCount      = 3
)

// prepareConfig reads an address, and finds out whether a pooler stands before the
// server.
func prepareConfig(ctx context.Context, dsn string) (config *pgxpool.Config, pooled bool, err error) {
	if config, err = pgxpool.ParseConfig(dsn); err != nil {
		return nil, false, err
	}
	c := config.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	dialer := net.Dialer{
		Timeout:         c.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount},
	}
	c.DialFunc = dialer.DialContext
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "procaas"
	}
	if pooled, err = pgkit.Pooled(ctx, c); err != nil {
		return nil, false, err
	}
	if pooled {
		// The types of statements are remembered, the statements are not.
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return config, pooled, nil
}

// sessionSettings are set by a statement, not in the start-up packet, which
// poolers refuse to pass on.
//
// Every statement of the daily work finds its few rows by an index, whatever its
// arguments are. The planner need not think about that each time, which would
// take longer than the work, and must not be misled by tables that were empty
// when it last looked. [Store.freely] is for questions of people.
const sessionSettings = `select set_config('statement_timeout', $1, false), set_config('lock_timeout', $2, false),
	set_config('idle_in_transaction_session_timeout', $3, false),
	case when current_setting('server_version_num')::int >= 170000 then set_config('transaction_timeout', $4, false) end,
	set_config('tcp_keepalives_idle', $5, false), set_config('tcp_keepalives_interval', $6, false),
	set_config('tcp_keepalives_count', $7, false), set_config('plan_cache_mode', 'force_generic_plan', false),
	set_config('enable_seqscan', 'off', false), set_config('jit', 'off', false)`

// prepareSession makes a new connection ready, and refuses the server that
// does not keep its promises: after a failover it may be another one.
func prepareSession(ctx context.Context, c *pgx.Conn, pooled, unsafe bool) error {
	if !pooled {
		args := append(timeouts(), seconds(keepIdle), seconds(keepInterval), fmt.Sprint(keepCount))
		if _, err := c.Exec(ctx, sessionSettings, args...); err != nil {
			return err
		}
	}
	if unsafe {
		return nil
	}
	have := map[string]string{}
	for _, name := range durability {
		var value string
		if err := c.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		have[name] = value
	}
	return checkDurability(have)
}

// timeouts are the first arguments of sessionSettings, and those of localSettings.
func timeouts() []any {
	return []any{
		milliseconds(statementTimeout), milliseconds(lockTimeout), milliseconds(idleTimeout), milliseconds(transactionTimeout),
	}
}

func seconds(d time.Duration) string { return fmt.Sprint(int(d.Seconds())) }

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// The settings that must not be off for an acknowledged event to survive.
var durability = []string{"fsync", "full_page_writes", "synchronous_commit"}

func checkDurability(settings map[string]string) error {
	var off []string
	for _, name := range durability {
		if settings[name] == "off" {
			off = append(off, name)
		}
	}
	if len(off) == 0 {
		return nil
	}
	return fmt.Errorf("the server may lose what it acknowledges: %s is off; set it to on, or open the store as unsafe",
		strings.Join(off, ", "))
}
