package api_test

import (
	"strings"
	"testing"

	"procaas/cmd/procaas/addons"
	"procaas/dsl/tree"
	"procaas/engine/enginetest"
	"procaas/handlers"
)

// taxiFile is what the tests serve: one flow with an automaton, a queue, and a
// handler that calls the service at SERVICE.
const taxiFile = `
flows:
  - id: taxi-order
    key: !$ event.payload['order-id']
    shared-state: {status: new}
    states:
      initial: created
      final: [finished]
      transitions:
        - {from: created, on: new-order-created, to: searching}
        - {from: searching, on: driver-found, to: assigned}
        - {from: assigned, on: order-finished, to: finished}

events:
  - {type: mail-bounced, payload: {type: [object, 'null'], properties: {mail/id: {type: string}}}}

configs:
  CITIES: []
  NOTIFY_SWITCH: {enabled: true}

services:
  - {id: orders, url: SERVICE}

pipelines:
  - id: new-order-created
    flow: taxi-order
    shared-state: {order: null}
    stages:
      - id: fetch-order
        handlers:
          - id: get-order
            owner: team-orders
            request:
              service: orders
              path: /v1/orders
              query:
                id: !$ flow.key
            retry: {attempts: 1}
            result: {order: !$ sources.get-order.response}
      - id: notify
        handlers:
          - id: note
            set: {status: !$ "'searching in ' + shared-state.order.city"}
  - id: driver-found
    flow: taxi-order
    stages:
      - {id: note, handlers: [{id: note, set: {status: assigned}}]}
  - id: order-finished
    flow: taxi-order
    stages:
      - {id: note, handlers: [{id: note, set: {status: finished}}]}
  - id: mail
    on: [mail-wanted, mail-bounced]
    owner: team-mail
    shared-state: {sent: null}
    stages:
      - {id: send, handlers: [{id: send, set: {sent: !$ event.payload}}]}
`

func taxi(t testing.TB) *tree.Bundle { return load(t, "http://127.0.0.1:1") }

// load reads taxiFile with the address of its service.
func load(t testing.TB, service string) *tree.Bundle {
	t.Helper()
	return loadText(t, strings.ReplaceAll(taxiFile, "SERVICE", service))
}

func loadText(t testing.TB, text string) *tree.Bundle {
	t.Helper()
	return enginetest.LoadIn(t, addons.Language(), text, handlers.All()...)
}
