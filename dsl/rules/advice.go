package rules

// adviceRules documents advice. It never keeps files from loading, but "validate --fail-level advice" fails
// because of it.
func adviceRules() []Rule {
	return []Rule{{
		Code:  Routing,
		Title: "handler that only re-routes",
		Why: "The handler only computes whether others run. So the condition stands far from the handlers that depend on it, " +
			"and needs a name of the shared state. Write it into enabled of the handlers or of their stage, or choose between " +
			"branches.",
		Before: `pipelines:
  - id: new-order
    shared-state: {wants-push: false}
    stages:
      - id: decide
        handlers:
          - {id: decide, set: {wants-push: !$ event.payload.app == 'mobile' and event.payload.quiet == false}}
      - id: notify
        handlers:
          - {id: push, critical: false, enabled: !$ shared-state.wants-push, request: {url: http://127.0.0.1:9083/v1/push}}
`,
		After: `pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - id: push
            critical: false
            enabled: !$ event.payload.app == 'mobile' and event.payload.quiet == false
            request: {url: http://127.0.0.1:9083/v1/push}
`,
	}, {
		Code:  NeedlessStage,
		Title: "stage that needs nothing of the one before",
		Why: "Stages run one after the other. Two that only ask for something, and do not need each other's answers, take " +
			"twice the time. Within one stage, a handler still waits for what it reads.",
		Before: `pipelines:
  - id: new-order
    shared-state: {order: null, user: null}
    stages:
      - id: fetch-order
        handlers:
          - {id: get-order, request: {url: http://127.0.0.1:9081/v1/orders}, result: {order: !$ sources.get-order.response}}
      - id: fetch-user
        handlers:
          - {id: get-user, request: {url: http://127.0.0.1:9082/v1/users}, result: {user: !$ sources.get-user.response}}
`,
		After: `pipelines:
  - id: new-order
    shared-state: {order: null, user: null}
    stages:
      - id: fetch
        handlers:
          - {id: get-order, request: {url: http://127.0.0.1:9081/v1/orders}, result: {order: !$ sources.get-order.response}}
          - {id: get-user, request: {url: http://127.0.0.1:9082/v1/users}, result: {user: !$ sources.get-user.response}}
`,
	}, {
		Code:  AccidentalWrite,
		Title: "handlers in a row because of a name",
		Why: "Two handlers of a stage that set the same name run one after the other, so that the later one wins. When " +
			"nobody reads the first value, the name is mostly a copy, and the wait is for nothing.",
		Before: accidental("reply"),
		After:  accidental("user-reply"),
	}, {
		Code:  LoneCritical,
		Title: "critical handler among secondary ones",
		Why: "A handler of a pipeline is critical by default. Here its neighbours are not, and nobody needs its result. " +
			"Mostly the author forgot to write critical: false, and a failure of the handler fails the run.",
		Before: amongSecondary(""),
		After:  amongSecondary("critical: false, "),
	}, {
		Code:  SameRequest,
		Title: "the same request twice",
		Why: "The same question gets the same answer when nothing has happened in between. The engine keeps the first " +
			"answer: read it from sources, or from the shared state.",
		Before: `pipelines:
  - id: new-order
    shared-state: {order: null, price: 0}
    stages:
      - id: fetch
        handlers:
          - {id: get-order, request: {url: http://127.0.0.1:9081/v1/orders, query: {id: !$ event.id}}, result: {order: !$ sources.get-order.response}}
      - id: price
        handlers:
          - {id: name, set: {price: !$ shared-state.order.price}}
          - {id: get-price, request: {url: http://127.0.0.1:9081/v1/orders, query: {id: !$ event.id}}, result: {price: !$ sources.get-price.response.price}}
`,
		After: `pipelines:
  - id: new-order
    shared-state: {order: null, price: 0}
    stages:
      - id: fetch
        handlers:
          - {id: get-order, request: {url: http://127.0.0.1:9081/v1/orders, query: {id: !$ event.id}}, result: {order: !$ sources.get-order.response}}
      - id: price
        handlers:
          - {id: name, set: {price: !$ sources.get-order.response.price}}
`,
	}, {
		Code:  HeavyLogic,
		Title: "logic that belongs in a service",
		Why: "A pipeline says which services to call, when, and with which values. Rules of the business in its expressions " +
			"have no tests, no types and no version of their own. Short ones are fine. Put long ones into a service, or into steps " +
			"with names.",
		Before: inExample("set", "event.payload.a if event.payload.k == 'a' else event.payload.b if event.payload.k == 'b' else "+
			"event.payload.c if event.payload.k == 'c' else event.payload.d if event.payload.k == 'd' else "+
			"event.payload.e if event.payload.k == 'e' else event.payload.f if event.payload.k == 'f' else 0"),
		After: inExample("set", "sources.get-order.response.price"),
	}, {
		Code:  HandmadeState,
		Title: "pipeline that should be a transition",
		Why: "Nobody checks a state that pipelines keep by hand. They serve events out of turn, and a mistyped word is a " +
			"state of its own. states of a flow declares the states and the events between them. Then only the engine changes the " +
			"state, and validate proves that there is a way to the end.",
		Before: `flows:
  - {id: order, key: !$ event.payload.id, shared-state: {status: new}}
pipelines:
  - {id: order-paid, flow: order, stages: [{id: note, handlers: [{id: note, set: {status: paid}}]}]}
`,
		After: `flows:
  - id: order
    key: !$ event.payload.id
    states: {initial: new, final: [paid], transitions: [{from: new, on: order-paid, to: paid}]}
pipelines:
  - {id: order-paid, flow: order}
`,
	}, {
		Code:  LongSecondary,
		Title: "secondary handler that holds critical ones up",
		Why: "A run can do without a handler that is not critical, but it still waits for it. When the service hangs, each attempt takes its whole " +
			"timeout, and all that is behind it waits. A deadline bounds all attempts together. With a fallback, only the first runs wait.",
		Before: longSecondary("retry: {attempts: 3}"),
		After:  longSecondary("retry: {attempts: 3}, deadline: 2s"),
	}, {
		Code:  UnsureGuest,
		Title: "value that may become null",
		Why: "A service may answer 200 with {}. The handler then succeeds, and the name that it sets becomes null. The first value does not come " +
			"back. A critical handler of another owner that computes with the name fails, and the run with it. A critical request that " +
			"changes something sends the null. A schema makes the handler that reads the response fail instead. Or write what stands in " +
			"for a missing value.",
		Before: unsureGuest(""),
		After:  unsureGuest("response-schema: {type: object, required: [points], properties: {points: {type: integer}}}\n    "),
	}, {
		Code:  ElementRule,
		Title: "rule of on-error that leaves out elements",
		Why: "A rule of a handler with for-each applies to each element. The others go on, and the list has null in the place of the element. " +
			"Earlier versions ended the list at the first such error, and computed no result. Say which of the two you mean.",
		Before: elementRule("then: continue"),
		After:  elementRule("applies-to: element, then: continue"),
	}}
}

