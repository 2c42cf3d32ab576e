package engine_test

import (
	"context"
	"errors"
	"testing"

	"procaas/engine/canary"
	"procaas/engine/definitions"
	"procaas/engine/store"
)

// A node that has only just started does not know what is current: a canary would be of a version that is about to be
// replaced, and end at once without a word.
func TestNoCanaryBeforeTheNodeHasJoined(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(r.store, three)
	_, err := e.TryVersion(context.Background(), r.bundle(bulkAndVital), canary.Order{Percent: 20}, store.Actor{Name: "test"})
	if refused := (*definitions.CanaryError)(nil); !errors.As(err, &refused) {
		t.Errorf("want that the canary is refused, have %v", err)
	}
}
