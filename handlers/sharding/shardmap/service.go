package shardmap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/engine/outbound"
	"procaas/engine/pgkit"
	"procaas/engine/secrets"
	"procaas/engine/store"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/transfer"
	"procaas/handlers/sharding/transfers"
)

// Options configures a [Service].
type Options struct {
	// DSN is the PostgreSQL database of the store, which has the map's tables.
	DSN string

	// Maps are the declared maps.
	Maps []*language.ShardMap

	// Secret looks up secrets. Nil knows none.
	Secret func(secrets.Use) (string, error)

	// Targets limits the hosts of shards to connect to. Nil allows all.
	Targets *outbound.Targets

	// HTTP is the client for registration checks. Nil means [http.DefaultClient].
	HTTP *http.Client

	// Patience bounds connecting to a shard and reading a placement. Registrations, which do both,
	// have a second more. 0 means [DefaultPatience].
	Patience time.Duration

	// Prober looks at hosts. Nil uses connections to them.
	Prober Prober

	// Audit records a change in the transaction of the change, as its last statement. Nil records
	// nothing.
	Audit func(ctx context.Context, tx pgx.Tx, a store.Audited) error

	// Transfers lists the transfers of a map, including ended ones. Nil knows none.
	Transfers func(ctx context.Context, shardMap string) ([]transfers.ShardTransfer, error)

	// Log logs changes of hosts and errors. Nil logs nothing.
	Log *slog.Logger
}

// A Service has the shard maps of one process.
type Service struct {
	o    Options
	pool *pgxpool.Pool
	log  *slog.Logger
	tell chan struct{} // a placement was changed
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.RWMutex // guards the following
	maps   map[string]*Map
	again  chan struct{}            // closed when maps are replaced
	pools  map[string]*pgxpool.Pool // of the hosts of shards, by DSN
	closed bool
}

// mapConns bounds the connections to the database of the maps.
const mapConns = 8

// Open connects to the database of the maps, whose schema must be current, and stores the declared
// maps. Without maps it waits for [Service.Apply], and does not connect.
func Open(ctx context.Context, o Options) (*Service, error) {
	config, err := pgkit.ParseOperators(ctx, o.DSN)
	if err != nil {
		return nil, fmt.Errorf("shard maps: %w", err)
	}
	pgkit.NoticeLoss(config.ConnConfig, pgkit.LostAfter)
	pgkit.OnlyPrimary(config.ConnConfig)
	if !strings.Contains(o.DSN, "pool_max_conns") {
		config.MaxConns = mapConns
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("shard maps: %w", err)
	}
	s := &Service{
		o: o, pool: pool, log: o.Log, maps: map[string]*Map{}, pools: map[string]*pgxpool.Pool{}, tell: make(chan struct{}, 1),
		again: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.o.HTTP == nil {
		s.o.HTTP = http.DefaultClient
	}
	if len(o.Maps) > 0 {
		if err := s.Apply(ctx, o.Maps); err != nil {
			pool.Close()
			return nil, fmt.Errorf("shard maps: %w", err)
		}
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.work.Go(func() { s.notify(background) })
	s.work.Go(func() { s.follow(background) })
	s.work.Go(func() { s.watchHosts(background) })
	s.work.Go(func() { s.noteActive(background) })
	return s, nil
}

// watchHosts looks at the hosts of all maps until ctx ends.
func (s *Service) watchHosts(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.RLock()
		again := s.again
		s.mu.RUnlock()
		part, cancel := context.WithCancel(ctx)
		prober := s.o.Prober
		if prober == nil {
			prober = newConnProber()
		}
		var running sync.WaitGroup
		running.Go(func() {
			newPoller(s.Maps(), prober, func(m *Map, x *shard, v *view) { s.seen(ctx, m, x, v) }).run(part)
		})
		select {
		case <-ctx.Done():
		case <-again:
		}
		cancel()
		running.Wait()
		prober.Close()
	}
}

// seen acts on a look at a host: a promoted master accepts no writes before its fences were
// compared, and a key must not be frozen for too long.
func (s *Service) seen(ctx context.Context, m *Map, x *shard, v *view) {
	if v.master < 0 {
		return
	}
	if v.hosts[v.master].last.Overdue && x.thawing.CompareAndSwap(false, true) {
		s.work.Go(func() {
			defer x.thawing.Store(false)
			if _, err := s.Thaw(ctx, m, x.declared.ID); err != nil && ctx.Err() == nil {
				s.log.Warn("keys that were frozen for too long cannot be thawed", "map", m.ID, "shard", x.declared.ID, "error", err)
			}
		})
	}
	if v.hosts[v.master].last.Compared || !x.comparing.CompareAndSwap(false, true) {
		return
	}
	s.work.Go(func() {
		defer x.comparing.Store(false)
		ctx, cancel := context.WithTimeout(ctx, comparePatience)
		defer cancel()
		if err := s.Compare(ctx, m, x.declared.ID); err != nil && ctx.Err() == nil {
			s.log.Warn("the fences of a promoted master could not be compared, it takes no writes", "map", m.ID, "shard", x.declared.ID, "error",
				err)
		}
	})
}

// comparePatience bounds one attempt to compare fences.
const comparePatience = 10 * time.Minute

// Close ends background work, and closes the connections.
func (s *Service) Close() {
	s.stop()
	s.work.Wait()
	s.mu.Lock()
	s.closed = true
	pools := slices.Collect(maps.Values(s.pools))
	s.mu.Unlock()
	for _, p := range pools {
		p.Close()
	}
	s.pool.Close()
}

// Map returns a map by its id.
func (s *Service) Map(id string) (*Map, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if m := s.maps[id]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownMap, id)
}

