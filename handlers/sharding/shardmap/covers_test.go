package shardmap

import (
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgxpool"

	"procaas/dsl/spec"
	"procaas/handlers/sharding/language"
)

// A caller that asks for a key while another key below the same part is registered gets the placement of its own
// key, or an error, but never that of the other one: the guard would let it write to the wrong shard.
func TestOneRegistrationDoesNotAnswerForAnotherKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nobody?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		m := (&Service{pool: pool}).newMap(&language.ShardMap{ID: "mail", Key: spec.Names{"user", "folder"}, Strategy: "directory", KeyType: "text"})
		release := make(chan struct{})
		m.registering.DoChan("42", func() (any, error) {
			<-release
			return Placement{Map: "mail", Key: "42/inbox", Shard: "s1", Epoch: 1, State: Ready}, nil
		})
		var got Placement
		var failed error
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, failed = registrar{m}.register(t.Context(), "42/archive")
		}()
		synctest.Wait() // it waits for the current registration
		close(release)
		<-done
		if got.Key != "" || failed == nil {
			t.Errorf("42/archive is told to be at %+v, %v; want the error of its own registration, whose database is away", got, failed)
		}
	})
	for _, c := range []struct {
		placement, key string
		want           bool
	}{
		{"42", "42", true},
		{"42", "42/inbox", true},
		{"42/inbox", "42/archive", false},
		{"42/in", "42/inbox", false},
		{"#7", "42", true},
		{"[", "42", true},
		{"", "42", false},
	} {
		if have := (Placement{Key: c.placement}).covers(c.key); have != c.want {
			t.Errorf("%q covers %q: %v, want %v", c.placement, c.key, have, c.want)
		}
	}
}
