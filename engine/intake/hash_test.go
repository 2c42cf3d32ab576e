package intake

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"pgregory.net/rapid"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// Stores keep hashes of events for as long as these may come again, so another version must compute the same.
func TestHashIsThatOfCanonicalJSON(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[ -~]{1,40}`), rapid.String())
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "none") {
			return time.Time{}
		}
		zone := time.FixedZone("", rapid.IntRange(-12, 12).Draw(t, "zone")*3600)
		return time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanosecond")).In(zone)
	})
	value := rapid.OneOf(rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int().AsAny(), rapid.Float64().AsAny(), text.AsAny())
	rapid.Check(t, func(t *rapid.T) {
		ev := model.Event{
			ID: "e", Source: "s", Type: text.Draw(t, "type"), Key: text.Draw(t, "key"), Labels: text.Draw(t, "labels"),
			Time: moment.Draw(t, "time"), At: moment.Draw(t, "at"), Priority: rapid.Int().Draw(t, "priority"),
			DelayTolerance: time.Duration(rapid.Int64Range(0, 1<<60).Draw(t, "tolerance")),
			Payload: map[string]any{
				"scalar": value.Draw(t, "scalar"), "list": rapid.SliceOf(value).Draw(t, "list"), text.Draw(t, "name"): value.Draw(t, "value"),
			},
		}
		said := map[string]any{
			"type": ev.Type, "key": ev.Key, "payload": ev.Payload, "time": model.TimeData(ev.Time), "at": model.TimeData(ev.At),
			"delay_tolerance": int(ev.DelayTolerance), "priority": ev.Priority,
		}
		if ev.Labels != "" {
			said["labels"] = ev.Labels
		}
		data, err := datum.FormatJSON(said)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		have, err := hashEvent(&ev)
		if want := hex.EncodeToString(sum[:]); err != nil || have != want {
			t.Fatalf("have %s, %v, want %s of %s", have, err, want, data)
		}
	})
}
