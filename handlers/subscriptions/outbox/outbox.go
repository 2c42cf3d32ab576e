// Package outbox reads tables of PostgreSQL for subscriptions: a service writes rows in its own transactions, and each becomes an event.
package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"procaas/handlers/subscriptions/broker"
)

// Channel is where a service may notify the reader, which then looks at once.
const Channel = "procaas_outbox"

const (
	timeout = 10 * time.Second

	// The reader looks at an empty table after firstPause, and then less and less often.
	firstPause = 20 * time.Millisecond
	mostPause  = time.Second

	// firstRows is how many rows the first statement asks for, which does not bound their bytes.
	firstRows = 16

	mostText = 1<<20 + 1 // how many characters are read of a row; one that has so many is too large for an event
	mostLag  = 100_000   // to count more would take the server too long
)

// A source reads a table as long as it is open. It holds neither locks nor a transaction while events are stored.
//
// A sequence numbers rows before they are committed, so a row may appear before one with a smaller number. The source remembers no place
// in the order therefore. It takes the first rows that are there, without those that it has handed out, and removes or marks them when they
// are durable. A row that it never removed comes again. So does each row if another node reads, too.
type source struct {
	*table
	reads *pgx.Conn // of the goroutine that calls Fetch
	rows  int       // how many rows the next statement asks for
	pause time.Duration
	woken bool // a service has notified since the last look

	mostPause time.Duration
	message   func(table string, key []string, body []byte) broker.Message

	mu     sync.Mutex // guards writes
	writes *pgx.Conn

	handed sync.Mutex // guards held
	held   [][]string // keys of rows that were handed out, in their order
}

// Open connects to the first server that answers.
func Open(ctx context.Context, o broker.Options) (broker.Source, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all, err := configs(o.Connection)
	if err != nil {
		return nil, err
	}
	s := &source{rows: firstRows, pause: firstPause, mostPause: mostPause, message: rowOf}
	if err := s.connect(ctx, all); err != nil {
		return nil, err
	}
	if s.table, err = find(ctx, s.reads, o.Subscription); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Fetch implements [broker.Source].
func (s *source) Fetch(ctx context.Context) ([]broker.Message, error) {
	s.woken = false
	out, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if len(out) > 0 {
		s.pause = firstPause
		return out, nil
	}
	if s.woken {
		return nil, nil
	}
	wait, cancel := context.WithTimeout(ctx, s.pause)
	defer cancel()
	err = s.reads.PgConn().WaitForNotification(wait)
	switch {
	case err == nil:
		s.pause = firstPause
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case wait.Err() == nil || s.reads.IsClosed():
		return nil, err
	default:
		s.pause = min(2*s.pause, s.mostPause)
	}
	return nil, nil
}

// look takes the next rows.
func (s *source) look(ctx context.Context) (out []broker.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rows, err := s.reads.Query(ctx, s.fetch, append([]any{s.rows}, s.columns(s.taken())...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys [][]string
	size := 0
	for size < broker.MaxBytes && rows.Next() {
		var key []string
		var body []byte
		if err := rows.Scan(&key, &body); err != nil {
			return nil, err
		}
		m := s.message(s.name, key, body)
		keys, out, size = append(keys, key), append(out, m), size+m.Size()
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("table %s: %w", s.name, err)
	}
	if len(out) > 0 {
		s.rows = min(broker.MaxMessages, 4*s.rows, max(1, 2*len(out)*broker.MaxBytes/size)) // about as many as there is room for
	}
	s.handed.Lock()
	defer s.handed.Unlock()
	s.held = append(s.held, keys...)
	return out, nil
}

// taken returns the keys of rows that were handed out. It is called before a statement looks: what is removed from it later is still
// left out.
func (s *source) taken() [][]string {
	s.handed.Lock()
	defer s.handed.Unlock()
	return s.held[:len(s.held):len(s.held)]
}

// columns returns an array for each column of keys.
func (s *source) columns(keys [][]string) []any {
	out := make([]any, s.keys)
	for i := range out {
		column := make([]string, len(keys))
		for j, key := range keys {
			column[j] = key[i]
		}
		out[i] = column
	}
	return out
}

// plain are keys that can be read in an id.
var plain = regexp.MustCompile(`^[A-Za-z0-9._:+-]{1,48}$`)

// rowOf makes a message of a row. Its id has the primary key, and a hash of the row: a table that was emptied, or restored from a backup,
// may use its keys again.
func rowOf(table string, key []string, body []byte) broker.Message {
	place := strings.Join(key, ":")
	if !plain.MatchString(place) {
		place = fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(key, "\x00"))))[:32]
	}
	hash := sha256.Sum256(body)
	m := broker.Message{
		ID: fmt.Sprintf("%s/%s-%x", table, place, hash[:6]), Subject: table, Headers: map[string]any{}, Body: body, Time: time.Now(), Receipt: key,
	}
	describe(&m)
	return m
}

// describe takes what columns with a known name say, if the table has them.
func describe(m *broker.Message) {
	var row struct {
		Key       json.RawMessage `json:"key"`
		Headers   json.RawMessage `json:"headers"`
		CreatedAt json.RawMessage `json:"created_at"`
	}
	if json.Unmarshal(m.Body, &row) != nil {
		return // it was cut, and becomes a dead letter
	}
	if json.Unmarshal(row.Key, &m.Key) != nil { // a number
		m.Key = string(row.Key)
	}
	var headers map[string]any
	_ = json.Unmarshal(row.Headers, &headers)
	for name, value := range headers {
		m.Headers[strings.ToLower(name)] = value
	}
	var at string
	_ = json.Unmarshal(row.CreatedAt, &at)
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} { // without a zone, it is that of the session
		if at, err := time.Parse(layout, at); err == nil {
			m.Time = at
		}
	}
}

// Done implements [broker.Source].
func (s *source) Done(ctx context.Context, messages []broker.Message) error {
	keys := make([][]string, len(messages))
	for i, m := range messages {
		keys[i] = m.Receipt.([]string)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s.mu.Lock()
	_, err := s.writes.Exec(ctx, s.done, s.columns(keys)...)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("take rows out of table %s: %w", s.name, err)
	}
	s.handed.Lock()
	defer s.handed.Unlock()
	s.held = s.held[len(messages):]
	return nil
}

// Lag implements [broker.Source]. It counts at most mostLag rows.
func (s *source) Lag(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.writes.QueryRow(ctx, s.lag).Scan(&n)
	return n, err
}

// Origin implements [broker.Source]. The table keeps no place, so nothing can be forgotten.
func (s *source) Origin() string { return "" }

// Most implements [broker.Source].
func (s *source) Most() int { return utf8.UTFMax * mostText }

// Close implements [broker.Source].
func (s *source) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, c := range []*pgx.Conn{s.reads, s.writes} {
		if c != nil {
			_ = c.Close(ctx)
		}
	}
	s.reads, s.writes = nil, nil
}
