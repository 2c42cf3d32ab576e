package model_test

import (
	"testing"
	"time"

	"procaas/engine/model"
)

func TestPlaceAfter(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	later, undo := now.Add(time.Second), model.UndoOrder("wrong price")
	for _, c := range []struct {
		name           string
		change         model.Change
		ordered, block bool
		order          string
		want           model.Place
	}{
		{name: "goes on", change: model.Change{Status: model.Waiting}, ordered: true, want: model.PlaceReady},
		{name: "deferred", change: model.Change{Status: model.Waiting, Defer: true}, ordered: true, want: model.PlaceDeferred},
		{name: "deferred without a key", change: model.Change{Status: model.Waiting, Defer: true}, want: model.PlaceReady},
		{name: "failed", change: model.Change{Status: model.Failed}, ordered: true, want: model.PlaceFailed},
		{name: "failed and blocks", change: model.Change{Status: model.Failed}, ordered: true, block: true, want: model.PlaceBlocked},
		{name: "blocks nobody without a key", change: model.Change{Status: model.Failed}, block: true, want: model.PlaceFailed},
		{name: "until an operator decides", change: model.Change{Status: model.Parked}, want: model.PlaceHeld},
		{name: "until later", change: model.Change{Status: model.Parked, Due: later}, want: model.PlaceParked},
		{name: "until now", change: model.Change{Status: model.Parked, Due: now}, want: model.PlaceReady},
		{name: "another definition is asked for", change: model.Change{Status: model.Parked, Due: later}, order: "hash", want: model.PlaceParked},
		{name: "parked, to be undone", change: model.Change{Status: model.Parked, Due: later}, order: undo, want: model.PlaceReady},
		{
			name: "failed, to be undone", change: model.Change{Status: model.Failed}, ordered: true, block: true, order: undo,
			want: model.PlaceReady,
		},
		{
			name: "deferred, to be undone", change: model.Change{Status: model.Waiting, Defer: true}, ordered: true, order: undo,
			want: model.PlaceReady,
		},
		{name: "undoes already", change: model.Change{Status: model.Parked, Due: later, Undoing: true}, order: undo, want: model.PlaceParked},
	} {
		if have := c.change.PlaceAfter(c.ordered, c.block, c.order, now); have != c.want {
			t.Errorf("%s: want %s, have %s", c.name, c.want, have)
		}
	}
}

func TestStatusOfPlaces(t *testing.T) {
	for place, want := range map[model.Place]model.Status{
		model.PlaceReady: model.Waiting, model.PlaceRunning: model.Running, model.PlaceParked: model.Parked,
		model.PlaceHeld: model.Parked, model.PlaceBlocked: model.Failed, model.PlaceQueued: model.Waiting,
		model.PlaceScheduled: model.Waiting, model.PlaceDeferred: model.Waiting, model.PlaceFailed: model.Failed,
		model.Place(model.Ignored): model.Ignored,
	} {
		if have := place.Status(); have != want {
			t.Errorf("%s: want %s, have %s", place, want, have)
		}
	}
}
