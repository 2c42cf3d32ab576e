package store_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"procaas/engine/model"
	"procaas/engine/store"
)

// data draws what an event may carry.
func data(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int().AsAny(), rapid.String().AsAny(),
		rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }).AsAny(),
		rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.Int32().Draw(t, "whole")) }).AsAny(),
	}
	if depth > 0 {
		leaves = append(leaves,
			rapid.SliceOfN(data(depth-1), 0, 3).AsAny(),
			rapid.MapOfN(rapid.String(), data(depth-1), 0, 3).AsAny())
	}
	return rapid.OneOf(leaves...)
}

func TestStoredEventComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := wholeEvent
		want.ID, want.Key, want.Payload = rapid.String().Draw(t, "id"), rapid.String().Draw(t, "key"), data(3).Draw(t, "payload")
		want.Time = time.UnixMicro(rapid.Int64Range(0, 1<<50).Draw(t, "time")).UTC()
		text, err := store.EncodeEvent(want)
		if err != nil {
			t.Fatal(err)
		}
		have, err := store.DecodeEvent(text)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Fatalf("event changed in %s\n%s", text, d)
		}
	})
}

// wholeEvent has every field of an event.
var wholeEvent = model.Event{
	ID: "e", Source: "s <&>", Type: "t", Time: time.Unix(1, 0).UTC(), Key: "k", Labels: "a=b", Payload: map[string]any{"n": 1.0},
	At: time.Unix(2, 3).UTC(), DelayTolerance: time.Minute, Priority: -3, Identity: "i", Hops: 2, ChainSince: time.Unix(4, 0).UTC(),
	TraceParent: "00-1-2-00", TraceState: "v=1", Rerun: &model.Rerun{Of: "r", Stage: "g", By: "p"}, Start: []byte(`{"a":1}`), Inner: true,
}

// What is left out of a stored event is zero when it is read. So an event with every field, and those with one of them, show what
// encoding forgets.
func TestStoredEventHasEveryField(t *testing.T) {
	t.Parallel()
	events := []model.Event{wholeEvent, {}}
	for i := range reflect.TypeFor[model.Event]().NumField() {
		whole := reflect.ValueOf(wholeEvent).Field(i)
		if whole.IsZero() {
			t.Fatalf("give wholeEvent a value for %s", reflect.TypeFor[model.Event]().Field(i).Name)
		}
		var one model.Event
		reflect.ValueOf(&one).Elem().Field(i).Set(whole)
		events = append(events, one)
	}
	for _, want := range events {
		text, err := store.EncodeEvent(want)
		if err != nil {
			t.Fatal(err)
		}
		if have, err := store.DecodeEvent(text); err != nil || !cmp.Equal(want, have) {
			t.Errorf("the event changed in %s: %v\n%s", text, err, cmp.Diff(want, have))
		}
	}
}

func TestStoredEventRefusesWhatIsNoData(t *testing.T) {
	t.Parallel()
	for _, payload := range []any{struct{}{}, math.NaN(), []any{int64(1)}, map[string]any{"a": math.Inf(1)}} {
		if _, err := store.EncodeEvent(model.Event{ID: "e1", Payload: payload}); err == nil ||
			!strings.Contains(err.Error(), `payload of event "e1"`) {
			t.Errorf("payload %#v: want an error that names the event, have %v", payload, err)
		}
	}
}

func TestMergeSharedReplacesWholeValues(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{``, ``, ``},
		{``, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, ``, `{"a":1}`},
		{`{"a":{"x":1},"b":1}`, `{"a":{"y":2},"c":null}`, `{"a":{"y":2},"b":1,"c":null}`},
		{`{"f":100.0,"n":9223372036854775807}`, `{"e":1e300}`, `{"e":1e300,"f":100.0,"n":9223372036854775807}`},
	} {
		if have, err := store.MergeShared([]byte(c[0]), []byte(c[1])); err != nil || string(have) != c[2] {
			t.Errorf("%s with %s: want %s, have %s, %v", c[0], c[1], c[2], have, err)
		}
	}
	if _, err := store.MergeShared([]byte("{"), []byte("{}")); err == nil {
		t.Error("broken JSON was merged")
	}
}
