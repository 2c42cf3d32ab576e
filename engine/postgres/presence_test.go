package postgres_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/postgres"
)

// seen beats until the node has told a session, by which the server sees its process.
func seen(t *testing.T, s *postgres.Store, node int64) (watched <-chan struct{}) {
	t.Helper()
	eventually(t, "a session", func() error {
		b, err := s.Beat(t.Context(), node, time.Hour, "")
		if watched = b.Watched; watched == nil && err == nil {
			err = errors.New("none is told")
		}
		return err
	})
	return watched
}

// enlist joins a node whose lease is too long for the test, and which owns a run of its name.
func enlist(t *testing.T, s *postgres.Store, run string) (node int64, watched <-chan struct{}) {
	t.Helper()
	node, err := s.Join(t.Context(), run, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	watched = seen(t, s, node)
	if _, err := s.Accept(t.Context(), node, []model.Intake{owned(run)}); err != nil {
		t.Fatal(err)
	}
	return node, watched
}

// falls makes a node silent: as if its last beat had come long ago.
const falls = "update leases set seen = seen - interval '10 s' where node = $1"

// wantAlive is a beat of another node that leaves one alone.
func wantAlive(t *testing.T, s *postgres.Store, other, node int64, why string) {
	t.Helper()
	eventually(t, "a beat", func() error { _, err := s.Beat(t.Context(), other, time.Hour, ""); return err })
	nodes, err := s.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node == node && n.Alive {
			return
		}
	}
	t.Errorf("%s: want node %d left alone, have %+v", why, node, nodes)
}

func eventually(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() && err != nil {
			t.Logf("%s: %v", what, err)
		}
	}()
	patience.Until(t, what, func() bool { err = do(); return err == nil })
}

// judge opens a store that was connected for long, and a node of it.
func judge(t *testing.T, dsn string) (*postgres.Store, int64) {
	t.Helper()
	s := open(t, dsn)
	node, err := s.Join(t.Context(), "judge", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	seen(t, s, node)
	s.Age()
	return s, node
}

// A node that is killed is taken over long before its lease is over. One that lives is not,
// however long it is silent, nor one whose session alone has ended.
func TestNodeIsDeadWhenItsSessionIsGoneAndItIsSilent(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	admin := connect(t, dsn)
	s, other := judge(t, dsn)
	live := open(t, dsn)
	silent, watched := enlist(t, live, "silent")
	run(t, admin, falls, silent)
	wantAlive(t, s, other, silent, "a node whose session is open")

	// Somebody ends its session. It opens another one, and says so.
	run(t, admin, "select pg_terminate_backend(session) from presence where node = $1", silent)
	<-watched
	if again := seen(t, live, silent); again == watched {
		t.Error("a session that is gone is told again")
	}
	run(t, admin, falls, silent)
	wantAlive(t, s, other, silent, "a node with another session")

	killed, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dead, watched := enlist(t, killed, "dead")
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	<-watched
	wantAlive(t, s, other, dead, "a node that has just been heard of")
	run(t, admin, falls, dead)
	beatUntilReady(t, s, other)
	wantAlive(t, s, other, silent, "a node beside a dead one")
	if r, err := s.Run(t.Context(), "silent"); err != nil || r.Node != silent {
		t.Errorf("want the run of the silent node left to it, have %+v, %v", r, err)
	}
}

// When all are cut off, as by a proxy before the server that is started anew, the first to be
// back has no say about the others.
func TestWhoWasCutOffItselfJudgesNobody(t *testing.T) {
	t.Parallel()
	dsn := enginetest.MigratedPostgres(t)
	p, through := proxied(t, dsn)
	admin := connect(t, dsn)
	s, other := judge(t, through)
	silent, watched := enlist(t, open(t, through), "silent")
	own := seen(t, s, other)
	p.Cut()
	<-watched
	<-own
	run(t, admin, falls, silent)
	seen(t, s, other)
	wantAlive(t, s, other, silent, "a node whose last beat came before the session of who judges")
	s.Age()
	beatUntilReady(t, s, other)
}

// A server that has crashed, or was stopped, has ended all sessions. That says nothing about nodes.
func TestSessionsOfAnotherServerProveNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []enginetest.Stop{enginetest.StopImmediate, enginetest.StopFast} {
		db := enginetest.OwnPostgres(t)
		s, other := judge(t, db.URL)
		node, watched := enlist(t, open(t, db.URL), "run")
		own := seen(t, s, other)
		if err := db.Restart(t.Context(), how); err != nil {
			t.Fatal(err)
		}
		<-watched
		<-own
		eventually(t, "the node falls silent", func() error {
			_, err := s.Pool().Exec(context.WithoutCancel(t.Context()), falls, node)
			return err
		})
		seen(t, s, other)
		s.Age()
		wantAlive(t, s, other, node, "a node whose server was started anew")
	}
}

// A process of this machine that has ended is dead, however lately it was heard of.
func TestEndedProcessIsTakenOverWithTheNextBeat(t *testing.T) {
	t.Parallel()
	ended := exec.Command("true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	name := postgres.NameProcess(ended.Process.Pid)
	if err := ended.Wait(); err != nil || name == "" {
		t.Fatalf("want the name of a process that has ended, have %q, %v", name, err)
	}
	dsn := enginetest.MigratedPostgres(t)
	s, other := judge(t, dsn)
	killed, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node, watched := enlist(t, killed, "run")
	run(t, connect(t, dsn), "update presence set process = $2 where node = $1", node, name)
	wantAlive(t, s, other, node, "a node whose session is open")
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	<-watched
	beatUntilReady(t, s, other)
}

// The end of another process of this machine is known at once, and without another beat.
func TestEndOfANeighbourIsTold(t *testing.T) {
	t.Parallel()
	neighbour := exec.Command("sleep", "1000")
	if err := neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	dsn := enginetest.MigratedPostgres(t)
	s, other := judge(t, dsn)
	node, _ := enlist(t, open(t, dsn), "run")
	run(t, connect(t, dsn), "update presence set process = $2 where node = $1", node, postgres.NameProcess(neighbour.Process.Pid))
	var told <-chan struct{}
	for range 2 { // it is watched once, however often it is seen
		b, err := s.Beat(t.Context(), other, time.Hour, "")
		if told = b.Suspects; told == nil || err != nil {
			t.Fatalf("want processes watched, have %v", err)
		}
	}
	select {
	case <-told:
		t.Fatal("a process that lives is said to have ended")
	default:
	}
	if err := neighbour.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-told
	_ = neighbour.Wait()
	wantAlive(t, s, other, node, "a node whose session is open")
}

// A process that is started again knows at once that the one before it has ended.
func TestProcessThatHasEndedIsKnown(t *testing.T) {
	t.Parallel()
	self := postgres.NameProcess(os.Getpid())
	if self == "" {
		t.Skip("this system does not tell about its processes")
	}
	if postgres.HasEnded(self) || postgres.HasEnded("") || postgres.HasEnded("another machine") {
		t.Error("a process that lives, or is not of this machine, is taken for dead")
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := postgres.NameProcess(cmd.Process.Pid)
	if postgres.HasEnded(child) {
		t.Error("a process that lives is taken for dead")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !postgres.HasEnded(child) { // though nobody has asked for its end
		if t.Context().Err() != nil {
			t.Fatal("a process that was killed is taken for alive")
		}
	}
	_ = cmd.Wait()
	if !postgres.HasEnded(child) {
		t.Error("a process that is gone is taken for alive")
	}
}
