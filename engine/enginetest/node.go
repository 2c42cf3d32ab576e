package enginetest

import (
	"context"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/engine"
	"procaas/engine/store"
)

// A Node is an engine that runs until the end of its test.
type Node struct {
	*engine.Engine
	p *probe
}

// StartNode runs an idle engine on a store.
func StartNode(t testing.TB, store store.Store) *Node {
	t.Helper()
	b, found := dsl.Load([]diag.File{{Name: "none.yaml", Data: []byte("pipelines: []")}}, dsl.Options{})
	if b == nil {
		t.Fatalf("the definition does not load: %+v", found)
	}
	return &Node{startEngine(t, engine.Options{Store: store, Bundle: b}), newProbe(t, store)}
}

// Eventually asks until the answer is yes.
func (n *Node) Eventually(what string, done func() bool) {
	n.p.Helper()
	n.p.eventually(what, done)
}

// startEngine runs an engine until the end of the test.
func startEngine(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return e
}
