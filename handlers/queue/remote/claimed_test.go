package remote_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"procaas/handlers/queue/remote"
)

// The reply of a claim is what its tags say, whether fields are given or not.
func TestClaimedIsWrittenAsItsTagsSay(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 3, 4, 5, 6, 7, 8_900_000, time.FixedZone("", 3600))
	full := remote.QueuedTask{
		ID: "7", Type: "photos/<small>", State: "running", Payload: json.RawMessage("{ \"a\": [1,\n2.50, \"x y\"] }"), Key: "k \"q\" \u2028é\x01\xff",
		Unique: "u", Priority: -3, Attempt: 2, Due: when, Deadline: when.UTC(), Ended: &when, Worker: "w\t1", Error: "it said \\", Timeout: 1.5,
		Until: &when, Receipt: "7.1.2.photos",
	}
	for v, i := reflect.ValueOf(full), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("want each field given, have none in %s", v.Type().Field(i).Name)
		}
	}
	for what, c := range map[string]remote.Claimed{
		"nothing":    {Items: []remote.QueuedTask{}},
		"all fields": {Items: []remote.QueuedTask{full, {}, full}, Lost: []string{"1.2.3.<a>", "4.5.6.b"}},
	} {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(c); err != nil {
			t.Fatal(err)
		}
		if have := string(c.AppendJSON([]byte("before "))) + "\n"; have != "before "+want.String() {
			t.Errorf("%s: have\n%s\nwant\n%s", what, have, want.String())
		}
	}
}
