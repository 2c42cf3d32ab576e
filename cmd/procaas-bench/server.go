package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// A server is the PostgreSQL of the contestants.
type server struct {
	dsn     string
	main    int // its main process; 0 if it is not on this machine
	about   string
	version string

	others []*server // of the same inbox; their use is counted too
}

func findServer(ctx context.Context, dsn string) (*server, error) {
	s := &server{dsn: dsn}
	var version, sync string
	var backend int
	err := s.query(ctx, func(c *pgx.Conn) error {
		err := c.QueryRow(ctx, "select current_setting('server_version'), current_setting('synchronous_commit'), pg_backend_pid()").
			Scan(&version, &sync, &backend)
		if stat, unknown := readStat(strconv.Itoa(backend)); unknown == nil {
			s.main = stat.parent
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.version, _, _ = strings.Cut(version, " ") // without that of the package
	load, _ := os.ReadFile("/proc/loadavg")
	s.about = fmt.Sprintf("PostgreSQL %s, synchronous_commit=%s, %s, %d cores, load before: %s",
		version, sync, runtime.Version(), runtime.NumCPU(), strings.TrimSpace(string(load)))
	return s, nil
}

func (s *server) query(ctx context.Context, do func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.Close(ctx))
}

// schema creates an empty schema and returns its URL. It also writes a checkpoint, so that all measurements
// begin alike.
func (s *server) schema(ctx context.Context, name string) (string, error) {
	err := s.query(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "drop schema if exists "+name+" cascade; create schema "+name)
		return err
	})
	sep := "?"
	if strings.Contains(s.dsn, "?") {
		sep = "&"
	}
	return s.dsn + sep + "search_path=" + name, err
}

// settle writes out the remaining work of earlier measurements.
func (s *server) settle(ctx context.Context) error {
	err := s.query(ctx, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "checkpoint")
		return err
	})
	for _, other := range s.others {
		err = errors.Join(err, other.settle(ctx))
	}
	return err
}

// tick is the unit of the times in /proc.
const tick = time.Second / 100

// cpu returns the processor time of the server, or 0 if it is unknown.
func (s *server) cpu() time.Duration {
	var sum time.Duration
	for _, other := range s.others {
		sum += other.cpu()
	}
	if s.main == 0 {
		return sum
	}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range paths {
		stat, err := readStat(filepath.Base(p))
		switch {
		case err != nil: // the process has ended
		case stat.pid == s.main:
			sum += stat.own + stat.children
		case stat.parent == s.main:
			sum += stat.own
		}
	}
	return sum
}

// A procStat is the content of /proc/PID/stat.
type procStat struct {
	pid, parent   int
	own, children time.Duration // processor time of the process, and of its ended children
}

func readStat(pid string) (p procStat, err error) {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return p, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // after the name, which may contain anything
	f := strings.Fields(rest)
	if len(f) < 15 {
		return p, fmt.Errorf("/proc/%s/stat: want 15 fields or more, have %d", pid, len(f))
	}
	number := func(i int) (n int) {
		if err == nil {
			n, err = strconv.Atoi(f[i])
		}
		return n
	}
	p.parent = number(1)
	p.own = tick * time.Duration(number(11)+number(12))
	p.children = tick * time.Duration(number(13)+number(14))
	if err == nil {
		p.pid, err = strconv.Atoi(pid)
	}
	return p, err
}

// logged returns the position of the write-ahead log in bytes.
func (s *server) logged(ctx context.Context) (at float64, err error) {
	err = s.query(ctx, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&at)
	})
	for _, other := range s.others {
		more, failed := other.logged(ctx)
		at, err = at+more, errors.Join(err, failed)
	}
	return at, err
}

// cpuOf returns the processor time of a process, or 0 if it is unknown.
func cpuOf(pid int) time.Duration {
	stat, _ := readStat(strconv.Itoa(pid))
	return stat.own
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
