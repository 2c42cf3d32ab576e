package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What names processes.
var (
	NameProcess = nameProcess
	HasEnded    = hasEnded
)

// FindNext are the statements that look for the next run of a key.
var FindNext = map[string]string{"promote": promote, "promoteSlots": promoteSlots, "endPlain": endPlain}

// FirstQueued returns the part of these statements that looks.
var FirstQueued = firstQueued

// Age lets the session that a store has now be an hour old.
func (s *Store) Age() {
	s.presence.mu.Lock()
	defer s.presence.mu.Unlock()
	s.presence.session.since = s.presence.session.since.Add(-time.Hour)
}

// Pool returns the connections of a store.
func (s *Store) Pool() *pgxpool.Pool { return s.db.pool }
