package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

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

// lagging are the definitions as a node reads them that cannot take over those of others.
type lagging struct{ store.Bundles }

func (lagging) Bundle(context.Context, string) ([]byte, error) { return nil, errors.New("away") }

// The node that decides may not serve the current version yet, or cannot. The trials of others go on.
func TestTrialGoesOnWhileTheNodeThatDecidesLagsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		behind := r.store
		behind.Bundles = lagging{r.store.Bundles}
		decides, _ := r.startOn(behind, onePipeline("one"))
		ctx := context.Background()
		if _, err := decides.TryVersion(ctx, r.bundle(onePipeline("zero")), canary.Order{Percent: 20}, ann); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second) // it decides alone, and goes on as long as there are trials
		other, _ := r.start(onePipeline("one"))
		if _, err := other.Load(ctx, r.bundle(onePipeline("two")), ann); err != nil {
			t.Fatal(err)
		}
		if _, err := other.TryVersion(ctx, r.bundle(onePipeline("three")), canary.Order{Percent: 20}, ann); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		r.wantBundle(decides, onePipeline("one"))
		s, err := other.LastTrial(ctx)
		if err != nil || s.Phase != canary.Running {
			t.Fatalf("want the trial to go on, have %+v, %v", s, err)
		}
		if _, err := decides.TryVersion(ctx, r.bundle(onePipeline("four")), canary.Order{Percent: 20}, ann); err == nil {
			t.Error("want a trial beside a version that is not current any more to be refused")
		}
		if s, err = decides.ShareTrial(ctx, 50, false, ann); err != nil || s.Percent != 50 {
			t.Errorf("want the share set by the node that lags behind, have %+v, %v", s, err)
		}
		if _, err := other.Load(ctx, r.bundle(onePipeline("five")), ann); err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Second)
		if s, err = other.LastTrial(ctx); err != nil || s.Phase != canary.Superseded {
			t.Errorf("want the trial superseded by a version that became current, have %+v, %v", s, err)
		}
	})
}
