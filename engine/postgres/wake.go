package postgres

import (
	"context"
	"strings"
	"sync"
	"time"
)

// Wake implements [store.Waker].
func (s *Store) Wake() <-chan struct{} { return s.wake }

// hint tells all nodes that runs are ready, none of them before a position.
func (s *Store) hint(first position) {
	s.horizon.lower(first)
	s.untold.add(first)
	signal(s.wake)
	signal(s.tell)
}

// An untold is what hints have to tell.
type untold struct {
	mu    sync.Mutex // guards the following
	any   bool
	first position
}

func (u *untold) add(p position) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.any {
		u.first = endOfQueue
	}
	u.any, u.first = true, earlier(u.first, p)
}

func (u *untold) take() position {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.any = false
	return u.first
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a hint that nobody has taken yet says the same
	}
}

// sendHint names the schema, so that those who share the database with another
// procaas do not wake each other.
const (
	sendHint    = "select pg_notify('procaas ' || current_schema, $1)"
	listenHints = "select format('listen %I', 'procaas ' || current_schema)"
)

// notify passes hints on, outside of the transactions that give them: PostgreSQL
// lets transactions that notify commit one by one only. Hints are few, since
// those that come while one is on its way are one.
func (s *Store) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tell:
		}
		// A hint that is lost costs a node one interval of its polling, and until then
		// it does not look at what came before the others.
		if _, err := s.pool.Exec(ctx, sendHint, s.untold.take().String()); err != nil && !pause(ctx, time.Second) {
			return
		}
		if !pause(ctx, hintGap) {
			return
		}
	}
}

// hintGap is the least time between two hints of a process.
const hintGap = 5 * time.Millisecond

// listen hears the hints of all processes until ctx ends. It goes on trying,
// though a pooler may never let it: then runs are found by polling.
func (s *Store) listen(ctx context.Context) {
	for last := ""; ; {
		err := s.hear(ctx)
		if ctx.Err() != nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			s.log.Warn("hints are not heard, runs are found by polling meanwhile", "error", err)
		}
		if !pause(ctx, time.Second) {
			return
		}
	}
}

// hear holds one connection, which it takes out of the pool. Its session is open for as long
// as the process lives.
func (s *Store) hear(ctx context.Context) error {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, ask := range []string{listenHints, listenChanged} {
		var statement string
		if err := conn.QueryRow(ctx, ask).Scan(&statement); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	open, err := s.presence.open(ctx, conn)
	if err != nil {
		return err
	}
	defer s.presence.close(open)
	s.horizon.listens(true)
	defer s.horizon.listens(false)
	signal(s.wake) // hints may have been lost before
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
		s.horizon.lower(parsePosition(n.Payload))
		signal(s.wake)
	}
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

const (
	sendChanged   = "select pg_notify('procaas documents ' || left(current_schema, 40), '')"
	listenChanged = "select format('listen %I', 'procaas documents ' || left(current_schema, 40))"
)

// changedPrefix begins the channel on which processes tell that documents have
// changed.
const changedPrefix = "procaas documents "

// notifyChanged tells the other processes; those that are not told look again by
// themselves.
func (s *Store) notifyChanged(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.tellChanged:
		}
		if _, err := s.pool.Exec(ctx, sendChanged); err != nil && !pause(ctx, time.Second) {
			return
		}
		if !pause(ctx, hintGap) {
			return
		}
	}
}
