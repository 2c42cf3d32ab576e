package postgres_test

import (
	"strings"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/postgres"
	"procaas/engine/store"
)

// A cell has only some of the keys, and its runs and tasks have ids of its own. A node that took it
// for the whole store would accept events that belong elsewhere.
func TestOpenRefusesACellAsAWholeStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id   store.CellID
		want string
	}{
		{store.CellID{Inbox: "i", Name: "home"}, "of which this is the home: name the others by --cell"},
		{store.CellID{Inbox: "i", Name: "b", Number: 1}, "--cell b="},
	} {
		dsn := enginetest.MigratedPostgres(t)
		whole := open(t, dsn) // not enrolled
		if err := whole.Cell().Enrolment.Enroll(t.Context(), c.id, c.id.Number == 0); err != nil {
			t.Fatal(err)
		}
		if s, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: have %v, want an error with %q", c.id.Name, err, c.want)
			if err == nil {
				s.Close()
			}
		}
		s, err := postgres.Open(t.Context(), dsn, postgres.Options{Migrate: true, Cell: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if have, err := s.Cell().Enrolment.EnrolledAs(t.Context()); err != nil || have != c.id {
			t.Errorf("have cell %+v, %v, want %+v", have, err, c.id)
		}
	}
}
