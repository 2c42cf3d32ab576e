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

// An Answer is what a process hears of a committed transaction, in the order of the answers: the server that it was on, where that
// server's recovery and its log ended, and how many answers had come when the transaction was sent.
type Answer struct {
	Started       time.Time
	Replayed, LSN int64
	SentAfter     int
}

// NoteAll notes answers, and returns what each comes to.
func NoteAll(answers ...Answer) (all []error) {
	a := &acknowledged{}
	known := []mark{{}}
	for i, one := range answers {
		m := mark{system: 1, started: one.Started, replayed: one.Replayed, lsn: one.LSN, xid: int64(i) + 1}
		all = append(all, a.note(m, known[one.SentAfter]))
		known = append(known, a.last)
	}
	return all
}
