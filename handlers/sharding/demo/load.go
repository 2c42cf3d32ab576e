package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/clock"
	"procaas/handlers/sharding/client"
)

const mapID = "mail"

// mapFile is the shard map. New users get a place on s1.
func mapFile(shards []string) diag.File {
	return diag.File{Name: "map.yaml", Data: fmt.Appendf(nil, `shard-maps:
  - id: %s
    key: user
    key-type: int
    tables: [{table: letters, key: user_id}]
    connect: {database: postgres, user: postgres, parameters: {sslmode: disable}}
    registration: {rules: [{shards: [s1]}]}
    shards: [{id: s1, hosts: [{address: %q}]}, {id: s2, hosts: [{address: %q}]}]
`, mapID, hostOf(shards[0]), hostOf(shards[1]))}
}

func hostOf(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(u.Hostname(), u.Port())
}

// prepare makes the tables of the shards, and a database for the store on the first server.
func prepare(ctx context.Context, shards []string, users int) (store string, err error) {
	for i, dsn := range shards {
		c, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return "", err
		}
		_, err = c.Exec(ctx, "create table letters (user_id bigint, id bigint, body text, primary key (user_id, id))")
		if err == nil && i == 0 {
			_, err = c.Exec(ctx, "insert into letters select u, -n, repeat('x', 200) from generate_series(1, $1::int) u, generate_series(1, $2::int) n",
				users, letters)
		}
		if err == nil && i == 0 {
			_, err = c.Exec(ctx, "create database procaas")
		}
		if err = errors.Join(err, c.Close(ctx)); err != nil {
			return "", fmt.Errorf("prepare shard s%d: %w", i+1, err)
		}
	}
	u, err := url.Parse(shards[0])
	if err != nil {
		return "", err
	}
	u.Path = "/procaas"
	return u.String(), nil
}

// A load writes letters to users as a service does: it asks where a user lives, and calls the guard.
type load struct {
	show   *show
	shards *client.Client

	mu      sync.Mutex               // guards the following fields
	pools   map[string]*pgxpool.Pool // by the address of a shard
	acked   map[[2]int64]bool        // user and id of each letter that was acknowledged
	failed  int
	failure string // the first one
	slowest time.Duration
	told    time.Time // when the state was printed
	before  int       // letters at that time
}

func newLoad(d *show) *load {
	return &load{
		show: d, shards: client.New(d.server, d.Token, mapID), pools: map[string]*pgxpool.Pool{}, acked: map[[2]int64]bool{}, told: time.Now(),
	}
}

// writers is the highest number of letters that are being written.
const writers = 16

// run writes at the rate until ctx ends, and waits for what is under way.
func (l *load) run(ctx context.Context) {
	going, stop := context.WithCancel(ctx)
	defer stop()
	go l.shards.Watch(going)
	due := make(chan int64)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for id := range due {
				l.write(context.WithoutCancel(ctx), rand.N(l.show.Users), id)
			}
		})
	}
	defer all.Wait()
	defer close(due)
	const tick = 20 * time.Millisecond
	owed := 0.0
	for id := int64(1); clock.Pause(ctx, tick); {
		for owed += l.show.Rate * tick.Seconds(); owed >= 1; owed-- {
			select {
			case due <- id:
				id++
			case <-ctx.Done():
				return
			}
		}
	}
}

func keyOf(user int) string { return strconv.Itoa(user + 1) }

func question(user int) client.Question { return client.Question{Key: keyOf(user)} }

// giveUp is how long a writer tries to write a letter. It may do so again after any error, for the letter has an id.
const giveUp = time.Minute

