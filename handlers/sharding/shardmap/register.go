package shardmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/dsl/datum"
	"procaas/handlers/sharding/language"
)

// A registrar places unknown keys.
type registrar struct{ *Map }

// register places a key without a placement, and completes an unfinished registration. Keys of
// several parts are registered by their first one, once for all concurrent callers.
func (m registrar) register(ctx context.Context, key string) (Placement, error) {
	k, err := parseKey(key)
	if err != nil {
		return Placement{}, err
	}
	for {
		done := m.registering.DoChan(k[0], func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.service.patience()+time.Second)
			defer cancel()
			return m.registerOne(ctx, key, Key{k[0]}.String())
		})
		select {
		case r := <-done:
			p, _ := r.Val.(Placement)
			if r.Err == nil && !p.covers(key) {
				continue // the first caller asked for another key below the same part, which has its own placement
			}
			if r.Err == nil && p.State == Ready {
				feeder{m.Map}.learn(p)
			}
			return p, r.Err
		case <-ctx.Done():
			return Placement{}, ctx.Err()
		}
	}
}

func (m registrar) registerOne(ctx context.Context, key, first string) (Placement, error) {
	p, err := m.Find(ctx, key)
	switch {
	case err == nil && p.State == Creating:
		return m.Complete(ctx, p)
	case err == nil && p.State == Refused:
		return p, ErrUnknownKey
	case !errors.Is(err, ErrUnknownKey):
		return p, err
	}
	r := m.Declared.Registration
	if r == nil || !r.Lazy || m.layout.strategy != "directory" {
		return p, ErrUnknownKey
	}
	// Outside of a transaction, because the service may take a while.
	attrs, err := m.confirm(ctx, r, first)
	if err != nil {
		return p, err
	}
	shard, err := m.draw(ctx, first, attrs)
	if err != nil {
		return p, err
	}
	if r.TwoPhase {
		return pairing{m.Map}.placeAtOnce(ctx, first, shard, attrs)
	}
	return m.Place(ctx, first, shard, attrs)
}

// maxAttrs bounds the reply of a check, in bytes.
const maxAttrs = 64 << 10

// confirm asks whether a key may be registered, and for its attributes.
func (m registrar) confirm(ctx context.Context, r *language.ShardRegistration, key string) (map[string]any, error) {
	if r.Check == "" {
		return map[string]any{}, nil
	}
	u, err := url.Parse(r.Check)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("key", firstPart(key))
	u.RawQuery = q.Encode()
	ctx, cancel := context.WithTimeout(ctx, r.CheckTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	reply, err := m.service.o.HTTP.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: the check of map %s cannot be asked: %w", ErrBusy, m.ID, err)
	}
	defer reply.Body.Close()
	switch reply.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, ErrUnknownKey // not cached: the key may exist a moment later
	default:
		return nil, fmt.Errorf("%w: the check of map %s answers %s", ErrBusy, m.ID, reply.Status)
	}
	data, err := io.ReadAll(io.LimitReader(reply.Body, maxAttrs))
	if err != nil {
		return nil, fmt.Errorf("%w: the check of map %s: %w", ErrBusy, m.ID, err)
	}
	attrs := map[string]any{}
	if len(data) > 0 && json.Unmarshal(data, &attrs) != nil {
		return nil, fmt.Errorf("%w: the check of map %s answers no JSON object", ErrBusy, m.ID)
	}
	return attrs, nil
}

// A home is a shard that can get new keys.
type home struct {
	id, class string
	open      bool
	free      int64 // bytes
}

const readHomes = `select id, class, registration and closed is null and draining is null, greatest(capacity - coalesce(used, 0), 1)
	from shards where map = $1 and declared order by id`

// draw chooses a shard for a new key by the rules.
func (m registrar) draw(ctx context.Context, key string, attrs map[string]any) (string, error) {
	rows, err := m.service.pool.Query(ctx, readHomes, m.ID)
	if err != nil {
		return "", fmt.Errorf("map %s: read shards: %w", m.ID, err)
	}
	homes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h home, err error) {
		return h, row.Scan(&h.id, &h.class, &h.open, &h.free)
	})
	if err != nil {
		return "", fmt.Errorf("map %s: read shards: %w", m.ID, err)
	}
	fit, err := m.fit(homes, key, attrs)
	if err != nil {
		return "", err
	}
	if len(fit) == 0 {
		return "", fmt.Errorf("map %s: no shard is open for key %q: %w", m.ID, key, ErrClosed)
	}
	return drawHome(fit, rand.Float64()), nil
}

// fit lists the shards for a new key: those of the first matching rule, or all open ones.
func (m registrar) fit(homes []home, key string, attrs map[string]any) ([]home, error) {
	env := datum.Env{"event": map[string]any{"key": firstPart(key), "payload": attrs}}
	for i, rule := range m.Declared.Registration.Rules {
		holds := true
		if rule.When != nil {
			v, err := rule.When.Eval(env)
			if err != nil {
				return nil, fmt.Errorf("map %s: rule %d of registration: key %q: %w: %w", m.ID, i+1, key, ErrClosed, err)
			}
			holds, _ = v.(bool)
		}
		if !holds {
			continue
		}
		return slices.DeleteFunc(slices.Clone(homes), func(h home) bool {
			if len(rule.Shards) > 0 {
				return !slices.Contains(rule.Shards, h.id)
			}
			return !h.open || h.class != rule.Class
		}), nil
	}
	return slices.DeleteFunc(slices.Clone(homes), func(h home) bool { return !h.open }), nil
}

// drawHome chooses a shard with a probability in proportion to its free space. at is from 0 to 1.
func drawHome(homes []home, at float64) string {
	total := 0.0
	for _, h := range homes {
		total += float64(h.free)
	}
	at *= total
	for _, h := range homes {
		at -= float64(h.free)
		if at < 0 {
			return h.id
		}
	}
	return homes[len(homes)-1].id
}
