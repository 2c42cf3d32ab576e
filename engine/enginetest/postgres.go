package enginetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresEnv names the environment variable that gives tests a cluster to
// share, as a URL. Without it, each test binary starts its own.
const PostgresEnv = "PROCAAS_TEST_POSTGRES"

// Postgres gives the URL of an empty schema in a PostgreSQL cluster that is for
// tests alone. The schema is dropped at the end of the test.
func Postgres(t testing.TB) string {
	t.Helper()
	dsn, drop, err := ScratchPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Fatal(err)
		}
	})
	return dsn
}

// ScratchPostgres is [Postgres] for examples, which have no test: drop has to be called.
func ScratchPostgres(ctx context.Context) (dsn string, drop func() error, err error) {
	cluster, err := sharedCluster()
	if err != nil {
		return "", nil, err
	}
	schema := "test_" + strings.ToLower(rand.Text())
	query := func(ctx context.Context, sql string) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		conn, err := pgx.Connect(ctx, cluster.URL)
		if err != nil {
			return fmt.Errorf("test cluster: %w", err)
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("test cluster: %w", err)
		}
		return nil
	}
	u, err := url.Parse(cluster.URL)
	if err != nil {
		return "", nil, fmt.Errorf("%s: want a URL such as postgres://127.0.0.1:5432/postgres: %w", PostgresEnv, err)
	}
	if err := query(ctx, "create schema "+schema); err != nil {
		return "", nil, err
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	// What was to end it may have ended when it is dropped.
	return u.String(), func() error { return query(context.WithoutCancel(ctx), "drop schema "+schema+" cascade") }, nil
}

// sharedCluster starts the cluster of this process once. It ends with the
// process: see [StartPostgres]. That it is kept here keeps its pipe open.
var sharedCluster = sync.OnceValues(func() (*Cluster, error) {
	if dsn := os.Getenv(PostgresEnv); dsn != "" {
		return &Cluster{URL: dsn}, nil
	}
	return StartPostgres(context.Background())
})

// A Cluster is a private PostgreSQL server.
type Cluster struct {
	// URL connects to it as its superuser.
	URL string

	bin, dir string
	port     int
	as       *syscall.Credential
	guard    *exec.Cmd
	orders   io.WriteCloser // to the guard; its end stops the server
}

// guardScript runs the server until its input ends, so that the server never
// outlives the process that holds the pipe, however that process ends. Until then
// each line of the input is the name of a signal that ends the server, or says to
// start it.
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

// A Stop is a way to end a server.
type Stop string

// The ways to end a server.
const (
	// StopFast rolls back what is under way, and writes everything down.
	StopFast Stop = "INT"

	// StopImmediate is a crash: what is not in the log is gone, and the next start
	// recovers.
	StopImmediate Stop = "QUIT"
)

// StartPostgres starts a cluster from the server binaries of this machine, in a
// temporary directory, with settings as lines of its configuration. It ends with Stop,
// or with this process.
func StartPostgres(ctx context.Context, settings ...string) (*Cluster, error) {
	bin, err := serverBinaries()
	if err != nil {
		return nil, err
	}
	as, err := serverUser()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "procaas-pg-")
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
	port, err := freePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{
		URL: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port),
		bin: bin, dir: dir, as: as, port: port,
	}
	c.guard = exec.Command("sh", "-c", guardScript, "guard", dir, bin, strconv.Itoa(port))
	c.guard.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	if c.orders, err = c.guard.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.guard.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.wait(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Addr is the host and port of the server.
func (c *Cluster) Addr() string { return fmt.Sprintf("127.0.0.1:%d", c.port) }

// Halt ends the server, and keeps its data.
func (c *Cluster) Halt(how Stop) error {
	_, err := fmt.Fprintln(c.orders, how)
	return err
}

// Start starts the server again after Halt, and returns when it takes
// connections.
func (c *Cluster) Start(ctx context.Context) error {
	if _, err := fmt.Fprintln(c.orders, "start"); err != nil {
		return err
	}
	return c.wait(ctx)
}

// Restart ends the server and starts it again.
func (c *Cluster) Restart(ctx context.Context, how Stop) error {
	if err := c.Halt(how); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Standby starts a second server that follows this one.
func (c *Cluster) Standby(ctx context.Context) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "procaas-pg-")
	if err != nil {
		return nil, err
	}
	if c.as != nil {
		if err := os.Chown(dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "pg_basebackup"), "-D", filepath.Join(dir, "data"), "-d", c.URL,
		"-R", "-X", "stream", "-c", "fast", "--no-sync")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("pg_basebackup: %w\n%s", err, out), os.RemoveAll(dir))
	}
	return startServer(ctx, c.bin, dir, c.as)
}

// Promote makes a standby a primary, and returns when it takes writes.
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

// Stop ends the server and removes its data.
func (c *Cluster) Stop() error {
	return errors.Join(c.orders.Close(), c.guard.Wait())
}

// wait returns when the server takes connections.
func (c *Cluster) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// testSettings make room for many tests at once. What makes a commit durable
// stays as it is in production.
const testSettings = `
listen_addresses = '127.0.0.1'
max_connections = 300
shared_buffers = '256MB'
max_wal_size = '2GB'
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

// serverBinaries finds the directory of the newest installed server.
func serverBinaries() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// Beside the binary itself are the others, which a link may not have.
		path, err = filepath.EvalSymlinks(path)
		return filepath.Dir(path), err
	}
	var found []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"} {
		paths, err := filepath.Glob(filepath.Join(pattern, "postgres"))
		if err != nil {
			return "", err
		}
		found = append(found, paths...)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no PostgreSQL server on this machine: install it (apt-get install postgresql on Debian and Ubuntu, "+
			"brew install postgresql on macOS), put its bin directory into PATH, or give a cluster in %s", PostgresEnv)
	}
	slices.SortFunc(found, func(a, b string) int { return majorOf(a) - majorOf(b) })
	return filepath.Dir(found[len(found)-1]), nil
}

func majorOf(path string) int {
	n, _ := strconv.Atoi(strings.Trim(filepath.Base(filepath.Dir(filepath.Dir(path))), "pgsqlore@-"))
	return n
}

// serverUser gives whom the server runs as: PostgreSQL refuses to run as root.
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

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
