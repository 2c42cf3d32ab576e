package enginetest_test

import (
	"context"
	"encoding/binary"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
)

// proxied returns a connection to a test schema through a proxy, and one past it.
func proxied(t *testing.T) (p *enginetest.Proxy, through string, past *pgx.Conn) {
	t.Helper()
	dsn := enginetest.Postgres(t)
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = enginetest.StartProxy(u.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if through, err = p.Through(dsn); err != nil {
		t.Fatal(err)
	}
	past = dial(t, dsn)
	if _, err := past.Exec(t.Context(), "create table written (n int)"); err != nil {
		t.Fatal(err)
	}
	return p, through, past
}

func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func count(t *testing.T, c *pgx.Conn) (n int) {
	t.Helper()
	if err := c.QueryRow(t.Context(), "select count(*) from written").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// insert writes in a transaction, as the store does: in one batch of prepared
// statements, which is a transaction though none of them says so.
func insert(ctx context.Context, c *pgx.Conn) error {
	var b pgx.Batch
	b.Queue("select 1")
	b.Queue("insert into written values (1)")
	return c.SendBatch(ctx, &b).Close()
}

// insertStated does so with statements that begin and end the transaction.
func insertStated(ctx context.Context, c *pgx.Conn) error {
	var b pgx.Batch
	b.Queue("begin")
	b.Queue("insert into written values (1)")
	b.Queue("commit")
	return c.SendBatch(ctx, &b).Close()
}

// eventually waits for something that comes soon.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	patience.Until(t, what, is)
}

func TestProxyLosesTheAnswerButNotTheCommit(t *testing.T) {
	t.Parallel()
	p, through, past := proxied(t)
	const tries = 20
	p.LoseCommits(1, 7)
	for i := range tries {
		c, insert := dial(t, through), insert
		if i%2 == 1 {
			insert = insertStated
		}
		if err := insert(t.Context(), c); err == nil {
			t.Error("want an error since the answer is lost, have none")
		}
	}
	if p.Lost() != tries {
		t.Errorf("want %d answers lost, have %d", tries, p.Lost())
	}
	// Where the connection broke off at once, the client's request to cancel may
	// have come before the commit.
	eventually(t, "transactions are committed", func() bool { return count(t, past) >= tries/4 })
	if n := count(t, past); n > tries {
		t.Errorf("want %d rows at most, have %d", tries, n)
	}
	p.LoseCommits(0, 0)
	if err := insert(t.Context(), dial(t, through)); err != nil {
		t.Error(err)
	}
}

func TestProxyDeliversHeldBytesOfOneWhoHasLeft(t *testing.T) {
	t.Parallel()
	p, through, past := proxied(t)
	c := dial(t, through)
	if err := insert(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p.Hold(time.Hour)
	// By hand: the client library would ask the server to cancel.
	raw, err := c.PgConn().Hijack()
	if err != nil {
		t.Fatal(err)
	}
	const query = "insert into written values (1)\x00"
	if _, err := raw.Conn.Write(append(binary.BigEndian.AppendUint32([]byte("Q"), uint32(4+len(query))), query...)); err != nil {
		t.Fatal(err)
	}
	if err := raw.Conn.Close(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, past); n != 1 {
		t.Fatalf("want nothing delivered yet, have %d rows", n)
	}
	p.Hold(0)
	eventually(t, "the held query comes", func() bool { return count(t, past) == 2 })
}

func TestProxyCutsRefusesAndDelays(t *testing.T) {
	t.Parallel()
	p, through, _ := proxied(t)
	c := dial(t, through)
	p.Refuse(time.Hour)
	if err := c.Ping(t.Context()); err == nil {
		t.Error("want the connection cut, have it")
	}
	if _, err := pgx.Connect(t.Context(), through); err == nil {
		t.Error("want new connections refused, have one")
	}
	p.Refuse(0)
	c = dial(t, through)
	p.Delay(30*time.Millisecond, time.Hour)
	began := time.Now()
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("want 30ms in each direction, have %s in both", took)
	}
}

func TestProxyLeavesNothingBehind(t *testing.T) {
	// Not parallel: other tests have goroutines of their own.
	ignore := goleak.IgnoreCurrent()
	p, err := enginetest.StartProxy("127.0.0.1:1") // nobody is there
	if err != nil {
		t.Fatal(err)
	}
	p.Hold(time.Hour)
	if _, err := pgx.Connect(t.Context(), "postgres://u@"+p.Addr()+"/d?sslmode=disable"); err == nil {
		t.Error("want no connection, have one")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, ignore)
}
