//go:build pooler

package postgres_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/store"
)

// These tests need PgBouncer: make pooler installs it and runs them.

const bouncerConfig = `
[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 4
server_idle_timeout = 5
`

// startBouncer starts PgBouncer before a cluster of its own.
func startBouncer(t *testing.T) (direct, through string) {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		bin = "/usr/sbin/pgbouncer"
	}
	db := enginetest.OwnPostgres(t)
	_, server, err := net.SplitHostPort(db.Addr())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	l.Close()
	serverPort, _ := strconv.Atoi(server)
	// Not in the test's directory, which is closed to other users.
	file := filepath.Join(os.TempDir(), fmt.Sprintf("procaas-pgbouncer-%d.ini", at.Port))
	if err := os.WriteFile(file, fmt.Appendf(nil, bouncerConfig, serverPort, at.Port), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file) })
	cmd := exec.Command(bin, "-q", file)
	cmd.Stderr = os.Stderr
	if os.Getuid() == 0 { // it refuses to run as root
		cmd.Args = []string{bin, "-q", "-u", "postgres", file}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("PgBouncer does not start; make pooler installs it: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	through = strings.Replace(db.URL, db.Addr(), at.String(), 1)
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		c, err := pgx.Connect(t.Context(), through)
		if err == nil {
			_ = c.Close(t.Context())
			return db.URL, through
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("PgBouncer does not answer: %v", err)
		}
	}
}

// database makes a database, and returns its URL through the pooler: PgBouncer does
// not pass search_path on. It goes with the cluster: PgBouncer 1.18 may crash when a
// database is dropped that it has connections to.
func database(t *testing.T, direct, through string) string {
	t.Helper()
	name := "d" + strings.ToLower(rand.Text())
	c := connect(t, direct)
	run(t, c, "create database "+name)
	return strings.Replace(through, "/postgres?", "/"+name+"?", 1)
}

func TestPoolerConformance(t *testing.T) {
	direct, through := startBouncer(t)
	conformance.Store(t, func(t *testing.T) store.Store { return open(t, database(t, direct, through)).Ports() })
}