// Maps lists all maps, ordered by id.
func (s *Service) Maps() []*Map {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.maps), func(a, b *Map) int { return strings.Compare(a.ID, b.ID) })
}

const notifyChange = `select pg_notify('procaas shards ' || current_schema, '')`

// changed notifies all processes soon that a placement has changed.
func (s *Service) changed() {
	select {
	case s.tell <- struct{}{}:
	default: // a notification is pending
	}
}

// notify sends notifications of changes, outside of the transactions of the changes, because
// PostgreSQL serializes the commits of transactions that notify. A process that misses one polls
// each second.
func (s *Service) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tell:
		}
		if _, err := s.pool.Exec(ctx, notifyChange); err != nil && ctx.Err() == nil {
			s.log.Warn("a change of shard maps could not be told", "error", err)
		}
	}
}

// DSN returns the connection string for clients to hosts of a shard, in the order to try them. With
// empty attrs any host will do. See target_session_attrs of libpq.
func (m *Map) DSN(hosts []string, attrs string) string {
	return m.dsn(hosts, attrs, nil)
}

func (m *Map) dsn(hosts []string, attrs string, user *url.Userinfo) string {
	c := m.connect()
	if user == nil && c.User != "" {
		user = url.User(c.User)
	}
	u := url.URL{Scheme: "postgres", User: user, Host: strings.Join(hosts, ","), Path: "/" + c.Database}
	q := url.Values{}
	for name, value := range c.Parameters {
		q.Set(name, value)
	}
	if attrs != "" {
		q.Set("target_session_attrs", attrs)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// connect returns how to connect to hosts.
func (m *Map) connect() language.ShardConnect {
	if m.Declared.Connect == nil {
		return language.ShardConnect{Database: "postgres"}
	}
	return *m.Declared.Connect
}

// AdminDSN returns procaas' own connection string to hosts of a shard.
func (m *Map) AdminDSN(hosts []string, attrs string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), DefaultPatience)
	defer cancel()
	for _, host := range hosts {
		if err := m.service.o.Targets.Allow(ctx, host); err != nil {
			return "", fmt.Errorf("map %s: %w", m.ID, err)
		}
	}
	c := m.connect()
	name := c.Admin
	if name == "" {
		name = c.User
	}
	var user *url.Userinfo
	if name != "" {
		user = url.User(name)
	}
	if c.Secret != "" {
		if m.service.o.Secret == nil {
			return "", fmt.Errorf("map %s: secret %s: no secrets here", m.ID, c.Secret)
		}
		password, err := m.service.o.Secret(secrets.Use{Name: c.Secret, To: m.ID, Owner: m.Declared.Owner})
		if err != nil {
			return "", fmt.Errorf("map %s: secret %s: %w", m.ID, c.Secret, err)
		}
		user = url.UserPassword(name, password)
	}
	return m.dsn(hosts, attrs, user), nil
}

// Hosts lists the declared addresses of a shard's hosts.
func (m *Map) Hosts(shard string) ([]string, error) {
	s := m.Declared.Shard(shard)
	if s == nil {
		return nil, fmt.Errorf("map %s: %w %q", m.ID, ErrUnknownShard, shard)
	}
	var out []string
	for _, h := range s.Hosts {
		out = append(out, h.Full())
	}
	return out, nil
}

// shardConns bounds this process's connections to one shard, except those of transfers that stream.
const shardConns = 8

// Connect returns connections to the master of a shard. They are shared: do not close them.
func (s *Service) Connect(ctx context.Context, m *Map, shard string) (*pgxpool.Pool, error) {
	hosts, err := m.Hosts(shard)
	if err != nil {
		return nil, err
	}
	dsn, err := m.AdminDSN(hosts, "read-write")
	if err != nil {
		return nil, err
	}
	return s.connect(ctx, dsn, shardConns)
}

// shardLostAfter is how long a shard may be silent. A server that takes in a part may read nothing
// for seconds.
const shardLostAfter = 15 * time.Second

func (s *Service) connect(ctx context.Context, dsn string, conns int32) (*pgxpool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("shard maps: closed")
	}
	if p := s.pools[dsn]; p != nil {
		return p, nil
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to shard: %w", err)
	}
	pgkit.KeepLoggedIn(config, dsn)
	pgkit.NoticeLoss(config.ConnConfig, shardLostAfter)
	config.MaxConns = conns
	maps.Copy(config.ConnConfig.RuntimeParams, transfer.Texts)
	config.ConnConfig.RuntimeParams["application_name"] = "procaas"
	// Override the server's default for the role. If the role is called procaas, like the schema of
	// the fences, tables without a schema would be created there. The tables of a map are in
	// public, unless it says otherwise.
	if config.ConnConfig.RuntimeParams["search_path"] == "" {
		config.ConnConfig.RuntimeParams["search_path"] = "public"
	}
	config.ConnConfig.ConnectTimeout = s.patience()
	p, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to shard: %w", err)
	}
	s.pools[dsn] = p
	return p, nil
}

// DefaultPatience bounds connecting to a shard.
const DefaultPatience = 5 * time.Second

func (s *Service) patience() time.Duration {
	if s.o.Patience > 0 {
		return s.o.Patience
	}
	return DefaultPatience
}
