package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// ahead is how many decoded events are buffered: enough to fill a batch while another one
	// commits.
	ahead = 512

	// confirmEvery is how often the server is told what it may discard.
	confirmEvery = time.Second
)

type eventKind byte

const (
	atBegin    eventKind = iota // start of a transaction that commits at lsn
	atChange                    // of a row
	atCommit                    // lsn is after the transaction
	atIdle                      // everything before lsn was sent
	atTruncate                  // of the table rel
)

type event struct {
	kind eventKind
	lsn  pglogrepl.LSN
	rel  *pglogrepl.RelationMessage
	op   byte // I, U or D
	old  *pglogrepl.TupleData
	new  *pglogrepl.TupleData
}

// A stream reads a replication slot.
type stream struct {
	conn    *pgconn.PgConn
	events  chan event
	done    chan struct{} // closed when the reader has ended
	err     error         // of the reader; read it after done
	cancel  context.CancelFunc
	durable atomic.Uint64 // the target has stored everything up to here
	sent    atomic.Uint64 // last known end of the source's log
}

// replicationDSN returns a connection string for replication.
func replicationDSN(dsn string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " replication=database", nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the connection string of a shard is no URL")
	}
	q := u.Query()
	q.Set("replication", "database")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

func connectReplication(ctx context.Context, dsn string) (*pgconn.PgConn, error) {
	dsn, err := replicationDSN(dsn)
	if err != nil {
		return nil, err
	}
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the connection string of a shard is not understood")
	}
	// The server writes the values of the stream by the settings of this session. An exported
	// snapshot is an idle transaction, which lasts as long as the copy.
	maps.Copy(config.RuntimeParams, settings)
	maps.Copy(config.RuntimeParams, Texts)
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect for replication: %w", err)
	}
	return conn, nil
}

// openStream starts to read a slot after a position. Close ends the reader.
func openStream(ctx context.Context, dsn, slot string, from pglogrepl.LSN) (*stream, error) {
	conn, err := connectReplication(ctx, dsn)
	if err != nil {
		return nil, err
	}
	options := pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names " + literal(quote(slot))},
	}
	if err := pglogrepl.StartReplication(ctx, conn, slot, from, options); err != nil {
		closeNow(conn)
		return nil, streamError(fmt.Errorf("read slot %s: %w", slot, err))
	}
	// The stream outlives the call that opens it, because later steps of the mover continue with
	// it.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// See ahead for the size.
	s := &stream{conn: conn, events: make(chan event, ahead), done: make(chan struct{}), cancel: cancel}
	s.durable.Store(uint64(from))
	go func() {
		defer close(s.done)
		defer closeNow(conn)
		s.err = s.read(own)
	}()
	return s, nil
}

// streamError requires a new copy if somebody has dropped the slot or the publication.
func streamError(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42704" { // undefined_object
		return &RestartError{err.Error()}
	}
	return err
}

// close ends the reader and waits for it.
func (s *stream) close() {
	s.cancel()
	<-s.done
}

func closeNow(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it is no longer needed
}

// read decodes until the context or the connection ends.
func (s *stream) read(ctx context.Context) error {
	// The server describes a table once per connection, before its first change, and again after it
	// was altered.
	relations := map[uint32]*pglogrepl.RelationMessage{}
	next := time.Now().Add(confirmEvery)
	for {
		if time.Now().After(next) {
			if err := s.confirm(ctx); err != nil {
				return err
			}
			next = time.Now().Add(confirmEvery)
		}
		wait, cancel := context.WithDeadline(ctx, next)
		msg, err := s.conn.ReceiveMessage(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			_ = s.confirm(context.WithoutCancel(ctx)) // so that a resumed stream starts later; without it, it repeats changes
			return ctx.Err()
		case err != nil && pgconn.Timeout(err):
			continue
		case err != nil:
			return fmt.Errorf("stream: %w", err)
		}
		if err := s.take(ctx, msg, relations, &next); err != nil {
			return err
		}
	}
}