// write writes one letter.
func (l *load) write(ctx context.Context, user int, id int64) {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	began := time.Now()
	err := l.try(ctx, user, id)
	for err != nil && clock.Pause(ctx, 100*time.Millisecond) {
		err = l.try(ctx, user, id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed++
		l.failure = cmp.Or(l.failure, err.Error())
		return
	}
	l.acked[[2]int64{int64(user + 1), id}] = true
	l.slowest = max(l.slowest, time.Since(began))
}

// try writes a letter, unless it is there.
func (l *load) try(ctx context.Context, user int, id int64) error {
	return l.shards.Do(ctx, question(user), func(ctx context.Context, at client.Answer) error {
		pool, err := l.pool(ctx, at.DSN)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "select procaas.guard($1, $2, $3)", at.Map, at.Placement, at.Epoch); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "insert into letters values ($1, $2, 'new') on conflict do nothing", user+1, id)
			return err
		})
	})
}

// pool returns the connections to a shard.
func (l *load) pool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pools[dsn]; p != nil {
		return p, nil
	}
	p, err := pgxpool.New(ctx, dsn)
	if err == nil {
		l.pools[dsn] = p
	}
	return p, err
}

func (l *load) close() {
	for _, p := range l.pools {
		p.Close()
	}
}

// written returns how many letters were acknowledged.
func (l *load) written() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// report prints every second how the moves go.
func (l *load) report(moved int64, running int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since := time.Since(l.told)
	if since < time.Second {
		return
	}
	l.show.say("%d of %d users are on s2, %d are moving; %.0f writes/s, the slowest took %d ms, %d failed",
		moved, l.show.Users, running, float64(len(l.acked)-l.before)/since.Seconds(), l.slowest.Milliseconds(), l.failed)
	l.told, l.before = time.Now(), len(l.acked)
}

// A summary is what the demo has shown.
type summary struct {
	Moved   int    `json:"moved"` // users with all their letters on s2
	Users   int    `json:"users"`
	Writes  int    `json:"writes"` // that were acknowledged
	Failed  int    `json:"failed"`
	Lost    int    `json:"lost"`    // acknowledged letters that are nowhere
	Doubled int    `json:"doubled"` // letters that are on both shards
	Slowest int64  `json:"slowest_ms"`
	Failure string `json:"failure,omitempty"` // the first one
}

// count compares what was acknowledged with what the shards have.
func (l *load) count(ctx context.Context, shards []string) (summary, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := summary{Users: l.show.Users, Writes: len(l.acked), Failed: l.failed, Slowest: l.slowest.Milliseconds(), Failure: l.failure}
	found := map[[2]int64]int{}
	home := map[int64]int{}
	for i, dsn := range shards {
		c, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return sum, err
		}
		rows, _ := c.Query(ctx, "select user_id, id from letters") // errors are those of the rows
		var letter [2]int64
		_, err = pgx.ForEachRow(rows, []any{&letter[0], &letter[1]}, func() error {
			found[letter]++
			home[letter[0]] |= 1 << i
			return nil
		})
		if err = errors.Join(err, c.Close(ctx)); err != nil {
			return sum, fmt.Errorf("count the letters of s%d: %w", i+1, err)
		}
	}
	for letter := range l.acked {
		if found[letter] == 0 {
			sum.Lost++
		}
	}
	for user := range int64(sum.Users) {
		for n := range int64(letters) {
			if found[[2]int64{user + 1, -n - 1}] == 0 {
				sum.Lost++
			}
		}
		if home[user+1] == 2 {
			sum.Moved++
		}
	}
	for _, times := range found {
		if times > 1 {
			sum.Doubled++
		}
	}
	return sum, nil
}

func (s *summary) print(to cli.Streams, format string) error {
	var err error
	if format == "json" {
		err = to.PrintJSON(s)
	} else {
		err = to.Printf("%d of %d users moved. Of their letters, with %d new ones, %d are lost and %d are double. %d writes failed, the slowest "+
			"took %d ms\n", s.Moved, s.Users, s.Writes, s.Lost, s.Doubled, s.Failed, s.Slowest)
		if err == nil && s.Failure != "" {
			fmt.Fprintln(to.Err, "the first failure:", s.Failure)
		}
	}
	return cmp.Or(err, cli.FindingsIf(s.Moved < s.Users || s.Lost+s.Doubled+s.Failed > 0))
}
