package rules

import "slices"

// contractRules documents rules about schemas. Examples with several files separate them by lines such as "--
// orders.yaml --".
func contractRules() []Rule {
	return slices.Concat(schemaRules(), openAPIRules(), outlineRules())
}

// typed returns an example whose events have a payload with a schema, and whose handler has the given fields.
func typed(fields string) string {
	return `schemas:
  order:
    type: object
    required: [id, tariff, items]
    properties:
      id: {type: string}
      tariff: {enum: [econom, business]}
      tip: {type: number}
      items: {type: array, items: {type: object, required: [price], properties: {price: {type: number}}}}
events:
  - {type: new-order, payload: order}
pipelines:
  - id: new-order
    shared-state: {seen: null, price: 0}
    stages:
      - id: look
        handlers:
          - id: look
` + Indented(12, fields) + `      - id: tell
        handlers:
          - {id: notify, request: {url: http://127.0.0.1:9083/v1/push, query: {seen: !$ shared-state.seen}}}
`
}

func typedSet(expression string) string { return typed("set:\n  seen: !$ |\n    " + expression) }

func schemaRules() []Rule {
	const served = `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`
	return []Rule{{
		Code:  NoFile,
		Title: "file of schemas that is not there",
		Why: "A schema or an OpenAPI document comes from a file beside the pipelines, never from the network. So a check has " +
			"the same result everywhere. The path is relative to the file that names it.",
		Before: "events:\n  - {type: new-order, payload: schemas/order.json}\n" + served,
		After:  "events:\n  - {type: new-order, payload: {type: object, required: [id], properties: {id: {type: string}}}}\n" + served,
	}, {
		Code:  UnknownSchema,
		Title: "unknown schema",
		Why: "A mapping is a schema itself. A word is the name of a schema below schemas. Text with a dot or a slash is the " +
			"path of a file.",
		Before: "schemas:\n  order: {type: object}\nevents:\n  - {type: new-order, payload: ordr}\n" + served,
		After:  "schemas:\n  order: {type: object}\nevents:\n  - {type: new-order, payload: order}\n" + served,
	}, {
		Code:   BadSchema,
		Title:  "not a JSON Schema",
		Why:    "JSON Schema (draft 2020-12) has no meaning for this, so procaas could check nothing against it.",
		Before: "schemas:\n  order: {type: mapping}\n",
		After:  "schemas:\n  order: {type: object}\n",
	}, {
		Code:  Keyword,
		Title: "word that JSON Schema ignores",
		Why: "JSON Schema ignores words that it does not know, so a mistyped one checks nothing. Words of your own begin " +
			"with x-, such as x-owner.",
		Before: "schemas:\n  order: {type: object, requird: [id]}\n",
		After:  "schemas:\n  order: {type: object, required: [id]}\n",
	}, {
		Code:  SchemaOfNothing,
		Title: "schema of something that is not there",
		Why: "The schema is for a config, a name of the shared state or an event that nobody declares or serves. Perhaps one " +
			"of the two names is mistyped.",
		Before: "configs: {NOTIFY: {enabled: true}}\nconfig-schemas: {NOTIFI: {type: object}}\n",
		After:  "configs: {NOTIFY: {enabled: true}}\nconfig-schemas: {NOTIFY: {type: object}}\n",
	}, {
		Code:   Misfit,
		Title:  "value that does not fit its schema",
		Why:    "The engine, or the service that gets the value, would refuse it when it is used.",
		Before: "configs: {NOTIFY: {enabled: 'yes'}}\nconfig-schemas: {NOTIFY: {type: object, properties: {enabled: {type: boolean}}}}\n",
		After:  "configs: {NOTIFY: {enabled: true}}\nconfig-schemas: {NOTIFY: {type: object, properties: {enabled: {type: boolean}}}}\n",
	}}
}

