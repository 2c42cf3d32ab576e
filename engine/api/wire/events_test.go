package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
)

// Receipts are written by hand. They must be what encoding/json writes of their tags, which the description of the API is made from.
func TestReceiptsAreEncodedByTheirTags(t *testing.T) {
	t.Parallel()
	standard := func(t *rapid.T, v any) string {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	}
	text := rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z0-9-]{1,30}`), rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		one := wire.Receipt{
			Event: text.Draw(t, "event"), Run: text.Draw(t, "run"), Duplicate: rapid.Bool().Draw(t, "duplicate"),
			Undecided: rapid.Bool().Draw(t, "undecided"), Key: text.Draw(t, "key"),
		}
		if have, want := string(one.AppendJSON(nil)), standard(t, one); have != want {
			t.Fatalf("have %s, want %s", have, want)
		}
		result := wire.Result{
			Receipt: one, Status: text.Draw(t, "status"), FailedPath: text.Draw(t, "path"), Error: text.Draw(t, "error"),
			ErrorClass: text.Draw(t, "class"), Reason: text.Draw(t, "reason"),
		}
		if rapid.Bool().Draw(t, "outputs") {
			result.Outputs = rapid.MapOf(text, rapid.OneOf(rapid.Just[any](nil), rapid.Float64().AsAny(), text.AsAny())).Draw(t, "values")
		}
		if have, want := string(result.AppendJSON(nil)), standard(t, result); have != want {
			t.Fatalf("have %s, want %s", have, want)
		}
		many := wire.Receipts{}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			item := wire.ReceiptItem{Event: text.Draw(t, "event"), Run: text.Draw(t, "run"), Undecided: rapid.Bool().Draw(t, "undecided"), Key: text.Draw(t, "key")}
			if rapid.Bool().Draw(t, "accepted") {
				item.Duplicate = new(bool)
				*item.Duplicate = rapid.Bool().Draw(t, "duplicate")
			}
			if rapid.Bool().Draw(t, "refused") {
				item.Error = problem.New(problem.InvalidEvent, "%s", text.Draw(t, "detail")).At(problem.Fault{Location: text.Draw(t, "location")})
			}
			many.Items = append(many.Items, item)
		}
		if have, want := string(many.AppendJSON(nil)), standard(t, many); have != want {
			t.Fatalf("have %s, want %s", have, want)
		}
	})
}
