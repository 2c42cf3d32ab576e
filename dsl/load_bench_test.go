package dsl_test

import (
	"fmt"
	"strings"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
)

// thousand makes files of 1,000 pipelines with 3 stages of 3 handlers each, as
// a large company has them: 50 files of 20 pipelines.
func thousand() []diag.File {
	var files []diag.File
	for f := range 50 {
		var b strings.Builder
		b.WriteString("pipelines:\n")
		for p := range 20 {
			writePipeline(&b, fmt.Sprintf("pipeline-%d-%d", f, p))
		}
		files = append(files, diag.File{Name: fmt.Sprintf("team-%02d.yaml", f), Data: []byte(b.String())})
	}
	return files
}

func writePipeline(b *strings.Builder, id string) {
	fmt.Fprintf(b, "  - id: %s\n    shared-state: {order: null, n0: 0, n1: 0, n2: 0}\n    stages:\n", id)
	for s := range 3 {
		fmt.Fprintf(b, "      - id: stage-%d\n        handlers:\n", s)
		for h := range 3 {
			fmt.Fprintf(b, `          - id: handler-%d-%d
            critical: %t
            enabled: !$ |
              event.payload['is-authorized'] and
              event.payload.tariff in ['econom', 'business']
            request:
              url: http://127.0.0.1:9081/v1/orders
              query: {id: !$ "event.payload['order-id']", n: !$ shared-state.n0 + %d}
            result:
              n%d: !$ sources.handler-%d-%d.response.n ?? 0
            retry: {attempts: 3, min-delay: 100ms, on: [timeout, 5xx]}
`, s, h, h == 0, h, h, s, h)
		}
	}
}

// BenchmarkLoad1000 loads 1,000 pipelines: read, merge, check, compile, prove.
func BenchmarkLoad1000(b *testing.B) {
	files := thousand()
	size := 0
	for _, f := range files {
		size += len(f.Data)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		bundle, found := dsl.Load(files, dsl.Options{Language: language(), Types: testTypes()})
		if bundle == nil {
			b.Fatal(show(found))
		}
	}
}

// TestLoadingGrowsWithThePipelines compares what the checks of four times as many
// pipelines cost, in allocations: time would depend on the machine.
func TestLoadingGrowsWithThePipelines(t *testing.T) {
	files := thousand()
	cost := func(n int) float64 {
		return testing.AllocsPerRun(1, func() {
			if bundle, found := dsl.Load(files[:n], dsl.Options{Language: language(), Types: testTypes()}); bundle == nil {
				t.Fatal(show(found))
			}
		})
	}
	if few, many := cost(1), cost(4); many > 5*few {
		t.Errorf("four times as many files cost %.1f times as much, want at most 5", many/few)
	}
}
