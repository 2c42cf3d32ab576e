package pgkit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// These bound how often a password that the server has refused is tried again.
const (
	firstLogin = 250 * time.Millisecond
	maxLogin   = 5 * time.Second
)

// logins prepares the logins of a pool. Passwords change while a process runs, and each try with a
// wrong one costs the server a process, and may lock the account.
type logins struct {
	dsn   string
	fetch func(context.Context, *pgconn.Config) error // sets the password; nil leaves it

	mu       sync.Mutex    // guards the following
	password string        // the last one that was tried
	refused  error         // why the last login was refused; nil after a success
	pause    time.Duration // after that
	next     time.Time     // when the refused password may be tried again
}

// KeepLoggedIn makes each new connection of a pool read its address again: the password file, the
// service file, certificates and the environment. It pauses between logins that the server refuses,
// unless the password has changed.
func KeepLoggedIn(config *pgxpool.Config, dsn string) { keepLoggedIn(config, dsn, nil) }

func keepLoggedIn(config *pgxpool.Config, dsn string, fetch func(context.Context, *pgconn.Config) error) {
	l := &logins{dsn: dsn, fetch: fetch}
	l.watch(config, l.before)
}

// PauseLogins lets a function complete the configuration of each new connection of a pool: its password, and certificates. Between
// logins that the server refuses are pauses, unless the password has changed.
func PauseLogins(config *pgxpool.Config, complete func(context.Context, *pgx.ConnConfig) error) {
	l := &logins{}
	l.watch(config, func(ctx context.Context, c *pgx.ConnConfig) error {
		if err := complete(ctx, c); err != nil {
			return err
		}
		return l.may(c.Password, time.Now())
	})
}

func (l *logins) watch(config *pgxpool.Config, before func(context.Context, *pgx.ConnConfig) error) {
	config.BeforeConnect = before
	config.ConnConfig.OnPgError = l.onError
	config.ConnConfig.AfterConnect = func(context.Context, *pgconn.PgConn) error { l.succeeded(); return nil }
}

// before implements BeforeConnect of a pool.
func (l *logins) before(ctx context.Context, c *pgx.ConnConfig) error {
	fresh, err := pgx.ParseConfig(l.dsn)
	if err == nil && l.fetch != nil {
		err = l.fetch(ctx, &fresh.Config)
	}
	if err != nil {
		return err
	}
	c.Host, c.Port = fresh.Host, fresh.Port
	c.User, c.Password = fresh.User, fresh.Password
	c.TLSConfig, c.Fallbacks = fresh.TLSConfig, fresh.Fallbacks
	return l.may(c.Password, time.Now())
}

// may returns an error if a password may not be tried yet.
func (l *logins) may(password string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != nil && password == l.password && now.Before(l.next) {
		return fmt.Errorf("the server refused the login, trying again in %s: %w", l.next.Sub(now).Round(time.Millisecond), l.refused)
	}
	l.password = password
	return nil
}

// onError notes refused logins. Its result is that of pgx's own handler.
func (l *logins) onError(_ *pgconn.PgConn, e *pgconn.PgError) (keep bool) {
	if strings.HasPrefix(e.Code, "28") { // invalid authorization
		l.failed(e, time.Now())
	}
	return !strings.EqualFold(e.Severity, "FATAL")
}

func (l *logins) failed(why error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != nil && now.Before(l.next) {
		return // it was tried at the same time
	}
	l.refused, l.pause = why, min(max(2*l.pause, firstLogin), maxLogin)
	l.next = now.Add(l.pause)
}

func (l *logins) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused, l.pause = nil, 0
}
