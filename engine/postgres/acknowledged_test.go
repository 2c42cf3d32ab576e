package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"procaas/engine/enginetest"
	engineintake "procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// A pair is a primary with a replica that is promoted later, and the address of both.
type pair struct {
	t                *testing.T
	primary, standby *enginetest.Cluster
	dsn              string
}

func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, primary: enginetest.OwnPostgres(t)}
	p.standby = enginetest.StandbyOf(t, p.primary)
	p.dsn = strings.Replace(p.primary.URL, p.primary.Addr(), p.primary.Addr()+","+p.standby.Addr(), 1) + "&target_session_attrs=read-write"
	return p
}

// caughtUp waits until the replica has all that the primary has.
func (p *pair) caughtUp() {
	p.t.Helper()
	var end string
	if err := connect(p.t, p.primary.URL).QueryRow(p.t.Context(), "select pg_current_wal_insert_lsn()::text").Scan(&end); err != nil {
		p.t.Fatal(err)
	}
	c := &crew{t: p.t}
	s := connect(p.t, p.standby.URL)
	c.eventually("the replica has everything", func() (is bool) {
		return s.QueryRow(p.t.Context(), "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", end).Scan(&is) == nil && is
	})
}

// cutOff stops the replica, so that it misses what follows.
func (p *pair) cutOff() {
	p.t.Helper()
	if err := p.standby.Halt(enginetest.StopFast); err != nil {
		p.t.Fatal(err)
	}
}

// fallBehind lets a node of s beat, cuts off the replica, and lets s acknowledge an event that the replica misses. It returns the node.
func (p *pair) fallBehind(s *postgres.Store) (node int64) {
	p.t.Helper()
	node = join(p.t, s)
	if _, err := s.Beat(p.t.Context(), node, time.Minute, ""); err != nil {
		p.t.Fatal(err)
	}
	p.caughtUp()
	p.cutOff()
	if err := write(p.t, s, "acknowledged"); err != nil {
		p.t.Fatal(err)
	}
	return node
}

