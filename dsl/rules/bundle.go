package rules

import "slices"

// bundleRules documents rules about a whole bundle.
func bundleRules() []Rule {
	return slices.Concat(nameRules(), eventRules(), handlerRules(), boundRules())
}

// nameRules documents rules about declarations and references.
func nameRules() []Rule {
	return []Rule{{
		Code:  Duplicate,
		Title: "declared twice",
		Why: "An id is an address: runs, switches, metrics and other files use it to find a thing. With two of the same id, " +
			"one would silently get what was meant for the other.",
		Before: `services:
  - {id: orders, url: http://127.0.0.1:9081}
  - {id: orders, url: http://127.0.0.1:9082}
`,
		After: `services:
  - {id: orders, url: http://127.0.0.1:9081}
  - {id: orders-archive, url: http://127.0.0.1:9082}
`,
	}, {
		Code:  DuplicateStage,
		Title: "two stages of one id",
		Why: "Switches, limits and metrics of a stage belong to its path, pipeline/stage. With two stages of one path, they " +
			"mean both. And nobody can contribute a handler to either.",
		Before: `pipelines:
  - id: new-order
    stages:
      - id: save
        handlers: [{id: save-order, request: {url: http://127.0.0.1:9081/v1/orders, method: POST}}]
      - id: save
        handlers: [{id: save-payment, request: {url: http://127.0.0.1:9081/v1/payments, method: POST}}]
`,
		After: `pipelines:
  - id: new-order
    stages:
      - id: save
        handlers: [{id: save-order, request: {url: http://127.0.0.1:9081/v1/orders, method: POST}}]
      - id: save-payment
        handlers: [{id: save-payment, request: {url: http://127.0.0.1:9081/v1/payments, method: POST}}]
`,
	}, {
		Code:  UnknownFlow,
		Title: "unknown flow",
		Why: "The flow holds the key of a pipeline's events, their order and the state that is kept between them. No file " +
			"declares this flow.",
		Before: `flows:
  - {id: taxi-order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: new-order
    flow: taxi-ordr
    stages: [{id: notify, handlers: [{id: push, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
		After: `flows:
  - {id: taxi-order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: new-order
    flow: taxi-order
    stages: [{id: notify, handlers: [{id: push, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
	}, {
		Code:  UnknownService,
		Title: "unknown service",
		Why: "A request finds its host through the service that it names. Without that service every call would fail, and " +
			"nobody would notice before the first event.",
		Before: `services:
  - {id: push, url: http://127.0.0.1:9083}
pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {service: pusch, path: /v1/push}}]}]
`,
		After: `services:
  - {id: push, url: http://127.0.0.1:9083}
pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {service: push, path: /v1/push}}]}]
`,
	}, {
		Code:  UnknownHost,
		Title: "host of no service",
		Why: "Once services are declared, requests reach only their hosts. So an event cannot make the engine call the " +
			"address of an attacker. Without services, requests reach only public addresses, and hosts of this machine that a url " +
			"names in plain text.",
		Before: `services:
  - {id: push, url: http://127.0.0.1:9083}
pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9999/v1/push}}]}]
`,
		After: `services:
  - {id: push, url: http://127.0.0.1:9083}
pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
	}, {
		Code:  Body,
		Title: "fields that do not go together",
		Why:   "Some fields of a handler type exclude or need each other. The engine would have to guess which one was meant.",
		Before: `services:
  - {id: push, url: http://127.0.0.1:9083}
pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request: {service: push, path: /v1/push, url: http://127.0.0.1:9083/v1/push}
`,
		After: `services:
  - {id: push, url: http://127.0.0.1:9083}
pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: driver
            request: {service: push, path: /v1/push}
`,
	}, {
		Code:  UnservedEvent,
		Title: "event that nobody serves",
		Why: "A pipeline must serve each event that a handler sends, or a run must await it. Otherwise the server refuses the " +
			"event and the handler fails. Declare a pipeline for it. With stages: [] the pipeline does nothing with the event.",
		Before: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: rating, emit: {type: rating-wanted}}]}]
`,
		After: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: rating, emit: {type: rating-wanted}}]}]
  - {id: rating-wanted, stages: []}
`,
	}, {
		Code:  ServiceURL,
		Title: "address of a service",
		Why: "The engine appends the paths of requests to this address. So it must be complete and end before any query. A " +
			"password in it would show in logs and in the console.",
		Before: `services:
  - {id: orders, url: 127.0.0.1:9081}
`,
		After: `services:
  - {id: orders, url: http://127.0.0.1:9081}
`,
	}, {
		Code:  Into,
		Title: "contribution to a stage that does not exist",
		Why: "A contributed handler names the stage that it joins. When the owner of the pipeline renames the stage, the " +
			"contribution must not vanish in silence.",
		Before: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
handlers:
  - {id: bonus, into: new-order/notfy, critical: false, request: {url: http://127.0.0.1:9085/v1/bonus}}
`,
		After: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
handlers:
  - {id: bonus, into: new-order/notify, critical: false, request: {url: http://127.0.0.1:9085/v1/bonus}}
`,
	}, {
		Code:  Contribution,
		Title: "contribution without consent",
		Why: "A pipeline that has an owner belongs to that owner's runs. Handlers of others join it only as its contributions say, so that nobody " +
			"else changes what later stages read, or makes runs fail. For the same reason, a file may not name an owner that a CODEOWNERS " +
			"file lists for other files only. A pipeline may not take events before a pipeline of another owner gets them. It may not set the " +
			"same names of the flow. Both are fine if one file has both pipelines.",
		Before: `pipelines:
  - id: new-order
    owner: team-core
    shared-state: {order: null}
    stages:
      - {id: fetch, handlers: [{id: order, set: {order: !$ event.payload.order}}]}
      - {id: notify}
handlers:
  - {id: bonus, into: new-order/notify, owner: team-bonus, critical: false, set: {order: none}}
`,
		After: `pipelines:
  - id: new-order
    owner: team-core
    contributions:
      - {owners: [team-bonus], stages: [notify], handlers: 3}
    shared-state: {order: null}
    stages:
      - {id: fetch, handlers: [{id: order, set: {order: !$ event.payload.order}}]}
      - {id: notify}
handlers:
  - id: bonus
    into: new-order/notify
    owner: team-bonus
    critical: false
    shared-state: {points: 0}
    set: {points: 50}
`,
	}, {
		Code:  Detached,
		Title: "handler without a stage",
		Why:   "A handler at the top level runs only when it names the stage that it joins.",
		Before: `handlers:
  - {id: bonus, critical: false, request: {url: http://127.0.0.1:9085/v1/bonus}}
`,
		After: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: []}]
handlers:
  - {id: bonus, into: new-order/notify, critical: false, request: {url: http://127.0.0.1:9085/v1/bonus}}
`,
	}, {
		Code:  Placeholder,
		Title: "nothing to do",
		Why: "A pipeline without stages, a stage without handlers and a handler without a type are fine in a first draft. In " +
			"production they usually are a mistake of indentation. A pipeline may have stages: [] if a handler sends its event or " +
			"awaits it.",
		Before: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver}]}]
`,
		After: `pipelines:
  - id: new-order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
	}, {
		Code:  TooMany,
		Title: "too many parts",
		Why: "A handler may read the outcome of every handler before it, and each event may leave each state. The bounds " +
			"keep checks quick for any file.",
		Before: `flows:
  - id: grid
    states:
      initial: s0
      transitions:
        - {from: [` + numbered("s", 101) + `], on: [` + numbered("e", 101) + `], to: s0}
`,
		After: `flows:
  - id: grid
    states:
      initial: s0
      transitions:
        - {from: s0, on: e0, to: s0}
pipelines:
  - {id: e0, flow: grid, stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]}
`,
	}}
}

// eventRules documents rules about events: which pipelines serve them, and which handlers send them.
func eventRules() []Rule {
	return []Rule{{
		Code:  TwoFlows,
		Title: "one event type, two flows",
		Why: "The flow says which key an event has. Two flows would mean two keys, and the engine could keep the order of " +
			"events for neither.",
		Before: `pipelines:
  - id: new-order
    on: order-created
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
  - id: bonus
    on: order-created
    stages: [{id: count, handlers: [{id: add, request: {url: http://127.0.0.1:9085/v1/bonus}}]}]
`,
		After: `flows:
  - {id: order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: new-order
    flow: order
    on: order-created
    when: !$ event.payload.city == 'moscow'
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
  - id: bonus
    flow: order
    on: order-created
    stages: [{id: count, handlers: [{id: add, request: {url: http://127.0.0.1:9085/v1/bonus}}]}]
`,
	}, {
		Code:  NeverReached,
		Title: "pipeline that never gets an event",
		Why: "The first pipeline whose when is true serves an event. One without when takes every event, so those after it " +
			"never run.",
		Before: `flows:
  - {id: order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: any-city
    flow: order
    on: order-created
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
  - id: moscow
    flow: order
    on: order-created
    when: !$ event.payload.city == 'moscow'
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v2/push}}]}]
`,
		After: `flows:
  - {id: order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: moscow
    flow: order
    on: order-created
    when: !$ event.payload.city == 'moscow'
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v2/push}}]}]
  - id: any-city
    flow: order
    on: order-created
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
	}, {
		Code:  ImplicitFlow,
		Title: "pipeline with the id of a flow",
		Why: "A pipeline without a flow is a flow of its own, with its id. If a declared flow has the same id, the engine " +
			"would mix up the events of both.",
		Before: `flows:
  - {id: order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
		After: `flows:
  - {id: order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: order
    flow: order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`,
	}, {
		Code:  TriggerTime,
		Title: "when a trigger fires",
		Why:   "A trigger fires either with a period or by the calendar. With both, it is open which of them counts.",
		Before: `triggers:
  - {id: tick, every: 1m, cron: "* * * * *", event: balance}
` + balancePipeline,
		After: `triggers:
  - {id: tick, every: 1m, event: balance}
` + balancePipeline,
	}, {
		Code:  Cron,
		Title: "fields of cron",
		Why: "A cron line has five fields: minute, hour, day, month, weekday, where Sunday is 0. With a value that never " +
			"occurs, the trigger never fires. Where the clocks change twice a year, some times come twice or never on these days.",
		Before: `triggers:
  - {id: nightly, cron: "0 24 * * *", event: balance}
` + balancePipeline,
		After: `triggers:
  - {id: nightly, cron: "0 0 * * *", event: balance}
` + balancePipeline,
	}, {
		Code:  TimeZone,
		Title: "time zone",
		Why:   "A name outside the IANA list means another time on each machine, or none.",
		Before: `triggers:
  - {id: nightly, cron: "0 3 * * *", time-zone: Moscow, event: balance}
` + balancePipeline,
		After: `triggers:
  - {id: nightly, cron: "0 3 * * *", time-zone: Europe/Moscow, event: balance}
` + balancePipeline,
	}, {
		Code:  TriggerEvent,
		Title: "trigger without a pipeline",
		Why:   "No pipeline serves the event of this trigger, so the engine would refuse it at every firing.",
		Before: `triggers:
  - {id: tick, every: 1m, event: balances}
` + balancePipeline,
		After: `triggers:
  - {id: tick, every: 1m, event: balance}
` + balancePipeline,
	}}
}

const balancePipeline = `pipelines:
  - id: balance
    stages: [{id: move, handlers: [{id: decide, request: {url: http://127.0.0.1:9086/v1/decide}}]}]
`
