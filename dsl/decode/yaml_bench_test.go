package decode

import (
	"strings"
	"testing"

	"procaas/dsl/diag"
)

// BenchmarkParse reads a file of 100 pipelines with three handlers each.
func BenchmarkParse(b *testing.B) {
	const pipeline = `
- id: new-order-created
  on: [new-order-created]
  shared-state: {order: null, driver-id: null}
  stages:
  - id: fetch-order
    handlers:
    - id: get-order
      request: {url: http://127.0.0.1:9081/v1/orders, query: {id: !$ "event.payload['order-id']"}}
      result: {order: !$ sources.get-order.response.order}
  - id: notify
    handlers:
    - id: notify-driver
      critical: false
      enabled: !$ |
        event.payload['is-authorized'] and
        shared-state.order.tariff in ['econom', 'business']
      url: http://127.0.0.1:9082/v1/push
      retry: {attempts: 3, min-delay: 100ms, max-delay: 15m, factor: 2, jitter: 0.1, on: [timeout, connection, 5xx, 429]}
    - id: notify-user
      critical: false
      request: {url: http://127.0.0.1:9082/v1/push, body: {to: !$ shared-state.driver-id}}
`
	text := "pipelines:" + strings.Repeat(pipeline, 100)
	types := testTypes()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if read := readAlone(diag.File{Name: "a.yaml", Data: []byte(text)}, types); len(read.Found) > 0 {
			b.Fatal(read.Found)
		}
	}
}
