package main

import (
	"fmt"
	"io"
	"strings"

	"procaas/dsl"
)

// banner prints where everything is: five aligned lines.
func banner(w io.Writer, n *node, store string, b *dsl.Bundle) {
	handlers := 0
	for _, p := range b.Pipelines {
		for _, st := range p.Stages {
			handlers += len(st.Handlers)
		}
	}
	fmt.Fprintf(w, "API        %s/v1\n", n.url())
	fmt.Fprintf(w, "Console    %s/\n", n.url())
	fmt.Fprintf(w, "Metrics    %s/metrics\n", n.url())
	fmt.Fprintf(w, "Store      %s\n", describeStore(store))
	fmt.Fprintf(w, "Pipelines  %d with %d handlers\n", len(b.Pipelines), handlers)
}

func describeStore(dsn string) string {
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return file + " (SQLite)"
	}
	return redact(dsn) + " (PostgreSQL)"
}
