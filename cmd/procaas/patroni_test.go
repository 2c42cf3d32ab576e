//go:build patroni

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/clock"
	"procaas/engine/enginetest/patience"
)

var (
	failovers = flag.Int("failovers", 20, "how often TestFailoversOfPatroni harms the primary")
	pooled    = flag.Int("pooled-failovers", 8, "how often TestFailoversBehindPgBouncer harms the primary")
)

// TestFailoversOfPatroni runs two nodes on three servers of PostgreSQL that Patroni keeps, with synchronous replication, and harms the
// primary again and again: kill -9 of all its processes, its network cut off, a switchover by order, and kill -9 while one of the
// replicas lags. No acknowledged event is lost, the order of keys stays, and nodes take events soon after Patroni has a new primary.
//
// Each server has a network of its own. The test makes them in the network in which it runs, which must be private: unshare -n.
func TestFailoversOfPatroni(t *testing.T) {
	p := startPatroni(t)
	p.failOver(p.store(), *failovers)
}

// TestFailoversBehindPgBouncer is TestFailoversOfPatroni for nodes that know of one address only: that of PgBouncer in transaction mode. It
// connects to HAProxy, which asks Patroni where the primary is.
func TestFailoversBehindPgBouncer(t *testing.T) {
	p := startPatroni(t)
	p.failOver(p.pool(), *pooled)
}

// failOver harms the primary under nodes that use an address of the store.
func (p *patroni) failOver(store string, times int) {
	t := p.t
	t.Helper()
	o := newOperators(t, store, 2)
	accepted := func(what string) {
		t.Helper()
		before := o.accepted()
		patience.Until(t, "events to be accepted "+what, func() bool { return o.accepted() > before+2 })
	}
	accepted("before the first harm")
	for i := range times {
		p.settle()
		m := p.primary()
		began := time.Now()
		var what string
		var mend func()
		switch i % 4 {
		case 0:
			what, mend = "kill -9", func() { p.start(m) }
			p.kill(m)
		case 1:
			what, mend = "network cut", func() { p.link(m, "up") }
			p.link(m, "down")
		case 2:
			what, mend = "switchover", func() {}
			p.switchover(m)
		case 3:
			what = "kill -9 beside a lagging replica"
			lagging := p.lag()
			began = time.Now()
			p.kill(m)
			mend = func() {
				p.start(m)
				lagging()
			}
		}
		p.await("another primary after "+what, func(all []patroniMember) bool {
			return slices.ContainsFunc(all, func(now patroniMember) bool { return now.leads() && now.Name != m })
		})
		patroni := time.Since(began)
		accepted("after " + what)
		t.Logf("%2d. %s of %s: Patroni %s, then events after %s", i+1, what, m, patroni.Round(10*time.Millisecond),
			(time.Since(began) - patroni).Round(10*time.Millisecond))
		mend()
	}
	p.settle()
	o.end()
}

// A patroniMember is one of the servers, as Patroni's API shows it.
type patroniMember struct {
	Name, Role, State string
	Lag               any // bytes, or "unknown"
}

func (m patroniMember) leads() bool { return m.Role == "leader" && m.State == "running" }

// follows tells whether a replica streams.
func (m patroniMember) follows() bool {
	return m.Role != "leader" && (m.State == "running" || m.State == "streaming") && m.Lag == float64(0)
}

// patroni is three servers of PostgreSQL with Patroni, and one etcd.
type patroni struct {
	t   *testing.T
	dir string
}

var patroniMembers = []string{"pg1", "pg2", "pg3"}

const patroniEtcd = "10.77.0.1"

func (p *patroni) address(member string) string {
	return "10.77.0.1" + strings.TrimPrefix(member, "pg")
}

func (p *patroni) store() string {
	var hosts []string
	for _, m := range patroniMembers {
		hosts = append(hosts, p.address(m)+":5432")
	}
	return "postgres://postgres@" + strings.Join(hosts, ",") + "/postgres?target_session_attrs=read-write&connect_timeout=2&sslmode=disable"
}

// Sessions end as soon as their server is no primary. Otherwise they wait for one that is cut off.
const haproxySettings = `defaults
  mode tcp
  timeout connect 2s
  timeout check 1s
  timeout client 1h
  timeout server 1h
listen primary
  bind 127.0.0.1:5000
  option httpchk GET /primary
  http-check expect status 200
  default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
`

