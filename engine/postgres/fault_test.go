package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/pgkit"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// proxied puts a proxy before the server.
func proxied(t *testing.T, dsn string) (*enginetest.Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p, err := enginetest.StartProxy(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	through, err := p.Through(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return p, through
}

// owned returns an intake whose run begins at once.
func owned(id string) model.Intake {
	in := intake(id)
	in.Own = true
	return in
}

// The answer to a commit is lost, and the commit may be late, too. Then the
// caller's next try may come first; what must not happen is that both count.
func TestAnAmbiguousCommitIsTheCallersToFindOut(t *testing.T) {
	t.Parallel()
	p, dsn := proxied(t, enginetest.MigratedPostgres(t))
	s := open(t, dsn)
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(4) {
		id := fmt.Sprint("run-", i)
		p.LoseCommits(1, uint64(i))
		if _, err := s.Accept(t.Context(), node, []model.Intake{owned(id)}); err == nil {
			t.Fatal("want an error when the answer to the commit is lost")
		}
		p.LoseCommits(0, 0)
		results, err := s.Accept(t.Context(), node, []model.Intake{owned(id)})
		if err != nil || results[0].Run != id || results[0].Err != nil {
			t.Fatalf("want the run found or made, have %+v, %v", results, err)
		}

		step := model.Change{Run: id, Status: model.Running, Checkpoint: []byte("{}")}
		p.LoseCommits(1, uint64(i))
		if _, err := s.Commit(t.Context(), node, []model.Change{step}); err == nil {
			t.Fatal("want an error when the answer to the commit is lost")
		}
		p.LoseCommits(0, 0)
		errs, err := s.Commit(t.Context(), node, []model.Change{step})
		if err != nil || errs[0] != nil && !errors.Is(errs[0], store.ErrStale) {
			t.Fatalf("want the change written or stale, have %v, %v", errs, err)
		}
		if r, err := s.Run(t.Context(), id); err != nil || r.Version != 1 {
			t.Fatalf("want one change written, have version %d, %v", r.Version, err)
		}
	}
	if runs, _, err := s.List(t.Context(), store.RunFilter{Limit: 10}); err != nil || len(runs) != 4 || p.Lost() != 8 {
		t.Fatalf("want 4 runs and 8 lost answers, have %d and %d, %v", len(runs), p.Lost(), err)
	}
}

// The network takes in nothing more. No call has a deadline here, so only the connection ends them.
func TestACallOnADeadConnectionFailsSoon(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems only find connections lost on which nothing is sent")
	}
	p, dsn := proxied(t, enginetest.MigratedPostgres(t))
	s := open(t, dsn)
	c, err := s.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	p.Hold(time.Hour)
	big := strings.Repeat("x", 32<<20) // more than all buffers of the kernel take
	if _, err := c.Exec(t.Context(), "select length($1)", pgx.QueryExecModeSimpleProtocol, big); !pgkit.IsLoss(err) {
		t.Errorf("want the connection lost, have %v", err)
	}
	p.Hold(0)
	accept(t, s, intake("small"))
}

// An event whose sender got no answer, because the standby was away, is in the database of the
// primary only. The next try is acknowledged when the standby has the event, and not before.
func TestARepeatedEventWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	db := enginetest.OwnPostgres(t)
	s, admin := open(t, db.URL), connect(t, db.URL)
	is := func(query string, args ...any) (is bool) {
		if err := admin.QueryRow(t.Context(), query, args...).Scan(&is); err != nil {
			t.Fatal(err)
		}
		return is
	}
	// try accepts an event until it waits for the standby, which it reports, or is accepted.
	try := func(ctx context.Context, id string) (waits bool, done chan error) {
		done = make(chan error, 1)
		go func() {
			in := intake(id)
			in.Ordered = false
			_, err := s.Accept(ctx, 0, []model.Intake{in})
			done <- err
		}()
		patience.Until(t, "the event is accepted, or waits", func() bool {
			waits = is("select exists (select from pg_stat_activity where wait_event = 'SyncRep')")
			return waits || len(done) > 0
		})
		return waits, done
	}
	run(t, admin, "alter system set synchronous_standby_names = '*'")
	run(t, admin, "select pg_reload_conf()")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var id string
	var done chan error
	for i, waits := 0, false; !waits; i++ { // the server takes a moment to learn of its standby
		id = fmt.Sprint("e", i)
		waits, done = try(ctx, id)
	}
	leave()
	if err := <-done; err == nil {
		t.Fatal("want no answer while the standby is away")
	}
	patience.Until(t, "the server gives up to wait", func() bool { return is("select exists (select from events where id = $1)", id) })
	waits, done := try(t.Context(), id)
	if !waits {
		t.Errorf("want the repeated event to wait for the standby, have it accepted: %v", <-done)
	}
	run(t, admin, "alter system reset synchronous_standby_names")
	run(t, admin, "select pg_reload_conf()")
	if waits {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestConnectionsThatTheServerEndedAreReplaced(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	admin := connect(t, dsn)
	s := open(t, with(t, dsn, "application_name", t.Name()))
	for _, id := range []string{"a", "b", "c"} {
		accept(t, s, intake(id))
		var ended int
		if err := admin.QueryRow(t.Context(), `select count(*) filter (where pg_terminate_backend(pid))
			from pg_stat_activity where application_name = $1`, t.Name()).Scan(&ended); err != nil || ended == 0 {
			t.Fatalf("ended %d connections, %v", ended, err)
		}
	}
}

// dead makes a node whose lease is over at once, and which owns a run.
func dead(t *testing.T, s *postgres.Store, run string) int64 {
	t.Helper()
	node, err := s.Join(t.Context(), "zombie", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(t.Context(), node, []model.Intake{owned(run)}); err != nil {
		t.Fatal(err)
	}
	return node
}

// beatUntilReady beats until runs are ready.
func beatUntilReady(t *testing.T, s *postgres.Store, node int64) {
	t.Helper()
	patience.Until(t, "the takeover", func() bool {
		b, err := s.Beat(t.Context(), node, time.Hour, "")
		if err != nil {
			t.Fatalf("want the takeover, have %+v, %v", b, err)
		}
		return b.Ready > 0
	})
}

// What a commit of a node holds, while the network holds the rest of it.
const lockOfCommit = "select pg_advisory_xact_lock_shared(('nodes'::regclass::oid::bigint - 2147483648)::int, ($1::bigint & " +
	"2147483647)::int)"

// A node that is just writing is not taken over: either its commit comes first,
// or it finds itself fenced.
func TestATakeoverWaitsForACommitUnderWay(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	s := open(t, dsn)
	zombie := dead(t, s, "a")
	live := join(t, s)
	c := connect(t, dsn)
	began := time.Now() // before the transaction: it is never older than that
	run(t, c, "begin")
	run(t, c, lockOfCommit, zombie)
	for {
		b, err := s.Beat(t.Context(), live, time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > 700*time.Millisecond {
			break // soon it is too old to be waited for
		}
		if b.Ready > 0 {
			t.Fatalf("want no takeover while the zombie writes, have %+v", b)
		}
	}
	_, _ = c.Exec(t.Context(), "commit") // on a busy machine it may have been ended already
	beatUntilReady(t, s, live)
	_, err := s.Commit(t.Context(), zombie, []model.Change{{Run: "a", Status: model.Succeeded}})
	if !errors.Is(err, store.ErrFenced) {
		t.Fatalf("want the zombie fenced, have %v", err)
	}
}

// A dead node whose transaction is stuck does not keep its runs: when the network
// holds the end of what the node has sent, and when the process pauses
// between two parts.
func TestATakeoverEndsTransactionsThatAreStuck(t *testing.T) {
	t.Parallel()
	for name, stick := range map[string]func(t *testing.T, c *pgx.Conn, node int64){
		"in what was sent together": func(t *testing.T, c *pgx.Conn, node int64) {
			p := c.PgConn().StartPipeline(t.Context())
			p.SendQueryParams("begin", nil, nil, nil, nil)
			p.SendQueryParams(strings.Replace(lockOfCommit, "$1", fmt.Sprint(node), 1), nil, nil, nil, nil)
			p.SendQueryParams("select from runs for update", nil, nil, nil, nil)
			p.SendFlushRequest() // and no sync: the server waits for more
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				r, err := p.GetResults()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.(*pgconn.ResultReader).Close(); err != nil {
					t.Fatal(err)
				}
			}
		},
		"between two parts": func(t *testing.T, c *pgx.Conn, node int64) {
			run(t, c, "begin")
			run(t, c, lockOfCommit, node)
			run(t, c, "select from runs for update")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := enginetest.MigratedPostgres(t)
			s := open(t, dsn)
			zombie := dead(t, s, "a")
			live := join(t, s)
			c, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.PgConn().Conn().Close() })
			stick(t, c, zombie)
			beatUntilReady(t, s, live)
			runs, err := s.Claim(t.Context(), live, 10, "")
			if err != nil || len(runs) != 1 {
				t.Fatalf("want the run, have %+v, %v", runs, err)
			}
		})
	}
}
