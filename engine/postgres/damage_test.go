package postgres_test

import (
	"fmt"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/conformance"
	"procaas/engine/store"
)

// damaged opens an empty store whose rows can be changed by hand.
func damaged(t *testing.T) (store.Store, conformance.Damager) {
	dsn := enginetest.MigratedPostgres(t)
	s, c := open(t, dsn), connect(t, dsn)
	return s.Ports(), func(id, column string, value []byte) {
		arg := any(value)
		if column == "bundle" {
			arg = string(value)
		}
		if _, err := c.Exec(t.Context(), fmt.Sprintf("update runs set %s = $2 where id = $1", column), id, arg); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADamagedRowStopsOnlyItself(t *testing.T) {
	t.Parallel()
	db, damage := damaged(t)
	conformance.Damage(t, db, damage)
}

func TestADamagedEventDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	db, damage := damaged(t)
	conformance.DamagedAwait(t, db, damage)
}