// called returns an example of two files: a handler with a request, and the OpenAPI document of the service.
func called(request, openapi string) string {
	return `-- pipelines.yaml --
services:
  - {id: orders, url: http://127.0.0.1:9081, openapi: orders.openapi.yaml}
pipelines:
  - id: new-order
    stages:
      - id: save
        handlers:
          - id: save-order
            request: ` + request + `
-- orders.openapi.yaml --
` + openapi
}

const ordersAPI = `openapi: 3.1.0
info: {title: orders, version: '1'}
paths:
  /v1/orders:
    get:
      parameters:
        - {name: id, in: query, required: true, schema: {type: string}}
      responses: {'200': {description: the order}}
    put:
      requestBody:
        required: true
        content:
          application/json:
            schema: {type: object, required: [id], properties: {id: {type: string}, status: {type: string}}}
      responses: {'204': {description: saved}}
`

func openAPIRules() []Rule {
	right := called("{service: orders, path: /v1/orders, query: {id: o-1}}", ordersAPI)
	return []Rule{{
		Code:  OpenAPI,
		Title: "not an OpenAPI document",
		Why: "openapi names a file with an OpenAPI document of version 3.0 or 3.1. Without paths in it, procaas knows " +
			"nothing about the requests and replies of the service.",
		Before: called("{service: orders, path: /v1/orders, query: {id: o-1}}", "openapi: 3.1.0\ninfo: {title: orders, version: '1'}\n"),
		After:  right,
	}, {
		Code:   NoOperation,
		Title:  "call that the service does not have",
		Why:    "The OpenAPI document of the service has no such method and path. Every request would get an error.",
		Before: called("{service: orders, path: /v1/order, query: {id: o-1}}", ordersAPI),
		After:  right,
	}, {
		Code:  Parameter,
		Title: "parameter that the call does not have",
		Why: "The OpenAPI document of the service has no such parameter of the query. Most services ignore unknown " +
			"parameters in silence.",
		Before: called("{service: orders, path: /v1/orders, query: {id: o-1, expnd: all}}", ordersAPI),
		After:  right,
	}, {
		Code:   MissingPart,
		Title:  "missing part",
		Why:    "The schema requires this part. Without it the service would refuse the call, or the engine the event.",
		Before: called("{service: orders, path: /v1/orders}", ordersAPI),
		After:  right,
	}}
}

func outlineRules() []Rule {
	return []Rule{{
		Code:  ExprUnknownField,
		Title: "member that the schema does not name",
		Why: "The schema of the value lists its members, and this one is missing there. The engine would read null for ever. " +
			"A schema with additionalProperties may have other members.",
		Before: typedSet("event.payload.tarif"),
		After:  typedSet("event.payload.tariff"),
	}, {
		Code:  ExprMaybeNull,
		Title: "value that may be null",
		Why: "By its schema the value may be absent or null, and this operation fails for null. The engine never chooses a " +
			"default by itself. Write ?. to pass a null on, or ?? and a default. Or test the value before, in the same expression or " +
			"in enabled.",
		Before: typedSet("event.payload.tip + 1"),
		After:  typedSet("(event.payload.tip ?? 0) + 1"),
	}, {
		Code:  ExprConstant,
		Title: "condition that never changes",
		Why: "The condition is always true, or always false, for every event. Either a part of the expression is never used, " +
			"or another value was meant.",
		Before: typedSet("event.payload.id != null and event.payload.tariff == 'econom'"),
		After:  typedSet("event.payload.tariff == 'econom'"),
	}, {
		Code:   ExprImpossibleIn,
		Title:  "in that never holds",
		Why:    "By its schema, the value on the left is never this one on the right, or the mapping never has this key.",
		Before: typedSet("event.payload.tariff in ['econom', 'bussiness']"),
		After:  typedSet("event.payload.tariff in ['econom', 'business']"),
	}, {
		Code:  ExprLoopBody,
		Title: "loop that does not look at the element",
		Why: "A function such as map or filter computes its body for each element, which is # there. A body without # has " +
			"the same value each time. A bare name is one of the shared state, not a member of the element.",
		Before: typedSet("map(event.payload.items, price)"),
		After:  typedSet("map(event.payload.items, #.price)"),
	}}
}
