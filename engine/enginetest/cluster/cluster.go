// Package cluster starts private PostgreSQL servers from the binaries of this machine, for tests,
// benchmarks and demonstrations.
//
// It is separate from the rest of the harness because other programs need it, too. The harness
// links test libraries, whose flags would appear in the help of those programs.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/enginetest/ports"
)

// Env is the environment variable with the URL of a server that tests share. Without it, each test
// binary starts its own.
const Env = "PROCAAS_TEST_POSTGRES"

// startWithin bounds how long a server may take to start, also on a machine that compiles and tests
// at the same time.
const startWithin = time.Minute

// A Cluster is a private PostgreSQL server.
type Cluster struct {
	// URL connects to it as its superuser.
	URL string

	bin, dir string
	port     int
	release  func() // of the port
	as       *syscall.Credential
	guard    *exec.Cmd
	orders   io.WriteCloser // input of the guard; its end stops the server
}

// guardScript runs the server until its input ends, so that the server never outlives the process
// that holds the pipe. Until then each line of the input is a signal that stops the server, or
// starts it again.
const guardScript = `
cd "$1" || exit 1
start() { "$2"/postgres -D data -k "$1" -p "$3" >>log 2>&1 & server=$!; }
start "$@"
while read -r word; do
	case $word in
	start) start "$@" ;;
	*) kill -s "$word" $server; wait $server ;;
	esac
done
kill -INT $server 2>/dev/null
wait $server
rm -rf "$1"
`

// A Stop is a way to stop a server.
type Stop string

// These are the ways to stop a server.
const (
	// StopFast rolls back transactions in flight, and writes everything to disk.
	StopFast Stop = "INT"

	// StopImmediate is a crash: what is not in the log is lost, and the next start recovers.
	StopImmediate Stop = "QUIT"
)

// Start starts a server from the binaries of this machine, in a temporary directory. settings are
// lines of its configuration. It ends with Stop, or with this process.
func Start(ctx context.Context, settings ...string) (*Cluster, error) {
	bin, err := serverBinaries()
	if err != nil {
		return nil, err
	}
	as, err := serverUser()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(roomy(), "procaas-pg-")
	if err != nil {
		return nil, err
	}
	if err := initCluster(ctx, bin, dir, as, settings); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return startServer(ctx, bin, dir, as)
}