func (s *stream) confirm(ctx context.Context) error {
	lsn := pglogrepl.LSN(s.durable.Load())
	err := pglogrepl.SendStandbyStatusUpdate(ctx, s.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: lsn})
	if err != nil {
		return fmt.Errorf("confirm the stream: %w", err)
	}
	return nil
}

func (s *stream) take(ctx context.Context, msg pgproto3.BackendMessage, relations map[uint32]*pglogrepl.RelationMessage,
	next *time.Time,
) error {
	switch msg := msg.(type) {
	case *pgproto3.ErrorResponse:
		return streamError(fmt.Errorf("stream: %w", pgconn.ErrorResponseToPgError(msg)))
	case *pgproto3.CopyData:
		switch msg.Data[0] {
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			k, err := pglogrepl.ParsePrimaryKeepaliveMessage(msg.Data[1:])
			if err != nil {
				return fmt.Errorf("stream: %w", err)
			}
			if k.ReplyRequested {
				*next = time.Time{}
			}
			s.sent.Store(max(s.sent.Load(), uint64(k.ServerWALEnd)))
			return s.put(ctx, event{kind: atIdle, lsn: k.ServerWALEnd})
		case pglogrepl.XLogDataByteID:
			x, err := pglogrepl.ParseXLogData(msg.Data[1:])
			if err != nil {
				return fmt.Errorf("stream: %w", err)
			}
			s.sent.Store(max(s.sent.Load(), uint64(x.ServerWALEnd)))
			return s.decode(ctx, x.WALData, relations)
		}
	}
	return nil
}

// decode converts a message of pgoutput to events.
func (s *stream) decode(ctx context.Context, data []byte, relations map[uint32]*pglogrepl.RelationMessage) error {
	m, err := pglogrepl.Parse(data)
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	switch m := m.(type) {
	case *pglogrepl.BeginMessage:
		return s.put(ctx, event{kind: atBegin, lsn: m.FinalLSN})
	case *pglogrepl.CommitMessage:
		return s.put(ctx, event{kind: atCommit, lsn: m.TransactionEndLSN})
	case *pglogrepl.RelationMessage:
		relations[m.RelationID] = m
	case *pglogrepl.InsertMessage:
		return s.put(ctx, event{kind: atChange, op: 'I', rel: relations[m.RelationID], new: m.Tuple})
	case *pglogrepl.UpdateMessage:
		return s.put(ctx, event{kind: atChange, op: 'U', rel: relations[m.RelationID], old: m.OldTuple, new: m.NewTuple})
	case *pglogrepl.DeleteMessage:
		return s.put(ctx, event{kind: atChange, op: 'D', rel: relations[m.RelationID], old: m.OldTuple})
	case *pglogrepl.TruncateMessage:
		for _, id := range m.RelationIDs {
			if err := s.put(ctx, event{kind: atTruncate, rel: relations[id]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// put passes an event on. While the applier is busy, it keeps confirming, because a server drops a
// silent consumer.
func (s *stream) put(ctx context.Context, e event) error {
	select {
	case s.events <- e:
		return nil
	default:
	}
	tick := time.NewTicker(confirmEvery)
	defer tick.Stop()
	for {
		select {
		case s.events <- e:
			return nil
		case <-tick.C:
			if err := s.confirm(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next returns an event. ok is false if none is available and wait is false.
func (s *stream) next(ctx context.Context, wait bool) (e event, ok bool, err error) {
	select {
	case e := <-s.events:
		return e, true, nil
	default:
	}
	if !wait {
		return event{}, false, nil
	}
	select {
	case e := <-s.events:
		return e, true, nil
	case <-s.done:
		select {
		case e := <-s.events:
			return e, true, nil
		default:
			return event{}, false, s.err
		}
	case <-ctx.Done():
		return event{}, false, ctx.Err()
	}
}
