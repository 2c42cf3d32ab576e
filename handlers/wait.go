package handlers

import (
	"context"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
)

// Wait lets time pass.
//
// Meanwhile the run needs only its row in the store, and survives restarts. Later events of the same key wait for it.
//
//	id: give-time-to-accept
//	wait: {for: 15s}
type Wait struct {
	// For is how long to wait.
	For time.Duration `yaml:"for" min:"0s"`

	// Until is when to continue, in RFC 3339. A time in the past continues at once.
	Until time.Time `yaml:"until"`
}

// Handle implements [engine.Handler]. It only returns the end of the wait. A row in the store
// waits, not a goroutine.
func (w *Wait) Handle(_ context.Context, c *engine.Call) (model.Result, error) {
	if !w.Until.IsZero() {
		return model.Result{Until: w.Until}, nil
	}
	return model.Result{Until: c.Now.Add(w.For)}, nil
}

// Takes returns the duration of the wait, if it is literal.
func (*Wait) Takes(b *tree.Body) tree.Longest {
	d, ok := b.Duration("for")
	return tree.Longest{Time: d, Endless: !ok}
}

// Waits says that a wait is not repeated.
func (*Wait) Waits() {}

// CheckBody checks what the tags of [Wait] cannot express.
func (*Wait) CheckBody(b *tree.Body) {
	checkNoSecrets(b)
	checkOneOf(b, "for", "until")
}
