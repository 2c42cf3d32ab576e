package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
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

// owned gives an intake whose run begins at once.
func owned(id string) engine.Intake {
	in := intake(id)
	in.Own = true
	return in
}

// The answer to a commit is lost, and the commit may be late, too. Then the
// caller's next try may come first; what must not happen is that both count.
func TestAnAmbiguousCommitIsTheCallersToFindOut(t *testing.T) {
	t.Parallel()
	p, dsn := proxied(t, enginetest.Postgres(t))
	s := open(t, dsn)
	node, err := s.Join(t.Context(), "n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(4) {
		id := fmt.Sprint("run-", i)
		p.LoseCommits(1, uint64(i))
		if _, err := s.Accept(t.Context(), node, []engine.Intake{owned(id)}); err == nil {
			t.Fatal("want an error when the answer to the commit is lost")
		}
		p.LoseCommits(0, 0)
		results, err := s.Accept(t.Context(), node, []engine.Intake{owned(id)})
		if err != nil || results[0].Run != id || results[0].Err != nil {
			t.Fatalf("want the run found or made, have %+v, %v", results, err)
		}

		step := engine.Change{Run: id, Status: engine.Running, Checkpoint: []byte("{}")}
		p.LoseCommits(1, uint64(i))
		if _, err := s.Commit(t.Context(), node, []engine.Change{step}); err == nil {
			t.Fatal("want an error when the answer to the commit is lost")
		}
		p.LoseCommits(0, 0)
		errs, err := s.Commit(t.Context(), node, []engine.Change{step})
		if err != nil || errs[0] != nil && !errors.Is(errs[0], engine.ErrStale) {
			t.Fatalf("want the change written or stale, have %v, %v", errs, err)
		}
		if r, err := s.Run(t.Context(), id); err != nil || r.Version != 1 {
			t.Fatalf("want one change written, have version %d, %v", r.Version, err)
		}
	}
	if runs, _, err := s.List(t.Context(), engine.RunFilter{Limit: 10}); err != nil || len(runs) != 4 || p.Lost() != 8 {
		t.Fatalf("want 4 runs and 8 lost answers, have %d and %d, %v", len(runs), p.Lost(), err)
	}
}

func TestConnectionsThatTheServerEndedAreReplaced(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
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

// A node that is just writing is not taken over: either its commit comes first,
// or it finds itself fenced.
func TestATakeoverWaitsForACommitUnderWay(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	s := open(t, dsn)
	zombie, err := s.Join(t.Context(), "zombie", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Accept(t.Context(), zombie, []engine.Intake{owned("a")}); err != nil {
		t.Fatal(err)
	}
	// What a commit of the zombie holds, while the network holds the rest of it.
	c := connect(t, dsn)
	run(t, c, "begin")
	run(t, c, "select pg_advisory_xact_lock_shared(('nodes'::regclass::oid::bigint - 2147483648)::int, $1::bigint::int)", zombie)

	live, err := s.Join(t.Context(), "live", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		began := time.Now()
		b, err := s.Beat(t.Context(), live, time.Hour, "")
		if err != nil || b.Ready > 0 {
			t.Fatalf("want no takeover while the zombie writes, have %+v, %v", b, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Fatalf("a beat waited %s for the zombie", took)
		}
	}
	run(t, c, "commit")
	for ready, deadline := 0, time.Now().Add(time.Minute); ready == 0; {
		b, err := s.Beat(t.Context(), live, time.Hour, "")
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("want the takeover after the zombie's commit, have %+v, %v", b, err)
		}
		ready = b.Ready
	}
	_, err = s.Commit(t.Context(), zombie, []engine.Change{{Run: "a", Status: engine.Succeeded}})
	if !errors.Is(err, engine.ErrFenced) {
		t.Fatalf("want the zombie fenced, have %v", err)
	}
}
