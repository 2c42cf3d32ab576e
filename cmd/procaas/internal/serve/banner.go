package serve

import (
	"fmt"
	"io"

	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/dsl/tree"
)

// Banner prints the addresses of everything in aligned lines.
func (n *Node) Banner(w io.Writer, b *tree.Bundle) {
	handlers := 0
	for _, p := range b.Pipelines {
		for _, st := range p.Stages {
			handlers += len(st.Handlers)
		}
	}
	fmt.Fprintf(w, "API        %s/v1\n", n.URL())
	fmt.Fprintf(w, "Console    %s/\n", n.URL())
	fmt.Fprintf(w, "Metrics    %s/metrics\n", n.URL())
	fmt.Fprintf(w, "Store      %s\n", stores.Describe(n.flags.Store))
	fmt.Fprintf(w, "Pipelines  %d with %d handlers\n", len(b.Pipelines), handlers)
}
