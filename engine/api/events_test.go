package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"procaas/dsl/datum"
	"procaas/engine/api"
	"procaas/engine/outbound"
)

// TestEventsOfTheReferenceSender posts what the Go library of CloudEvents (sdk-go 2.16.2) sends of one event in each mode. It must be the
// same event.
func TestEventsOfTheReferenceSender(t *testing.T) {
	t.Parallel()
	const structured = `{"specversion":"1.0","id":"c-1","source":"https://orders.example/v1?x=1","type":"new-order-created","subject":"o-42",` +
		`"datacontenttype":"application/json","time":"2026-01-02T03:04:05Z","data":{"order-id":"o-42","price":10},` +
		`"partitionkey":"Größe €","priority":7}`
	for name, sent := range map[string]struct {
		header map[string]string
		body   string
	}{
		"binary": {
			map[string]string{
				"Content-Type": "application/json", "Ce-Specversion": "1.0", "Ce-Id": "c-1", "Ce-Source": "https://orders.example/v1?x=1",
				"Ce-Type": "new-order-created", "Ce-Subject": "o-42", "Ce-Time": "2026-01-02T03:04:05Z",
				"Ce-Partitionkey": "Größe €", "Ce-Priority": "7",
			},
			`{"order-id":"o-42","price":10}`,
		},
		"structured": {map[string]string{"Content-Type": "application/cloudevents+json"}, structured},
		"batch":      {map[string]string{"Content-Type": "application/cloudevents-batch+json"}, "[" + structured + "]"},
	} {
		f := newFake(taxi(t))
		srv := httptest.NewServer(api.New(api.Options{Engine: portsOf(f)}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/events", strings.NewReader(sent.body))
		if err != nil {
			t.Fatal(err)
		}
		for header, value := range sent.header {
			r.Header.Set(header, value)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = reply.Body.Close()
		srv.Close()
		if reply.StatusCode != http.StatusAccepted || len(f.seen) != 1 {
			t.Errorf("%s: have %s and %d events", name, reply.Status, len(f.seen))
			continue
		}
		have := f.seen[0]
		payload, err := datum.FormatJSON(have.Payload)
		if err != nil {
			t.Fatal(err)
		}
		if have.ID != "c-1" || have.Source != "https://orders.example/v1?x=1" || have.Key != "Größe €" || have.Priority != 7 ||
			!have.Time.Equal(began) || string(payload) != `{"order-id":"o-42","price":10}` {
			t.Errorf("%s: have %+v", name, have)
		}
	}
}

// TestOwnEventsAreRead posts what requests with an event send, in both modes. It must be the same event.
func TestOwnEventsAreRead(t *testing.T) {
	t.Parallel()
	sent := outbound.CloudEvent{
		ID: "5e1f", Source: "/shop?a=1", Type: "new-order-created", Subject: "o-42", PartitionKey: "50 % \"Größe\" €", Time: began,
		Data: map[string]any{"order-id": "o-42", "price": 10},
	}
	for _, mode := range []string{"structured", "binary"} {
		header, body := http.Header{"Content-Type": {"application/json"}}, any(sent.Data)
		sent.SetHeaders(header)
		if mode == "structured" {
			header, body = http.Header{"Content-Type": {outbound.CloudEventMedia}}, sent.Members()
		}
		data, err := datum.FormatJSON(body)
		if err != nil {
			t.Fatal(err)
		}
		f := newFake(taxi(t))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/events", bytes.NewReader(data))
		r.Header = header
		w := httptest.NewRecorder()
		api.New(api.Options{Engine: portsOf(f)}).ServeHTTP(w, r)
		if w.Code != http.StatusAccepted || len(f.seen) != 1 {
			t.Fatalf("%s: have %d %s", mode, w.Code, w.Body)
		}
		have := f.seen[0]
		if have.ID != sent.ID || have.Source != sent.Source || have.Type != sent.Type || have.Key != sent.PartitionKey ||
			!have.Time.Equal(began) || !reflect.DeepEqual(have.Payload, sent.Data) {
			t.Errorf("%s: have %+v", mode, have)
		}
	}
}

// FuzzEvents sends anything: the server never fails, and what it refuses is
// not submitted.
func FuzzEvents(f *testing.F) {
	f.Add("application/json", "", "", []byte(`{"type": "new-order-created", "payload": {"a": [1, 2.5, null, "x"]}}`))
	f.Add("application/json", "", "", []byte(`[{"type": "new-order-created", "delay_tolerance": 1e300}]`))
	f.Add("application/cloudevents+json", "", "",
		[]byte(`{"specversion": "1.0", "type": "new-order-created", "id": "1", "source": "s", "data_base64": "MQ=="}`))
	f.Add("application/cloudevents-batch+json", "", "",
		[]byte(`[{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "time": "x", "": {}}]`))
	f.Add("application/x-ndjson", "", "", []byte("{\"type\": \"new-order-created\"}\n\n{\"type\": 1}\n[]\nx"))
	f.Add("application/json", "id", "%zz\"", []byte(`{}`))
	f.Add("text/plain; charset=\xff", "type", "new-order-created", []byte{0xff})
	f.Add("", "specversion", "\"1.0\\\"", []byte("\x00"))
	e := newFake(taxi(f))
	h := api.New(api.Options{Engine: portsOf(e)})
	f.Fuzz(func(t *testing.T, contentType, attribute, value string, body []byte) {
		e.seen, e.runs = nil, nil
		r := httptest.NewRequest(http.MethodPost, "/v1/events", bytes.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		if attribute != "" {
			r.Header.Set("Ce-Specversion", "1.0")
			r.Header.Set("Ce-"+attribute, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError {
			t.Fatalf("have %d %s", w.Code, w.Body)
		}
		if w.Code >= http.StatusBadRequest && len(e.seen) > 0 {
			t.Fatalf("have %d, but %d events submitted", w.Code, len(e.seen))
		}
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("have a reply that is no JSON: %q", w.Body)
		}
		for _, ev := range e.seen {
			if _, err := datum.FormatJSON(ev.Payload); err != nil {
				t.Fatalf("have a payload that cannot be stored: %v", err)
			}
			if ev.DelayTolerance < 0 || ev.At.Year() > 9999 {
				t.Fatalf("have %+v", ev)
			}
		}
	})
}

// The bound of one array keeps transactions short.
func TestTooManyEventsInOneArray(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	h := api.New(api.Options{Engine: portsOf(f)})
	many := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"type": "new-order-created"},`, n), ",") + "]"
	}
	if w := post(h, many(1001)); w.Code != http.StatusBadRequest || len(f.seen) != 0 {
		t.Errorf("have %d and %d events for 1001, want 400 and none", w.Code, len(f.seen))
	}
	if w := post(h, many(1000)); w.Code != http.StatusAccepted || len(f.seen) != 1000 {
		t.Errorf("have %d and %d events for 1000, want 202 and 1000", w.Code, len(f.seen))
	}
}

// A subject is the key, unless the sender says another one: then it may be of any length. One that is too long is refused with a
// remedy that works.
func TestLongSubjectsOfCloudEvents(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	s := api.New(api.Options{Engine: portsOf(f)})
	post := func(id, subject, more string) *httptest.ResponseRecorder {
		body := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"files","type":"new-order-created","subject":%q%s,"data":{"order-id":"o"}}`,
			id, subject, more)
		r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/cloudevents+json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	fits, long := strings.Repeat("a", 1024), strings.Repeat("a", 1025)
	if w := post("1", fits, ""); w.Code != http.StatusAccepted {
		t.Errorf("1,024 bytes: have %d %s", w.Code, w.Body)
	}
	if w := post("2", long, ""); w.Code < 400 || !strings.Contains(w.Body.String(), "add the attribute partitionkey") {
		t.Errorf("1,025 bytes: want the remedy, have %d %s", w.Code, w.Body)
	}
	if w := post("3", long, `,"partitionkey":"o"`); w.Code != http.StatusAccepted {
		t.Errorf("with a partitionkey: have %d %s", w.Code, w.Body)
	}
	if n := len(f.seen); n != 2 || f.seen[0].Key != fits || f.seen[1].Key != "o" {
		t.Errorf("have %d events", n)
	}
}
