package problem_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/api/problem"
	"procaas/engine/store"
)

// A store without room is told from one that is away. A call that only reads has no effect to be unsure of.
func TestErrorsOfTheStoreAreTold(t *testing.T) {
	t.Parallel()
	const unsure = "; it is unknown whether the call took effect, so repeat it with the same ids"
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("connection refused"), "the store could not be reached in time"},
		{fmt.Errorf("accept: %w", store.ErrNoRoom), "the disk of the store is full: make room there"},
		{fmt.Errorf("accept: %w", &pgconn.PgError{Code: "53100"}), "the disk of the store is full: make room there"},
		{fmt.Errorf("accept: %w", &pgconn.PgError{Code: "57P01"}), "the store could not be reached in time"},
	} {
		if p := problem.Of(c.err); p.Detail != c.want+unsure || p.Code != problem.StoreUnavailable {
			t.Errorf("%v: have %s, %s", c.err, p.Code, p.Detail)
		}
		if p := problem.OfRead(c.err); p.Detail != c.want+"; ask again in a moment" {
			t.Errorf("%v of a read: have %s", c.err, p.Detail)
		}
	}
}
