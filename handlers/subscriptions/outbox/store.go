package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/pgkit"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// storePause is the longest pause between two looks at the store. Nothing notifies there: commits that notify wait for each other.
const storePause = 200 * time.Millisecond

// A stored source reads what programs have submitted with procaas_submit.
type stored struct{ *source }

// OfStore returns how to read what programs submit to the store of the node with procaas_submit. dsn is empty if the store is not one
// of PostgreSQL.
func OfStore(dsn string) broker.Open {
	return func(ctx context.Context, o broker.Options) (broker.Source, error) {
		if dsn == "" {
			return nil, errors.New("the store is no PostgreSQL, and only that has procaas_submit")
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		c, err := storeConfig(ctx, dsn, o.Connection.Client)
		if err != nil {
			return nil, err
		}
		s := &source{rows: firstRows, pause: firstPause, mostPause: storePause, message: submitted}
		if err := s.connect(ctx, []*pgx.ConnConfig{c}); err != nil {
			return nil, err
		}
		if s.table, err = find(ctx, s.reads, &language.Subscription{Table: language.Submitted}); err != nil {
			s.Close()
			return nil, err
		}
		return stored{s}, nil
	}
}

// Origin implements [broker.Source]. That a group has read the table is noted before it is read, and procaas_submit looks for that note.
func (stored) Origin() string { return language.Submitted }

// submitted makes a message of a row that procaas_submit has written. A row by anybody else may be anything.
func submitted(_ string, key []string, body []byte) broker.Message {
	var row struct {
		Type      string          `json:"type"`
		Key       string          `json:"key"`
		Event     string          `json:"event"`
		Payload   json.RawMessage `json:"payload"`
		CreatedAt time.Time       `json:"created_at"`
	}
	if err := json.Unmarshal(body, &row); err != nil || row.Event == "" {
		return rowOf(language.Submitted, key, body)
	}
	return broker.Message{
		ID: row.Event, Subject: row.Type, Key: row.Key, Headers: map[string]any{}, Body: row.Payload, Time: row.CreatedAt, Receipt: key,
	}
}

// storeConfig returns how to connect to the store.
func storeConfig(ctx context.Context, dsn, client string) (*pgx.ConnConfig, error) {
	config, err := pgkit.ParseOperators(ctx, dsn)
	if err != nil {
		return nil, err
	}
	c := config.ConnConfig
	c.RuntimeParams = maps.Clone(c.RuntimeParams)
	maps.Copy(c.RuntimeParams, sessions(client))
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	return c, nil
}

const (
	nextSubmitted  = "select id, to_json(s)::text from submitted s where id > $1 order by id limit 100"
	eraseSubmitted = "delete from submitted where id = any($1::bigint[])"
)

// EraseSubmitted counts what programs have submitted to the store at dsn, and no node has taken yet, as far as is reports it. It removes
// that if remove is set.
func EraseSubmitted(ctx context.Context, dsn string, is func(*broker.Message) bool, remove bool) (found int, err error) {
	config, err := storeConfig(ctx, dsn, "procaas-erase")
	if err != nil {
		return 0, err
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	for last := int64(0); ; {
		rows, err := c.Query(ctx, nextSubmitted, last)
		if err != nil {
			return found, err
		}
		var id int64
		var body string
		var gone []int64
		all, err := pgx.ForEachRow(rows, []any{&id, &body}, func() error {
			if m := submitted(language.Submitted, []string{strconv.FormatInt(id, 10)}, []byte(body)); is(&m) {
				gone = append(gone, id)
			}
			last = id
			return nil
		})
		if err == nil && remove && len(gone) > 0 {
			_, err = c.Exec(ctx, eraseSubmitted, gone)
		}
		if err != nil {
			return found, err
		}
		found += len(gone)
		if all.RowsAffected() == 0 {
			return found, nil
		}
	}
}
