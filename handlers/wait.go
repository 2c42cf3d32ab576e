package handlers

import (
	"context"
	_ "embed"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
)

//go:embed wait.go
var waitSource string

// Wait lets time pass.
//
// The run is put aside meanwhile: it costs nothing but its row in the store, and
// it goes on after a restart as if nothing had happened. Later events of the same
// key wait with it.
//
//	id: give-time-to-accept
//	wait: {for: 15s}
type Wait struct {
	// For is how long to wait.
	For time.Duration `yaml:"for" min:"0s"`

	// Until is when to go on, in RFC 3339; at once when that has passed.
	Until time.Time `yaml:"until"`
}

// Handle implements [engine.Handler]. It only says until when: what waits is a row in the
// store, and no goroutine.
func (w *Wait) Handle(_ context.Context, c *engine.Call) (model.Result, error) {
	if !w.Until.IsZero() {
		return model.Result{Until: w.Until}, nil
	}
	return model.Result{Until: c.Now.Add(w.For)}, nil
}

// CheckBody reports what the tags of [Wait] cannot say.
func (*Wait) CheckBody(b *tree.Body) {
	checkNoSecrets(b)
	checkOneOf(b, "for", "until")
}
