package handlers_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"procaas/handlers"
)

// One request as an order makes them, against a server that does nothing.
func BenchmarkRequest(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"order": {"id": "o-1", "tariff": "econom"}}`)
	}))
	defer server.Close()
	client := &http.Transport{MaxIdleConnsPerHost: 64}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := handlers.Request{
				URL: server.URL + "/v1/orders", Query: map[string]any{"id": "o-1"},
				Body: map[string]any{"id": "o-1", "tariff": "econom", "price": 250},
			}
			if _, err := r.Handle(b.Context(), newCall(client)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a request costs in addition to the network.
func BenchmarkRequestWithoutNetwork(b *testing.B) {
	call := newCall(replies(200, "application/json", `{"order": {"id": "o-1", "tariff": "econom"}}`))
	b.ReportAllocs()
	for b.Loop() {
		r := handlers.Request{
			URL: "http://orders.example/v1/orders", Query: map[string]any{"id": "o-1"},
			Body: map[string]any{"id": "o-1", "tariff": "econom", "price": 250},
		}
		if _, err := r.Handle(b.Context(), call); err != nil {
			b.Fatal(err)
		}
	}
}
