package rules

import (
	"strconv"
	"strings"
)

// handlerRules documents rules about the fields of handlers, and about what they set and read.
func handlerRules() []Rule {
	return []Rule{{
		Code:  CriticalUnsaid,
		Title: "contribution that does not say whether it is critical",
		Why: "A critical handler that fails stops the run of another team's pipeline. So its author must decide this. There " +
			"is no default.",
		Before: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
handlers:
  - {id: bonus, into: new-order/notify, request: {url: http://127.0.0.1:9085/v1/bonus}}
`,
		After: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
handlers:
  - {id: bonus, into: new-order/notify, critical: false, request: {url: http://127.0.0.1:9085/v1/bonus}}
`,
	}, {
		Code:  CriticalSkip,
		Title: "critical handler that may be skipped",
		Why: "The engine never skips a critical handler: the run cannot succeed without it. A fallback, a rollout or a rate " +
			"limit that skips says the opposite.",
		Before: `pipelines:
  - id: new-order
    stages:
      - id: pay
        handlers:
          - id: hold
            critical: true
            request: {url: http://127.0.0.1:9084/v1/hold}
            fallback: {min-success-ratio: 0.5}
`,
		After: `pipelines:
  - id: new-order
    stages:
      - id: pay
        handlers:
          - id: hold
            critical: false
            request: {url: http://127.0.0.1:9084/v1/hold}
            fallback: {min-success-ratio: 0.5}
`,
	}, {
		Code:  NotDetached,
		Title: "handler that cannot be detached",
		Why: "Later stages do not wait for a detached handler. If they read what it sets, or set what it reads, the run would depend on which " +
			"of them is faster. A critical handler cannot be detached either, because nothing may happen before it has succeeded.",
		Before: `pipelines:
  - id: new-order
    shared-state: {mail: null}
    stages:
      - id: notify
        handlers:
          - id: mail
            critical: false
            detached: true
            request: {url: http://127.0.0.1:9083/v1/mails}
            result: {mail: sent}
      - {id: end, handlers: [{id: report, request: {url: http://127.0.0.1:9084/v1/reports, body: {mail: !$ "shared-state.mail ?? 'none'"}}}]}
`,
		After: `pipelines:
  - id: new-order
    shared-state: {mail: null}
    stages:
      - id: notify
        handlers:
          - id: mail
            critical: false
            request: {url: http://127.0.0.1:9083/v1/mails}
            result: {mail: sent}
      - {id: end, handlers: [{id: report, request: {url: http://127.0.0.1:9084/v1/reports, body: {mail: !$ "shared-state.mail ?? 'none'"}}}]}
`,
	}, {
		Code:  Undeclared,
		Title: "shared-state name that is not declared",
		Why: "Handlers share only the declared names. A name that is set but not declared is a typing error, or a dependency " +
			"that nobody sees.",
		Before: `pipelines:
  - id: new-order
    shared-state: {order: null}
    stages:
      - id: fetch
        handlers:
          - id: get
            request: {url: http://127.0.0.1:9081/v1/orders}
            result: {ordr: !$ sources.get.response}
`,
		After: `pipelines:
  - id: new-order
    shared-state: {order: null}
    stages:
      - id: fetch
        handlers:
          - id: get
            request: {url: http://127.0.0.1:9081/v1/orders}
            result: {order: !$ sources.get.response}
`,
	}, {
		Code:  StateTwice,
		Title: "one name in two shared states",
		Why: "Handlers read the state of the flow and that of the pipeline under one name, shared-state. With a name in " +
			"both, it is open whether the next event sees the value.",
		Before: `flows:
  - {id: order, key: !$ "event.payload['order-id']", shared-state: {status: new}}
pipelines:
  - id: new-order
    flow: order
    shared-state: {status: null}
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
		After: `flows:
  - {id: order, key: !$ "event.payload['order-id']", shared-state: {status: new}}
pipelines:
  - id: new-order
    flow: order
    shared-state: {push-status: null}
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
	}, {
		Code:  Delays,
		Title: "lower bound above the upper bound",
		Why: "A delay grows from its first value up to its bound. With the bound below, one of the two numbers never counts. " +
			"The bound may be a default: 15m for max-delay, 5m for max-duration.",
		Before: `pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request: {url: http://127.0.0.1:9083/v1/push}
            retry: {min-delay: 1m, max-delay: 10s}
`,
		After: `pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request: {url: http://127.0.0.1:9083/v1/push}
            retry: {min-delay: 10s, max-delay: 1m}
`,
	}, {
		Code:  Ambiguous,
		Title: "source that may mean two handlers",
		Why: "An expression reads a source by the id of a handler. When two earlier handlers have that id, it cannot say " +
			"which outcome it means.",
		Before: `pipelines:
  - id: new-order
    shared-state: {order: null}
    stages:
      - id: claim
        handlers: [{id: get, request: {url: http://127.0.0.1:9081/v1/claims, method: POST}}]
      - id: fetch
        handlers: [{id: get, request: {url: http://127.0.0.1:9081/v2/orders}}]
      - id: keep
        handlers: [{id: keep, set: {order: !$ sources.get.response}}]
`,
		After: `pipelines:
  - id: new-order
    shared-state: {order: null}
    stages:
      - id: claim
        handlers: [{id: get, request: {url: http://127.0.0.1:9081/v1/claims, method: POST}}]
      - id: fetch
        handlers: [{id: get-again, request: {url: http://127.0.0.1:9081/v2/orders}}]
      - id: keep
        handlers: [{id: keep, set: {order: !$ sources.get-again.response}}]
`,
	}}
}

// boundRules documents rules about calls with unknown outcomes, and growing states.
func boundRules() []Rule {
	return []Rule{{
		Code:  OnUnknown,
		Title: "on-unknown without a call",
		Why: "A node may die during a call. on-unknown says how to find out whether the call took effect. So it needs a " +
			"handler that calls, and a call that asks.",
		Before: `pipelines:
  - id: new-order
    stages:
      - id: pay
        handlers:
          - id: charge
            request: {url: http://127.0.0.1:9084/v1/charges, method: POST}
            on-unknown: {verify: {done: !$ sources.charge.status == 200}}
`,
		After: `pipelines:
  - id: new-order
    stages:
      - id: pay
        handlers:
          - id: charge
            request: {url: http://127.0.0.1:9084/v1/charges, method: POST}
            on-unknown:
              verify:
                request: {url: http://127.0.0.1:9084/v1/charges/last, expect: [2xx, "404"]}
                done: !$ sources.charge.status == 200
`,
	}, {
		Code:  MaxState,
		Title: "shared state above its bound from the start",
		Why: "Every checkpoint holds the shared state, so it is bounded. When the first values exceed the bound already, the " +
			"first handler that sets anything fails.",
		Before: `pipelines:
  - id: new-order
    max-state: 1KiB
    shared-state: {note: "` + strings.Repeat("long ", 250) + `"}
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
		After: `pipelines:
  - id: new-order
    max-state: 2KiB
    shared-state: {note: "` + strings.Repeat("long ", 250) + `"}
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
	}}
}

// numbered returns a list of names: e0, e1, e2.
func numbered(prefix string, n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + strconv.Itoa(i)
	}
	return strings.Join(names, ", ")
}
