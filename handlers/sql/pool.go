package sql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"procaas/dsl/expr"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/pgkit"
	"procaas/engine/secrets"
	"procaas/handlers/sql/language"
)

// A Pool has the connections of a node to the databases of its handlers.
type Pool struct {
	o          Options
	statements *prometheus.CounterVec

	closing sync.WaitGroup

	mu  sync.Mutex             // guards the following, and the fields of connections that say so
	all map[string]*connection // by how a database is reached
}

// Options are what a pool needs of its node.
type Options struct {
	Secrets func(secrets.Use) (string, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// NewPool makes a pool without connections.
func NewPool(o Options) *Pool {
	p := &Pool{o: o, all: map[string]*connection{}, statements: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "procaas_sql_statements_total",
		Help: "Statements of handlers in databases, by outcome: applied, repeated if it was applied before, read, or failed.",
	}, []string{"database", "outcome"})}
	o.Metrics.MustRegister(p.statements)
	return p
}

// A connection has the connections to one database. They are closed when it is out of the pool and no call uses it.
type connection struct {
	*pgxpool.Pool

	// The mutex of the pool guards these.
	of      *language.Database
	users   int
	pooled  bool
	applies bool  // a call has written the table of keys
	away    error // why the last call could not connect; nil if it could
}

// execute executes a statement, and returns its response.
func (p *Pool) execute(ctx context.Context, d *language.Database, x *execution) (map[string]any, error) {
	c, err := p.take(d)
	if err != nil {
		return nil, model.Permanent(fmt.Errorf("database %s: %w", d.ID, err))
	}
	defer p.release(c)
	outcome := "read"
	response, repeated, err := x.in(ctx, p, c, d)
	switch {
	case err != nil:
		outcome = "failed"
	case repeated:
		outcome = "repeated"
	case !x.ReadOnly:
		outcome = "applied"
	}
	p.statements.WithLabelValues(d.ID, outcome).Inc()
	if err == nil {
		p.knows(c, !x.ReadOnly)
		return response, nil
	}
	err = classified(err, x.ReadOnly)
	if pgkit.IsReadOnly(err) && !x.ReadOnly {
		c.Reset() // the server is no primary any more, and all connections go there
	}
	return nil, fmt.Errorf("database %s: %w", d.ID, err)
}

// take returns the connections to a database.
func (p *Pool) take(d *language.Database) (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := d.Reached()
	c := p.all[at]
	if c == nil {
		config, err := p.configure(d)
		if err != nil {
			return nil, err
		}
		pool, err := pgxpool.NewWithConfig(context.Background(), config) // it connects for calls only
		if err != nil {
			return nil, err
		}
		c = &connection{Pool: pool, pooled: true}
		p.all[at] = c
	}
	c.of = d // the newest declaration
	c.users++
	return c, nil
}

func (p *Pool) release(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.users--
	p.closeUnused(c)
}

func (p *Pool) closeUnused(c *connection) {
	if !c.pooled && c.users == 0 {
		p.closing.Go(c.Close)
	}
}

// connectTime is the longest time to connect.
const connectTime = 5 * time.Second

// idleTime is how long a connection is kept that no call uses.
const idleTime = 5 * time.Minute

// configure returns how to connect. Nothing of it comes from the environment or the home of the node, as files of pipelines must not
// choose which of these a server gets.
func (p *Pool) configure(d *language.Database) (*pgxpool.Config, error) {
	at, _, err := d.Place()
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(at.Port, 10, 16)
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig("host=localhost sslmode=disable passfile='' target_session_attrs=any")
	if err != nil {
		return nil, err
	}
	c := config.ConnConfig
	c.Host = at.Host
	c.Port = uint16(port)
	c.Database = at.Name
	c.User = at.User
	c.Password = ""
	c.Fallbacks, c.ConnectTimeout = nil, connectTime
	c.RuntimeParams = map[string]string{"application_name": "procaas", "client_encoding": "UTF8"}
	c.RequireAuth = "!password"                    // which another server could ask for
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler may be in between, which knows no prepared statements
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // the dialer does it
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == at.HostPort() {
			return p.o.Dial(ctx, network, address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address) // to cancel, at the address of a connection
	}
	config.MaxConns, config.MinConns, config.MaxConnIdleTime = int32(d.MaxConnections), 0, idleTime
	pgkit.PauseLogins(config, func(_ context.Context, c *pgx.ConnConfig) error { return p.prove(d, c) })
	return config, nil
}

// prove sets how the node proves to a database who it is, and how it knows the database.
func (p *Pool) prove(d *language.Database, c *pgx.ConnConfig) error {
	secret := func(v *expr.Value) (text string, err error) {
		if name := v.SecretName(); name != "" {
			text, err = p.o.Secrets(secrets.Use{Name: name, To: d.ID, Owner: d.Owner})
		}
		return text, err
	}
	var err error
	if c.Password, err = secret(d.Password); err != nil || d.TLS == nil {
		return err
	}
	var pem [3]string
	for i, field := range []*expr.Value{d.TLS.CA, d.TLS.Certificate, d.TLS.Key} {
		if pem[i], err = secret(field); err != nil {
			return err
		}
	}
	if c.TLSConfig, err = outbound.TLSConfig(pem[0], pem[1], pem[2]); err != nil {
		return model.WithClass(model.ClassCredentials, err)
	}
	c.TLSConfig.ServerName, c.RequireAuth = c.Host, ""
	return nil
}

// note notes whether a call could connect.
func (p *Pool) note(c *connection, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.away = classified(err, false)
}

// knows notes whether a call has written the table of keys.
func (p *Pool) knows(c *connection, applies bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.applies = c.applies || applies
}

// Degraded returns which databases of the current definition the last calls could not reach, or nil.
func (p *Pool) Degraded() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var away []error
	for _, c := range p.all {
		if c.away != nil {
			away = append(away, fmt.Errorf("database %s: %w", c.of.ID, c.away))
		}
	}
	slices.SortFunc(away, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(away...)
}

// Close closes all connections. No call may use the pool any more.
func (p *Pool) Close() {
	p.keep(nil)
	p.closing.Wait()
}

// Keep closes the connections to databases that a definition does not declare. Runs of earlier definitions connect again.
func (p *Pool) Keep(b *tree.Bundle) {
	wanted := map[string]bool{}
	for _, d := range language.All(b) {
		wanted[d.Reached()] = true
	}
	p.keep(wanted)
}

func (p *Pool) keep(wanted map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, c := range p.all {
		if !wanted[at] {
			delete(p.all, at)
			c.pooled = false
			p.closeUnused(c)
		}
	}
}
