//go:build pooler

package enginetest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest/patience"
	"procaas/engine/enginetest/ports"
)

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

// A Bouncer is PgBouncer in transaction mode, before a PostgreSQL server of its own.
type Bouncer struct {
	// Direct connects to the server, and URL through PgBouncer.
	Direct, URL string

	file string // its settings
	at   int    // its port
	args []string
	cmd  *exec.Cmd
}

// StartBouncer starts PgBouncer, which make test-long ONLY=pooler installs. It ends with the test.
func StartBouncer(t testing.TB) *Bouncer {
	t.Helper()
	return BouncerBefore(t, OwnPostgres(t))
}

// BouncerBefore is [StartBouncer] with a server that the test has.
func BouncerBefore(t testing.TB, db *Cluster) *Bouncer {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		bin = "/usr/sbin/pgbouncer"
	}
	port, release, err := ports.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	// Not in the test's directory, which is closed to other users.
	file := filepath.Join(os.TempDir(), fmt.Sprintf("procaas-pgbouncer-%d.ini", port))
	t.Cleanup(func() { _ = os.Remove(file) })
	b := &Bouncer{
		Direct: db.URL, URL: strings.Replace(db.URL, db.Addr(), fmt.Sprint("127.0.0.1:", port), 1), file: file, at: port, args: []string{bin, "-q", file},
	}
	b.write(t, db)
	if os.Getuid() == 0 { // it refuses to run as root
		b.args = []string{bin, "-q", "-u", "postgres", file}
	}
	b.start(t)
	t.Cleanup(b.kill)
	return b
}

// write writes the settings for a server.
func (b *Bouncer) write(t testing.TB, db *Cluster) {
	t.Helper()
	_, port, err := net.SplitHostPort(db.Addr())
	if err != nil {
		t.Fatal(err)
	}
	server, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.file, fmt.Appendf(nil, bouncerConfig, server, b.at), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Point makes PgBouncer go to another server. Its clients keep their connections.
func (b *Bouncer) Point(t testing.TB, db *Cluster) {
	t.Helper()
	b.write(t, db)
	if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func (b *Bouncer) start(t testing.TB) {
	t.Helper()
	b.cmd = exec.Command(b.args[0], b.args[1:]...)
	b.cmd.Stderr = os.Stderr
	if err := b.cmd.Start(); err != nil {
		t.Fatalf("PgBouncer does not start; make test-long ONLY=pooler installs it: %v", err)
	}
	patience.Until(t, "PgBouncer to answer", func() bool {
		c, err := pgx.Connect(t.Context(), b.URL)
		return err == nil && c.Close(t.Context()) == nil
	})
}

func (b *Bouncer) kill() { _ = b.cmd.Process.Kill(); _ = b.cmd.Wait() }

// Restart ends PgBouncer as a crash would, and starts it again.
func (b *Bouncer) Restart(t testing.TB) {
	t.Helper()
	b.kill()
	b.start(t)
}
