package dsl_test

import (
	"fmt"
	"os"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/render"
)

// A mistyped name is reported with its place and a suggestion.
func ExampleLoad() {
	files := []diag.File{{Name: "taxi.yaml", Data: []byte(`pipelines:
  - id: new-order
    shared-state: {order: null}
    stages:
      - id: fetch
        handlers:
          - id: get
            request: {url: http://127.0.0.1:9081/v1/orders}
            result: {ordr: !$ sources.get.response}
`)}}
	bundle, found := dsl.Load(files, dsl.Options{Language: language(), Types: testTypes()})
	fmt.Println("loaded:", bundle != nil)
	if err := render.Write(os.Stdout, render.Text, files, found, false); err != nil {
		fmt.Println(err)
	}
	// Output:
	// loaded: false
	// error[PC0214]: result sets shared-state.ordr, which is not declared
	//  --> taxi.yaml:9:22
	//   |
	// 9 |             result: {ordr: !$ sources.get.response}
	//   |                      ^^^^
	//   = help: did you mean "order"?
	//
	// 1 error in 1 file
}

// A loaded bundle tells who serves an event and what a handler reads.
func ExampleBundle() {
	data := []byte(`pipelines:
  - id: new-order
    on: [order-created, order-repeated]
    stages:
      - id: notify
        handlers:
          - {id: driver, request: {url: http://127.0.0.1:9083/v1/push, body: !$ "event.payload['driver-id']"}}
`)
	bundle, _ := dsl.Load([]diag.File{{Name: "taxi.yaml", Data: data}}, dsl.Options{Language: language(), Types: testTypes()})
	for _, p := range bundle.On("order-repeated") {
		fmt.Println("served by", p.ID)
	}
	for _, r := range bundle.Handler("new-order/notify/driver").Body.Reads() {
		fmt.Println("reads", r.Path, "at", r.Span)
	}
	// Output:
	// served by new-order
	// reads event.payload.driver-id at taxi.yaml:7:82
}

// Every code is explained with a file that breaks the rule and a mended one.
func Example_rule() {
	rule, _ := language().Rule("PC0203")
	fmt.Println(rule.Title)
	fmt.Println(rule.Why)
	// Output:
	// unknown flow
	// The flow holds the key of a pipeline's events, their order and the state that is kept between them. No file declares this flow.
}