// PgBouncer tries a server again after a second, not after 15.
const pgbouncerSettings = `[databases]
* = host=127.0.0.1 port=5000 user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = 6432
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
server_login_retry = 1
server_connect_timeout = 2
`

// pool starts HAProxy and PgBouncer, and returns the address of the store behind them.
func (p *patroni) pool() string {
	p.t.Helper()
	proxy := haproxySettings
	for _, m := range patroniMembers {
		proxy += fmt.Sprintf("  server %s %s:5432 check port 8008\n", m, p.address(m))
	}
	for name, text := range map[string]string{"haproxy.cfg": proxy, "pgbouncer.ini": pgbouncerSettings} {
		write(p.t, filepath.Join(p.dir, name), text)
		if err := os.Chmod(filepath.Join(p.dir, name), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	p.background(exec.Command("/usr/sbin/haproxy", "-db", "-f", filepath.Join(p.dir, "haproxy.cfg")), "haproxy")
	p.background(exec.Command("/usr/sbin/pgbouncer", "-q", "-u", "postgres", filepath.Join(p.dir, "pgbouncer.ini")), "pgbouncer")
	const store = "postgres://postgres@127.0.0.1:6432/postgres?sslmode=disable&connect_timeout=2"
	patience.Until(p.t, "the primary behind PgBouncer", func() bool {
		c, err := pgx.Connect(p.t.Context(), store)
		return err == nil && c.Close(p.t.Context()) == nil
	})
	return store
}

func startPatroni(t *testing.T) *patroni {
	t.Helper()
	p := &patroni{t: t, dir: t.TempDir()}
	for dir := p.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) { // the servers run as another user
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.run("ip", "link", "set", "lo", "up")
	p.run("ip", "link", "add", "servers", "type", "bridge")
	p.run("ip", "addr", "add", patroniEtcd+"/24", "dev", "servers")
	p.run("ip", "link", "set", "servers", "up")
	p.background(exec.Command("etcd", "--data-dir", filepath.Join(p.dir, "etcd"), "--listen-client-urls", "http://"+patroniEtcd+":2379",
		"--advertise-client-urls", "http://"+patroniEtcd+":2379", "--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "error"), "etcd")
	binaries, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(binaries) == 0 {
		t.Fatal("there is no PostgreSQL of Debian", err)
	}
	for _, m := range patroniMembers {
		home := filepath.Join(p.dir, m)
		p.run("ip", "netns", "add", m)
		t.Cleanup(func() {
			p.kill(m)
			_ = exec.Command("ip", "netns", "del", m).Run()
		})
		p.run("ip", "link", "add", "to-"+m, "type", "veth", "peer", "name", "eth0", "netns", m)
		p.run("ip", "link", "set", "to-"+m, "master", "servers", "up")
		p.run("ip", "-n", m, "addr", "add", p.address(m)+"/24", "dev", "eth0")
		p.run("ip", "-n", m, "link", "set", "eth0", "up")
		p.run("ip", "-n", m, "link", "set", "lo", "up")
		p.run("install", "-d", "-o", "postgres", "-m", "700", home)
		write(t, filepath.Join(p.dir, m+".yaml"), fmt.Sprintf(patroniSettings, m, p.address(m), patroniEtcd, binaries[len(binaries)-1], home))
		if err := os.Chmod(filepath.Join(p.dir, m+".yaml"), 0o644); err != nil {
			t.Fatal(err)
		}
		p.start(m)
	}
	p.settle()
	return p
}

// The shortest times that Patroni accepts.
const patroniSettings = `scope: procaas
name: %[1]s
restapi: {listen: "%[2]s:8008", connect_address: "%[2]s:8008"}
etcd3: {hosts: "%[3]s:2379"}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {max_connections: 100, wal_log_hints: "on", shared_buffers: 64MB}
  initdb: [{encoding: UTF8}, {locale: C}, data-checksums]
  pg_hba: [host all all 10.77.0.0/24 trust, host replication all 10.77.0.0/24 trust]
postgresql:
  listen: "%[2]s:5432"
  connect_address: "%[2]s:5432"
  data_dir: "%[5]s/data"
  bin_dir: "%[4]s"
  pgpass: "%[5]s/pgpass"
  parameters: {unix_socket_directories: "%[5]s"}
  authentication: {superuser: {username: postgres}, replication: {username: replicator}}
watchdog: {mode: "off"}
`

func (p *patroni) run(name string, args ...string) string {
	p.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// background starts a program until the end of the test.
func (p *patroni) background(cmd *exec.Cmd, name string) {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.t.ArtifactDir(), name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		_ = log.Close()
		close(ended)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
}

// start starts a member, or starts it again.
func (p *patroni) start(member string) {
	p.t.Helper()
	p.background(exec.Command("ip", "netns", "exec", member, "setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups",
		"patroni", filepath.Join(p.dir, member+".yaml")), member)
}

// kill kills all processes of a member, as a machine that loses its power.
func (p *patroni) kill(member string) {
	pids, err := exec.Command("ip", "netns", "pids", member).Output()
	if err == nil && len(pids) > 0 {
		_ = exec.Command("kill", append([]string{"-9"}, strings.Fields(string(pids))...)...).Run() // some end by themselves meanwhile
	}
}

func (p *patroni) link(member, state string) { p.run("ip", "link", "set", "to-"+member, state) }

// switchover orders Patroni to make another server the primary.
func (p *patroni) switchover(from string) {
	p.t.Helper()
	all, err := p.members()
	if err != nil {
		p.t.Fatal(err)
	}
	to := slices.IndexFunc(all, func(m patroniMember) bool { return m.Role == "sync_standby" })
	body, err := json.Marshal(map[string]string{"leader": from, "candidate": all[to].Name})
	if err != nil {
		p.t.Fatal(err)
	}
	reply, err := http.Post("http://"+p.address(from)+":8008/switchover", "application/json", bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		p.t.Fatalf("the switchover is refused: %s", reply.Status)
	}
}

// lag stops the receiver of a replica that is not synchronous, and returns what lets it continue.
func (p *patroni) lag() (lagging func()) {
	p.t.Helper()
	all, err := p.members()
	if err != nil {
		p.t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(m patroniMember) bool { return m.Role == "replica" })
	for _, pid := range strings.Fields(p.run("ip", "netns", "pids", all[at].Name)) {
		title, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err == nil && bytes.Contains(title, []byte("walreceiver")) {
			p.run("kill", "-STOP", pid)
			return func() { _ = exec.Command("kill", "-CONT", pid).Run() } // Patroni may have ended it
		}
	}
	p.t.Fatalf("%s receives nothing", all[at].Name)
	return nil
}

// members asks any member that answers.
func (p *patroni) members() (all []patroniMember, err error) {
	client := &http.Client{Timeout: time.Second}
	for _, m := range patroniMembers {
		reply, failed := client.Get("http://" + p.address(m) + ":8008/cluster")
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		var found struct{ Members []patroniMember }
		failed = json.NewDecoder(reply.Body).Decode(&found)
		_ = reply.Body.Close()
		if failed == nil {
			return found.Members, nil
		}
		err = errors.Join(err, failed)
	}
	return nil, err
}

func (p *patroni) await(what string, holds func([]patroniMember) bool) {
	p.t.Helper()
	ctx, cancel := patience.Context(p.t.Context(), 3*time.Minute)
	defer cancel()
	var all []patroniMember
	var err error
	for ctx.Err() == nil {
		if all, err = p.members(); err == nil && holds(all) {
			return
		}
		clock.Pause(ctx, 20*time.Millisecond)
	}
	p.t.Fatalf("%s: not within minutes; there are %+v, %v", what, all, err)
}

// settle waits until there are a primary, a synchronous standby and another replica that follows.
func (p *patroni) settle() {
	p.t.Helper()
	p.await("a primary and two replicas that follow", func(all []patroniMember) bool {
		roles := map[string]int{}
		for _, m := range all {
			if m.leads() || m.follows() {
				roles[m.Role]++
			}
		}
		return roles["leader"] == 1 && roles["sync_standby"] == 1 && roles["replica"] == 1
	})
}

func (p *patroni) primary() string {
	p.t.Helper()
	all, err := p.members()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, m := range all {
		if m.leads() {
			return m.Name
		}
	}
	p.t.Fatalf("there is no primary among %+v", all)
	return ""
}
