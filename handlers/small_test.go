package handlers_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"procaas/dsl/diag"
	"procaas/engine/model"
	"procaas/handlers"
)

func TestSetGivesItsValues(t *testing.T) {
	t.Parallel()
	values := map[string]any{"price": 111, "currency": "RUB"}
	have, err := (&handlers.Set{Values: values}).Handle(t.Context(), newCall(nil))
	if diff := cmp.Diff(model.Result{Response: values}, have); err != nil || diff != "" {
		t.Errorf("have error %v and a difference: %s", err, diff)
	}
}

func TestEmitMakesAnEvent(t *testing.T) {
	t.Parallel()
	later := now.Add(time.Hour)
	for _, tc := range []struct {
		name string
		emit handlers.Emit
		want model.Event
	}{
		{
			"with its type only",
			handlers.Emit{Type: "paid"},
			model.Event{Type: "paid", Source: "procaas/pipeline/taxi", Time: now},
		},
		{
			"with everything",
			handlers.Emit{
				Type: "paid", Key: "o-2", Payload: []any{1}, Source: "billing", ID: "p-1",
				At: later, DelayTolerance: time.Minute, Priority: -3,
			},
			model.Event{
				Type: "paid", Key: "o-2", Payload: []any{1}, Source: "billing", ID: "p-1", Time: now,
				At: later, DelayTolerance: time.Minute, Priority: -3,
			},
		},
		{
			"with a delay",
			handlers.Emit{Type: "paid", Delay: time.Hour},
			model.Event{Type: "paid", Source: "procaas/pipeline/taxi", Time: now, At: later},
		},
	} {
		have, err := tc.emit.Handle(t.Context(), newCall(nil))
		if diff := cmp.Diff(model.Result{Emit: []model.Event{tc.want}}, have); err != nil || diff != "" {
			t.Errorf("%s: have error %v and a difference: %s", tc.name, err, diff)
		}
	}
}

func TestWaitTellsUntilWhen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		wait handlers.Wait
		want time.Time
	}{
		{handlers.Wait{For: 15 * time.Second}, now.Add(15 * time.Second)},
		{handlers.Wait{Until: now.Add(time.Hour)}, now.Add(time.Hour)},
		{handlers.Wait{Until: now.Add(-time.Hour)}, now.Add(-time.Hour)},
	} {
		have, err := tc.wait.Handle(t.Context(), newCall(nil))
		if err != nil || !have.Until.Equal(tc.want) {
			t.Errorf("%+v: have %v, %v, want %v", tc.wait, have.Until, err, tc.want)
		}
	}
}

func TestFailFails(t *testing.T) {
	t.Parallel()
	for _, permanent := range []bool{true, false} {
		_, err := (&handlers.Fail{Message: "no such tariff", Permanent: permanent}).Handle(t.Context(), newCall(nil))
		if err == nil || !strings.Contains(err.Error(), "no such tariff") || model.IsPermanent(err) != permanent {
			t.Errorf("have %v, want an error, permanent %v", err, permanent)
		}
	}
}

// If a field were near to one of which one is needed, its body could lack that without an error.
func TestNoFieldLooksLikeOneThatIsNeeded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body  reflect.Type
		needs []string
	}{
		{reflect.TypeFor[handlers.Request](), []string{"url", "service", "path"}},
		{reflect.TypeFor[handlers.Wait](), []string{"for", "until"}},
	} {
		for i := range c.body.NumField() {
			name, _, _ := strings.Cut(c.body.Field(i).Tag.Get("yaml"), ",")
			if near := diag.Suggest(name, c.needs); near != "" && !slices.Contains(c.needs, name) {
				t.Errorf("%s: %q is taken for a mistyped %q", c.body, name, near)
			}
		}
	}
}
