package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
)

// benched finds a result of go test -bench.
var benched = regexp.MustCompile(`^Benchmark(\w+)/\S+\s+\d+\s+([\d.]+) ns/op\s+\d+ B/op\s+(\d+) allocs/op`)

// measureExpressions runs the Go benchmarks of expressions. Their spread is that between expressions, not between rounds.
func measureExpressions(ctx context.Context, b *bench) error {
	run := exec.CommandContext(ctx, "go", "test", "-trimpath", "-buildvcs=false", "-vet=off", "./dsl/expr", "-run", "^$", "-bench", "ExprEval|ExprTrace", "-benchmem")
	out, err := run.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go test: %w: %s", err, out)
	}
	took, allocations := map[string][]float64{}, map[string][]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		m := benched.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		nanos, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		count, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return err
		}
		took[m[1]], allocations[m[1]] = append(took[m[1]], nanos/1000), append(allocations[m[1]], count)
	}
	for _, name := range []string{"ExprEval", "ExprTrace"} {
		if len(took[name]) == 0 {
			return fmt.Errorf("go test has printed no result of %s: %s", name, out)
		}
		b.note(name+": least", "µs", slices.Min(took[name]))
		b.note(name+": most", "µs", slices.Max(took[name]))
		b.note(name+": allocations", "", slices.Max(allocations[name]))
	}
	b.report("Expr")
	return nil
}