// startServer starts a server on the data in dir.
func startServer(ctx context.Context, bin, dir string, as *syscall.Credential) (*Cluster, error) {
	port, release, err := ports.Reserve()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{
		URL: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port),
		bin: bin, dir: dir, as: as, port: port, release: release,
	}
	c.guard = exec.Command("sh", "-c", guardScript, "guard", dir, bin, strconv.Itoa(port))
	c.guard.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	if c.orders, err = c.guard.StdinPipe(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.guard.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.wait(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Addr returns the host and port of the server.
func (c *Cluster) Addr() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }

// Binaries returns the directory of the programs of the server's version, such as pg_dump.
func (c *Cluster) Binaries() string { return c.bin }

// Halt stops the server, and keeps its data. It returns when nothing listens any more, because the
// server works for a moment after the signal.
func (c *Cluster) Halt(how Stop) error {
	if _, err := fmt.Fprintln(c.orders, how); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < startWithin; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", c.Addr(), time.Second)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	return fmt.Errorf("test cluster at %s does not end by SIG%s within %s", c.Addr(), how, startWithin)
}

// Start starts the server again after Halt, and returns when it accepts connections.
func (c *Cluster) Start(ctx context.Context) error {
	if _, err := fmt.Fprintln(c.orders, "start"); err != nil {
		return err
	}
	return c.wait(ctx)
}

// Restart stops the server and starts it again.
func (c *Cluster) Restart(ctx context.Context, how Stop) error {
	if err := c.Halt(how); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Standby starts a second server that follows this one.
func (c *Cluster) Standby(ctx context.Context) (*Cluster, error) {
	dir, err := os.MkdirTemp(roomy(), "procaas-pg-")
	if err != nil {
		return nil, err
	}
	if c.as != nil {
		if err := os.Chown(dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err := c.copyTo(ctx, filepath.Join(dir, "data"), "-R"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return startServer(ctx, c.bin, dir, c.as)
}

// copyTo copies the data of the running server.
func (c *Cluster) copyTo(ctx context.Context, to string, flags ...string) error {
	return c.run(ctx, filepath.Join(c.bin, "pg_basebackup"), append(flags, "-D", to, "-d", c.URL, "-X", "stream", "-c", "fast", "--no-sync")...)
}

// run runs a program as the user of the server, where its data is.
func (c *Cluster) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, out)
	}
	return nil
}

// Archiving are the settings of a server that keeps its log, so that it can be recovered to any point in time after a backup.
var Archiving = []string{"archive_mode = on", "archive_command = 'mkdir -p ../archive && cp %p ../archive/%f'"}

// Backup copies the data of the server, as the base of a recovery.
func (c *Cluster) Backup(ctx context.Context) error { return c.copyTo(ctx, "base") }

// RecoverTo stops the server, which must be [Archiving], and starts the backup in its place. It recovers the backup from the archive up
// to a position of the log.
func (c *Cluster) RecoverTo(ctx context.Context, lsn string) error {
	if err := c.Halt(StopFast); err != nil { // it archives the rest of its log
		return err
	}
	const replace = `rm -rf data && mv base data && touch data/recovery.signal && cat >>data/postgresql.auto.conf <<END
restore_command = 'cp ../archive/%f %p'
recovery_target_lsn = '$0'
recovery_target_action = 'promote'
END`
	if err := c.run(ctx, "sh", "-c", replace, lsn); err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	for recovers := true; recovers; time.Sleep(10 * time.Millisecond) {
		conn, err := pgx.Connect(ctx, c.URL)
		if err != nil {
			return err
		}
		if err := errors.Join(conn.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&recovers), conn.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// Promote makes a standby a primary, and returns when it accepts writes.
func (c *Cluster) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var done bool
	if err := conn.QueryRow(ctx, "select pg_promote()").Scan(&done); err != nil || !done {
		return fmt.Errorf("promote: done is %v: %w", done, err)
	}
	return nil
}

// Stop stops the server and removes its data.
func (c *Cluster) Stop() error {
	defer c.release()
	return errors.Join(c.orders.Close(), c.guard.Wait())
}

// wait returns when the server accepts connections.
func (c *Cluster) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.URL)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			text, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			return fmt.Errorf("test cluster does not start: %w\n%s", err, text)
		}
	}
}

// roomy returns the file system in memory if it has room, or "" for the usual temporary directory. Tests end programs, not machines,
// so commits are as durable there as on a disk. Waiting for a disk took more than half of the time of tests.
func roomy() string {
	const memory, enough = "/dev/shm", 4 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || uint64(fs.Bavail)*uint64(fs.Bsize) < enough {
		return ""
	}
	return memory
}

// testSettings allow many tests at once. The settings of durability are those of production.
const testSettings = `
listen_addresses = '127.0.0.1'
max_connections = 300
shared_buffers = '256MB'
max_wal_size = '512MB'
autovacuum_naptime = '5s'
`

func initCluster(ctx context.Context, bin, dir string, as *syscall.Credential, settings []string) error {
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "data")
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(testSettings + strings.Join(settings, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// serverBinaries returns the directory of the newest installed server.
func serverBinaries() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// The other binaries are beside the file itself, but not beside a link.
		path, err = filepath.EvalSymlinks(path)
		return filepath.Dir(path), err
	}
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
	} {
		paths, err := filepath.Glob(filepath.Join(pattern, "postgres"))
		if err != nil {
			return "", err
		}
		found = append(found, paths...)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no PostgreSQL server on this machine: install it (apt-get install postgresql on Debian and Ubuntu, "+
			"brew install postgresql on macOS), put its bin directory into PATH, or name one that runs: tests read %s, procaas-bench takes -dsn",
			Env)
	}
	slices.SortFunc(found, func(a, b string) int { return majorOf(a) - majorOf(b) })
	return filepath.Dir(found[len(found)-1]), nil
}

func majorOf(path string) int {
	n, _ := strconv.Atoi(strings.Trim(filepath.Base(filepath.Dir(filepath.Dir(path))), "pgsqlore@-"))
	return n
}

// serverUser returns the user of the server, because PostgreSQL refuses to run as root.
func serverUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody: run the tests as another user")
}
