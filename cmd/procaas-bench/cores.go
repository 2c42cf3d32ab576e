package main

import (
	"context"
	"fmt"
	"runtime"
)

// measureCores measures flows with one processor for the node, and with more.
func measureCores(ctx context.Context, b *bench) error {
	var entries []*entry
	for procs := 1; procs <= runtime.NumCPU(); procs *= 2 {
		entries = append(entries, &entry{name: fmt.Sprint("GOMAXPROCS=", procs), isBinary: true, ways: only(func(ctx context.Context, b *bench) (contestant, error) {
			limited := *b
			limited.procs = procs
			return newBinary(ctx, &limited, onPostgres(fmt.Sprint("cores_", procs)))
		})})
	}
	for _, inFlight := range []int{64, 256} {
		lines, _, err := b.contest(ctx, entries, inFlight)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%d flows of %d steps, %d in flight, median of %d rounds (lowest to highest)\n", b.flows, steps, inFlight, b.rounds)
		b.compare("flows", lines, "of naive", "of grouped", "of before")
	}
	return nil
}
