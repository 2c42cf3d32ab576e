package sharding_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

const registering = `shard-maps:
  - id: mail
    key: [user, folder]
    CONNECT
    registration:
      check: CHECK
      check-timeout: 1m
      two-phase: TWOPHASE
      rules:
        - {when: !$ "event.key == 'dev-1'", shards: [s2]}
        - {when: !$ event.payload.country == 'ru', class: hot}
        - {class: cold}
    shards:
      - {id: s1, class: hot, hosts: [{address: HOST1}]}
      - {id: s2, class: cold, registration: false, hosts: [{address: HOST2}]}
`

// Many processes ask for the same unknown keys at once: each key is registered once, where
// the rules say, and can be written to at once.
func TestAStormOfQuestionsRegistersAKeyOnce(t *testing.T) {
	t.Parallel()
	for _, twoPhase := range []string{"false", "true"} {
		t.Run("two-phase "+twoPhase, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			check := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if strings.HasPrefix(r.URL.Query().Get("key"), "nobody") {
					http.NotFound(w, r)
					return
				}
				fmt.Fprint(w, `{"country": "ru"}`)
			}))
			t.Cleanup(check.Close)
			r := newRig(t, strings.NewReplacer("CHECK", check.URL, "TWOPHASE", twoPhase).Replace(registering))
			m := r.enroll("mail")
			services := []*shardmap.Service{r.Service}
			for range 2 {
				s, err := shardmap.Open(t.Context(), shardmap.Options{DSN: r.dsn, Maps: r.declared, Patience: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				services = append(services, s)
			}
			const keys = 6
			answers := make([][]transfers.ShardAnswer, keys)
			var wg sync.WaitGroup
			for k := range keys {
				answers[k] = make([]transfers.ShardAnswer, 3*len(services))
				for i := range answers[k] {
					wg.Go(func() {
						a, err := resolve(t, services[i%len(services)], transfers.ShardQuestion{Key: fmt.Sprintf("u%d/f%d", k, i)})
						if err != nil {
							t.Error(err)
						}
						answers[k][i] = a
					})
				}
			}
			wg.Wait()
			for k := range keys {
				for _, a := range answers[k] {
					if a.Shard != "s1" || a.Placement != fmt.Sprintf("u%d", k) || a.Epoch != 1 {
						t.Errorf("key u%d: %+v", k, a)
					}
				}
				if state := r.guard("s1", shardmap.Placement{Map: "mail", Key: fmt.Sprintf("u%d", k), Epoch: 1}); state != "" {
					t.Errorf("guard of u%d: %s", k, state)
				}
			}
			if a, err := resolve(t, r.Service, transfers.ShardQuestion{Key: "dev-1"}); err != nil || a.Shard != "s2" {
				t.Errorf("a pinned key: %+v, %v", a, err)
			}
			before := asked.Load()
			for _, q := range []transfers.ShardQuestion{{Key: "nobody-1"}, {Key: "u99", Known: true}} {
				if _, err := r.Resolve(t.Context(), "mail", q); !errors.Is(err, transfers.ErrUnplaced) {
					t.Errorf("%s: %v", q.Key, err)
				}
			}
			if asked.Load() != before+1 {
				t.Errorf("the check was asked %d times more, want once", asked.Load()-before)
			}
			if _, err := m.Find(t.Context(), "u99"); !errors.Is(err, shardmap.ErrUnknownKey) {
				t.Errorf("a question that forbids it has registered a key: %v", err)
			}
			for _, side := range []string{"s1", "s2", "map"} {
				var left int
				r.ask(side, "select count(*) from pg_prepared_xacts where database = current_database()", &left)
				if left != 0 {
					t.Errorf("%d prepared transactions are left on %s", left, side)
				}
			}
		})
	}
}

func TestKeysWithoutAnOpenShardAreRefused(t *testing.T) {
	t.Parallel()
	check := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(check.Close)
	r := newRig(t, strings.NewReplacer("CHECK", check.URL, "TWOPHASE", "false").Replace(registering))
	r.enroll("mail")
	if _, err := r.Resolve(t.Context(), "mail", transfers.ShardQuestion{Key: "u1"}); !errors.Is(err, transfers.ErrShardBusy) {
		t.Errorf("the only cold shard is closed: %v", err)
	}
	full := "disk"
	if v, err := r.SetShard(t.Context(), "mail", "s1", transfers.ShardChange{Closed: &full}, store.Actor{}); err != nil || v.Registration ||
		v.Closed != full {
		t.Errorf("closed: %+v, %v", v, err)
	}
}

// A process dies at each point of a registration in two phases: the sweeper ends it.
func TestSweeperEndsRegistrationsOfTheDead(t *testing.T) {
	t.Parallel()
	r := newRig(t, strings.NewReplacer("CHECK", `""`, "TWOPHASE", "true").Replace(registering))
	m, ctx := r.enroll("mail"), t.Context()
	row := func(key string) string {
		return fmt.Sprintf("begin; insert into shard_placements (map, key, shard) values ('mail', '%[1]s', 's1'); prepare transaction "+
			"'procaas:map:mail:%[1]s'", key)
	}
	fence := func(key string) string {
		return fmt.Sprintf("begin; select procaas.fence('mail', '%[1]s', 1, 'active', null, null, 0); prepare transaction "+
			"'procaas:shard:mail:s1:%[1]s'", key)
	}
	r.exec("map", row("row-only"))
	r.exec("map", row("both"))
	r.exec("map", row("fence-committed"))
	r.exec("s1", "select procaas.fence('mail', 'fence-committed', 1, 'active', null, null, 0)")
	r.exec("s1", fence("both"))
	r.exec("s1", fence("fence-only"))
	r.exec("map", "insert into shard_placements (map, key, shard) values ('mail', 'row-committed', 's1')")
	r.exec("s1", fence("row-committed"))
	if swept, err := m.Sweep(ctx, 0, true); err != nil || len(swept) != 6 {
		t.Errorf("dry run: %+v, %v", swept, err)
	}
	if _, err := m.Sweep(ctx, 0, false); err != nil {
		t.Fatal(err)
	}
	for key, there := range map[string]bool{
		"row-only": false, "both": true, "fence-committed": true, "fence-only": false,
		"row-committed": true,
	} {
		p, err := m.Find(ctx, key)
		if (err == nil) != there || there && p.State != shardmap.Ready {
			t.Errorf("%s: %+v, %v; want it there: %v", key, p, err, there)
		}
		if state := r.guard("s1", shardmap.Placement{Map: "mail", Key: key, Epoch: 1}); (state == "") != there {
			t.Errorf("guard of %s: %q, want it there: %v", key, state, there)
		}
	}
	if swept, err := m.Sweep(ctx, 0, false); err != nil || len(swept) != 0 {
		t.Errorf("a second sweep: %+v, %v", swept, err)
	}
}
