package postgres

import (
	"context"
	"strings"
	"time"

	"procaas/engine/pgkit"
)

// Wake implements [store.Waker].
func (s *Store) Wake() <-chan struct{} { return s.hints.wake }

// sendHint uses the schema as the channel, so that several installations in one database do not
// wake each other.
const (
	sendHint    = "select pg_notify('procaas ' || current_schema, $1)"
	listenHints = "select format('listen %I', 'procaas ' || current_schema)"
)

// notify sends hints. A lost hint costs a node one polling interval.
func (s *Store) notify(ctx context.Context) {
	pgkit.Tell(ctx, s.hints.tell, hintGap, func() error {
		_, err := s.db.pool.Exec(ctx, sendHint, s.hints.untold.take().String())
		return err
	})
}

// hintGap is the shortest time between two hints of a process.
const hintGap = 5 * time.Millisecond

// listen receives the hints of all processes until ctx ends. It keeps trying. Behind a pooler it
// may never succeed, and nodes find runs by polling.
func (s *Store) listen(ctx context.Context) {
	pgkit.Listen(ctx, s.log, "hints are not heard, runs are found by polling meanwhile", s.hear)
}

// hear listens on one connection, which it takes out of the pool. Its session is open as long as
// the process lives.
func (s *Store) hear(ctx context.Context) error {
	conn, err := pgkit.Take(ctx, s.db.pool)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := pgkit.Subscribe(ctx, conn, listenHints, listenChanged); err != nil {
		return err
	}
	open, err := s.presence.open(ctx, conn)
	if err != nil {
		return err
	}
	defer s.presence.close(open)
	s.hints.horizon.listens(true)
	defer s.hints.horizon.listens(false)
	pgkit.Signal(s.hints.wake) // hints may have been lost before
	s.News.Send()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if strings.HasPrefix(n.Channel, changedPrefix) {
			s.News.Send()
			continue
		}
		s.hints.horizon.lower(parsePosition(n.Payload))
		pgkit.Signal(s.hints.wake)
	}
}

const (
	sendChanged   = "select pg_notify('procaas documents ' || left(current_schema, 40), '')"
	listenChanged = "select format('listen %I', 'procaas documents ' || left(current_schema, 40))"
)

// changedPrefix is the prefix of the channel for changed documents.
const changedPrefix = "procaas documents "

// notifyChanged notifies other processes. A process that misses it polls.
func (s *Store) notifyChanged(ctx context.Context) {
	pgkit.Tell(ctx, s.tellChanged, hintGap, func() error {
		_, err := s.db.pool.Exec(ctx, sendChanged)
		return err
	})
}
