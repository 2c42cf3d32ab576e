package expr

import (
	"testing"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// benchmarked are the expressions whose speed is watched.
var benchmarked = []struct{ name, source string }{
	{"seed", `event.payload['is-authorized'] and order.info['tariff'] in ['econom', 'business'] and configs['SOME_IMPORTANT_SWITCH'].enabled`},
	{"path", `sources.get-order.response.order-document`},
	{"literal", `{id: order.id, tariff: order.info['tariff'], driver: driver-id, fixed: [1, 2, 3]}`},
	{"loop", `sum(map(order.items, .price * 2))`},
}

func BenchmarkExprCompile(b *testing.B) {
	for _, bm := range benchmarked {
		b.Run(bm.name, func(b *testing.B) {
			sc := goldenScope()
			b.ReportAllocs()
			for b.Loop() {
				var r diag.Reporter
				newExpr(bm.source).Compile(sc, datum.AnyKind, &r)
			}
		})
	}
}

func BenchmarkExprEval(b *testing.B) {
	for _, bm := range benchmarked {
		b.Run(bm.name, func(b *testing.B) {
			e, env := mustExpr(b, bm.source), goldenEnv()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Eval(env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkExprTrace(b *testing.B) {
	for _, bm := range benchmarked {
		b.Run(bm.name, func(b *testing.B) {
			e, env := mustExpr(b, bm.source), goldenEnv()
			b.ReportAllocs()
			for b.Loop() {
				if t := e.Trace(b.Context(), env); t.Error != "" {
					b.Fatal(t.Error)
				}
			}
		})
	}
}
