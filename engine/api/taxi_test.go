package api_test

import (
	"testing"

	"procaas/dsl"
)

func taxi(t testing.TB) *dsl.Bundle {
	return &dsl.Bundle{Pipelines: []*dsl.Pipeline{{ID: "new-order-created", Flow: "taxi-order"}, {ID: "driver-found", Flow: "taxi-order"}, {ID: "order-finished", Flow: "taxi-order"}, {ID: "mail", On: dsl.Names{"mail-wanted"}, Owner: "team-mail"}}}
}