// elementRule returns an example with a rule of on-error for a handler with for-each.
func elementRule(fields string) string {
	return `pipelines:
  - id: price-lines
    shared-state: {asked: 0}
    stages:
      - id: price
        handlers:
          - id: ask
            for-each: {items: !$ event.payload.lines}
            request: {url: http://127.0.0.1:9082/v1/price, query: {sku: !$ item.sku}}
            on-error: [{on: 404, ` + fields + `}]
            result: {asked: !$ len(sources.ask.response)}
`
}

// unsureGuest returns an example with a contribution, whose request has further fields, and a critical handler
// that computes with what it sets.
func unsureGuest(fields string) string {
	return `pipelines:
  - id: order-paid
    owner: team-core
    contributions: [{owners: [team-bonus], stages: [reward]}]
    shared-state: {total: 0}
    stages:
      - {id: reward}
      - {id: sum, handlers: [{id: sum, set: {total: !$ shared-state.bonus.points * 2}}]}
handlers:
  - id: bonus
    into: order-paid/reward
    owner: team-bonus
    critical: false
    shared-state: {points: 0}
    ` + fields + `request: {url: http://127.0.0.1:9082/v1/points}
    result: {points: !$ sources.bonus.response.points}
`
}

func accidental(name string) string {
	return `pipelines:
  - id: new-order
    shared-state: {reply: null, user-reply: null}
    stages:
      - id: notify
        handlers:
          - {id: driver, request: {url: http://127.0.0.1:9083/v1/push, query: {to: driver}}, result: {` + name + `: !$ sources.driver.response}}
          - {id: user, request: {url: http://127.0.0.1:9083/v1/push, query: {to: user}}, result: {reply: !$ sources.user.response}}
`
}

func amongSecondary(critical string) string {
	return `pipelines:
  - id: new-order
    stages:
      - id: miscellaneous
        handlers:
          - {id: statistics, critical: false, request: {url: http://127.0.0.1:9085/v1/facts}}
          - {id: bonus, ` + critical + `request: {url: http://127.0.0.1:9086/v1/bonus}}
          - {id: receipt, critical: false, request: {url: http://127.0.0.1:9083/v1/push}}
`
}

// longSecondary returns an example with an optional handler, with the given fields, before a critical one.
func longSecondary(fields string) string {
	return `pipelines:
  - id: new-order
    stages:
      - id: notify
        handlers:
          - {id: push, critical: false, ` + fields + `, request: {url: http://127.0.0.1:9083/v1/push}}
      - id: pay
        handlers:
          - {id: charge, request: {url: http://127.0.0.1:9084/v1/charges, body: {order: !$ event.id}}}
`
}