// failOver crashes the primary and promotes the replica, which must run.
func (p *pair) failOver() {
	p.t.Helper()
	if err := p.primary.Halt(enginetest.StopImmediate); err != nil {
		p.t.Fatal(err)
	}
	if err := p.standby.Promote(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// failOverBehind crashes the primary and promotes the replica that was cut off.
func (p *pair) failOverBehind() {
	p.t.Helper()
	if err := p.primary.Halt(enginetest.StopImmediate); err != nil {
		p.t.Fatal(err)
	}
	if err := p.standby.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	if err := p.standby.Promote(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// write accepts events until the store answers.
func write(t *testing.T, s *postgres.Store, id string) error {
	t.Helper()
	for {
		_, err := s.Accept(t.Context(), 0, []model.Intake{intake(id)})
		if err == nil || errors.Is(err, store.ErrLost) || t.Context().Err() != nil {
			return err
		}
	}
}

// One event was acknowledged after the last beat, and the replica does not have it. Beats do not
// show that. The process writes nothing to the server, also when others have written a lot there.
func TestTheLastAcknowledgedEventIsMissed(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	s := open(t, p.dsn)
	node := p.fallBehind(s)
	p.failOverBehind()

	other := openRestored(t, p.standby.URL)
	for range 20 {
		accept(t, other, intake("after"+time.Now().Format("150405.000000000")))
	}
	err := write(t, s, "refused")
	if !errors.Is(err, store.ErrLost) || !strings.Contains(err.Error(), "its log ended at") ||
		!strings.Contains(err.Error(), "restart this process") {
		t.Errorf("want an event refused with what is missing and what to do, have %v", err)
	}
	if _, err := s.Beat(t.Context(), node, time.Minute, ""); !errors.Is(err, store.ErrLost) {
		t.Errorf("want a beat refused, have %v", err)
	}
	if _, err := s.Nodes(t.Context()); err != nil {
		t.Errorf("want people to see what is left, have %v", err)
	}
	if _, err := other.Run(t.Context(), "refused"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("want nothing written to the server that was set back, have %v", err)
	}
}

// A connection is made while the server still recovers, as after restoring a backup. It is promoted before the connection is used.
func TestConnectionsToAStandbyAreMadeAnewOnceItIsPromoted(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	s := open(t, strings.TrimSuffix(p.dsn, "&target_session_attrs=read-write"))
	node := p.fallBehind(s)
	if err := p.primary.Halt(enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	if err := p.standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &crew{t: t}
	c.eventually("people see what the standby has", func() bool {
		_, err := s.Nodes(t.Context())
		return err == nil
	})
	if _, err := s.Beat(t.Context(), node, time.Minute, ""); err == nil || !postgres.IsAway(err) {
		t.Errorf("want a beat refused until the standby is promoted, have %v", err)
	}
	if _, err := postgres.Open(t.Context(), p.standby.URL, postgres.Options{}); !postgres.IsAway(err) {
		t.Errorf("want a start that waits for the promotion, since nobody can say yet whether the store was restored, have %v", err)
	}
	if _, err := openRestored(t, p.standby.URL).Adopt(t.Context(), "triggers/", true, store.Actor{}); err == nil {
		t.Error("want a standby not taken for a store that needs no adopting")
	}
	if err := p.standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := write(t, s, "refused"); !errors.Is(err, store.ErrLost) {
		t.Errorf("want an event refused, have %v", err)
	}
	if _, err := s.Run(t.Context(), "refused"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("want nothing written to the server that was set back, have %v", err)
	}
}

// An answer may come late: when the server that gave it has been restarted, and others have heard from the server since. That is no reason
// to refuse it. A server that lacks what was acknowledged before the transaction was sent is refused.
func TestLateAnswersOfAServerAreNoLoss(t *testing.T) {
	t.Parallel()
	crashed := time.Now()
	restarted := crashed.Add(time.Minute)
	for name, c := range map[string]struct {
		answers []postgres.Answer
		lost    bool
	}{
		"late, after an orderly restart": {answers: []postgres.Answer{
			{Started: crashed, Replayed: 100, LSN: 200}, {Started: restarted, LSN: 400}, {Started: crashed, Replayed: 100, LSN: 300, SentAfter: 1},
		}},
		"late, after another crash": {answers: []postgres.Answer{
			{Started: crashed, Replayed: 100, LSN: 200}, {Started: restarted, Replayed: 350, LSN: 400},
			{Started: crashed, Replayed: 100, LSN: 300, SentAfter: 1},
		}},
		"a crash that lost nothing": {answers: []postgres.Answer{
			{Started: crashed, LSN: 200}, {Started: restarted, Replayed: 220, LSN: 300, SentAfter: 1},
		}},
		"a replica that lagged behind": {lost: true, answers: []postgres.Answer{
			{Started: crashed, LSN: 200}, {Started: restarted, Replayed: 150, LSN: 300, SentAfter: 1},
		}},
	} {
		all := postgres.NoteAll(c.answers...)
		if err := all[len(all)-1]; errors.Is(err, store.ErrLost) != c.lost || err != nil && !c.lost {
			t.Errorf("%s: have %v", name, err)
		}
	}
}

// A failover that loses nothing, a crash and a restart are no reason to refuse a server.
func TestServersThatHaveEverythingAreAccepted(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	s := open(t, p.dsn)
	node := join(t, s)
	try := func(after string) {
		t.Helper()
		if err := write(t, s, after); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
		if _, err := s.Beat(t.Context(), node, time.Minute, ""); err != nil {
			t.Errorf("beat after %s: %v", after, err)
		}
	}
	restart := func(c *enginetest.Cluster, how enginetest.Stop) {
		t.Helper()
		if err := c.Restart(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	try("the start")
	for range 2 { // the second time, it has recovered long before the last transaction
		restart(p.primary, enginetest.StopImmediate)
		try("a crash")
		s.Pool().Reset()
		try("a crash, with new connections")
	}
	restart(p.primary, enginetest.StopFast)
	try("a restart")
	p.caughtUp()
	p.failOver()
	r, err := openRestored(t, p.standby.URL).Adopt(t.Context(), "triggers/", true, store.Actor{})
	if err != nil || r.Why != "" {
		t.Errorf("want a standby that ran before the last sign of a node accepted, have %q, %v", r.Why, err)
	}
	try("a failover")
	s.Pool().Reset()
	try("a failover, with new connections")
	restart(p.standby, enginetest.StopImmediate)
	try("a crash of the new primary")
	restart(p.standby, enginetest.StopFast)
	open(t, p.dsn) // nodes have recorded its timeline
}

// An outage is longer than the lease. When a node reaches the promoted replica, another one has
// already fenced it there. It must not join again as if nothing had happened.
func TestFencedNodesRefuseALaggingReplica(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	p := startPair(t)
	proxy, _ := proxied(t, p.standby.URL)
	dsn := strings.Replace(p.primary.URL, p.primary.Addr(), p.primary.Addr()+","+proxy.Addr(), 1) + "&target_session_attrs=read-write"
	c := &crew{t: t}
	nodes := []*member{c.join("a", dsn, lease), c.join("b", dsn, lease)}
	for _, m := range nodes {
		c.eventually("the node is ready", func() bool { return m.Healthy(t.Context()) == nil })
	}
	p.caughtUp()
	p.cutOff()
	proxy.Refuse(time.Hour)
	for i, m := range nodes {
		if _, err := m.Submit(t.Context(), []engineintake.Submission{{Event: model.Event{
			ID: string(rune('a' + i)), Source: "s", Type: "work", Key: "k",
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	p.failOverBehind()

	fresh := openRestored(t, p.standby.URL)
	judge := join(t, fresh)
	c.eventually("the nodes are fenced", func() bool {
		if _, err := fresh.Beat(t.Context(), judge, time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		all, err := fresh.Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		alive := 0
		for _, n := range all {
			if n.Alive {
				alive++
			}
		}
		return alive == 1
	})
	proxy.Refuse(0)
	for _, m := range nodes {
		c.eventually("the node refuses the store", func() bool { return errors.Is(m.Healthy(t.Context()), store.ErrLost) })
		if err := m.Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), "restart this process") {
			t.Errorf("want the remedy, have %v", err)
		}
	}
	all, err := fresh.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if n.Alive && n.Node != judge {
			t.Errorf("node %s has joined the store that was set back", n.Name)
		}
	}
}

// A role without rights to look at the server still uses the store.
func TestServersThatDoNotTellAreAccepted(t *testing.T) {
	t.Parallel()
	server := enginetest.OwnPostgres(t)
	admin := connect(t, server.URL)
	run(t, admin, "create role app login")
	run(t, admin, "create schema app authorization app")
	run(t, admin, "revoke execute on function pg_control_system() from public")
	s := open(t, strings.Replace(server.URL, "postgres@", "app@", 1))
	accept(t, s, intake("one"))
	if _, err := s.Beat(t.Context(), join(t, s), time.Minute, ""); err != nil {
		t.Error(err)
	}
}
