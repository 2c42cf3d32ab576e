package outbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"procaas/handlers/subscriptions/broker"
)

// defaultUser connects if the declaration has no auth.
const defaultUser = "procaas"

// configs returns how to connect to each server of a declaration. Nothing comes from the environment of the node.
func configs(c *broker.Connection) (all []*pgx.ConnConfig, err error) {
	user, password := defaultUser, ""
	if a := c.Auth; a != nil {
		user = a.Username
		if password, err = c.Secret(a.Password.Secret); err != nil {
			return nil, err
		}
	}
	tls, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	for _, server := range c.Servers {
		u, err := url.Parse(server)
		if err != nil {
			return nil, err
		}
		config, err := pgx.ParseConfig("postgres://" + u.Host + "/?sslmode=disable")
		if err != nil {
			return nil, err
		}
		config.Database, config.User, config.Password = strings.TrimPrefix(u.Path, "/"), user, password
		config.Fallbacks, config.ValidateConnect = nil, nil
		config.DialFunc = c.Dial
		config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // Dial does that, and guards it
		if tls != nil {
			config.TLSConfig = tls.Clone()
			config.TLSConfig.ServerName = config.Host
		}
		config.RuntimeParams = sessions(c.Client)
		config.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may not know prepared statements
		all = append(all, config)
	}
	return all, nil
}

// sessions returns the parameters of a session. The texts of rows must be the same in each. A pooler passes these three on.
func sessions(client string) map[string]string {
	return map[string]string{"application_name": client, "timezone": "UTC", "datestyle": "ISO"}
}

// connect opens the connections of a source to the first server that answers and is no standby.
func (s *source) connect(ctx context.Context, all []*pgx.ConnConfig) error {
	var failed error
	for _, config := range all {
		reading := config.Copy()
		reading.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { s.woken = true }
		writing := config.Copy()
		writing.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: timeout} // a statement must not wait for locks alone
		}
		err := s.connectTo(ctx, reading, writing)
		if err == nil {
			return nil
		}
		s.Close()
		failed = errors.Join(failed, fmt.Errorf("%s: %w", net.JoinHostPort(config.Host, fmt.Sprint(config.Port)), err))
	}
	return failed
}

func (s *source) connectTo(ctx context.Context, reading, writing *pgx.ConnConfig) (err error) {
	if s.reads, err = pgx.ConnectConfig(ctx, reading); err != nil {
		return err
	}
	if s.writes, err = pgx.ConnectConfig(ctx, writing); err != nil {
		return err
	}
	var standby bool
	var process uint32
	if err := s.reads.QueryRow(ctx, "select pg_is_in_recovery(), pg_backend_pid()").Scan(&standby, &process); err != nil {
		return err
	}
	if standby {
		return errors.New("it is a standby, where rows can be neither deleted nor marked")
	}
	if process != s.reads.PgConn().PID() { // behind a pooler, another client would hear
		return nil
	}
	_, err = s.reads.Exec(ctx, "listen "+Channel)
	return err
}
