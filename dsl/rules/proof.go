package rules

// automatonRules documents rules about the states of a flow.
func automatonRules() []Rule {
	return []Rule{{
		Code:  Unreachable,
		Title: "state that nothing leads to",
		Why: "No event leads to this state. Usually its name is a typing error for another state, whose events are then " +
			"refused.",
		Before: states("{from: created, on: assigned, to: driving}", "{from: drivin, on: arrived, to: finished}"),
		After:  states("{from: created, on: assigned, to: driving}", "{from: driving, on: arrived, to: finished}"),
	}, {
		Code:  TwoWays,
		Title: "ambiguous transition",
		Why: "From one state, one event must lead to one state. Otherwise the next state would depend on the order of the " +
			"lines.",
		Before: states("{from: created, on: assigned, to: finished}", "{from: created, on: assigned, to: driving}",
			"{from: driving, on: arrived, to: finished}"),
		After: states("{from: created, on: assigned, to: driving}", "{from: driving, on: arrived, to: finished}"),
	}, {
		Code:   LeavesFinal,
		Title:  "transition out of a final state",
		Why:    "A final state is a promise that nothing happens to the entity any more. The engine keeps the state, and refuses later events.",
		Before: states("{from: created, on: assigned, to: finished}", "{from: finished, on: arrived, to: created}"),
		After:  states("{from: created, on: assigned, to: driving}", "{from: driving, on: arrived, to: finished}"),
	}, {
		Code:  DeadEnd,
		Title: "state without a way to the end",
		Why: "An entity that can no longer reach a final state stays for ever. Either a transition is missing, or the state " +
			"is final.",
		Before: states("{from: created, on: assigned, to: finished}", "{from: created, on: arrived, to: lost}"),
		After:  states("{from: created, on: assigned, to: lost}", "{from: lost, on: arrived, to: finished}"),
	}, {
		Code:  Unserved,
		Title: "transition on an event that nobody serves",
		Why: "A transition commits with a run, and a run needs a pipeline of the flow. Without one, the engine refuses the " +
			"event and the transition never happens.",
		Before: states("{from: created, on: [assigned, asigned], to: driving}", "{from: driving, on: arrived, to: finished}"),
		After:  states("{from: created, on: assigned, to: driving}", "{from: driving, on: arrived, to: finished}"),
	}, {
		Code:   NoTransition,
		Title:  "event without any transition",
		Why:    "The flow has states, but accepts this event in none of them. So the pipeline never runs.",
		Before: states("{from: created, on: assigned, to: finished}"),
		After:  states("{from: created, on: assigned, to: driving}", "{from: driving, on: arrived, to: finished}"),
	}, {
		Code:   SaidTwice,
		Title:  "repeated transition",
		Why:    "The second one changes nothing. Often the author meant another event or state.",
		Before: states("{from: created, on: assigned, to: finished}", "{from: created, on: [arrived, assigned], to: finished}"),
		After:  states("{from: created, on: assigned, to: finished}", "{from: created, on: arrived, to: finished}"),
	}}
}

// states returns an example of a flow with these transitions, whose pipelines serve two events.
func states(transitions ...string) string {
	s := `flows:
  - id: order
    key: !$ "event.payload['order-id']"
    states:
      initial: created
      final: [finished]
      transitions:
`
	for _, t := range transitions {
		s += "        - " + t + "\n"
	}
	return s + `pipelines:
  - id: assigned
    flow: order
    stages: [{id: notify, handlers: [{id: driver, request: {url: http://127.0.0.1:9083/v1/push}}]}]
  - id: arrived
    flow: order
    stages: [{id: notify, handlers: [{id: user, request: {url: http://127.0.0.1:9083/v1/push}}]}]
`
}

// degradationRules documents rules about handlers that may be left out.
func degradationRules() []Rule {
	return []Rule{{
		Code:  Degradation,
		Title: "critical handler that needs one that may be off",
		Why: "A handler that is not critical may fail, or an operator or the engine may take it out of the flow. The run " +
			"continues. When a critical handler then reads a value that nobody has set, the run fails after all.",
		Before: `pipelines:
  - id: new-order
    shared-state: {tariff: null}
    stages:
      - id: price
        handlers:
          - id: get-tariff
            critical: false
            request: {url: http://127.0.0.1:9084/v1/tariff}
            result: {tariff: !$ sources.get-tariff.response.name}
      - id: pay
        handlers: [{id: hold, request: {url: http://127.0.0.1:9084/v1/hold, body: {tariff: !$ shared-state.tariff}}}]
`,
		After: `pipelines:
  - id: new-order
    shared-state: {tariff: null}
    stages:
      - id: price
        handlers:
          - id: get-tariff
            critical: false
            request: {url: http://127.0.0.1:9084/v1/tariff}
            result: {tariff: !$ sources.get-tariff.response.name}
            fallback: {result: {tariff: econom}}
      - id: pay
        handlers: [{id: hold, request: {url: http://127.0.0.1:9084/v1/hold, body: {tariff: !$ shared-state.tariff}}}]
`,
	}, {
		Code:  Conditional,
		Title: "critical handler that reads a value set only under a condition",
		Why: "A handler that is not enabled sets nothing. A critical handler that then takes a member of the null fails, and " +
			"so does the run. Use the same condition for both, or test the value in the second one.",
		Before: underCondition(""),
		After:  underCondition("enabled: !$ event.payload.card, "),
	}, {
		Code:  NeverSet,
		Title: "name that no handler sets before it is read",
		Why: "The first value of the name is null, and no handler before this one sets it. Stages run in order, and the " +
			"handlers of a stage in the order of the file. Perhaps a handler is in the wrong place.",
		Before: `pipelines:
  - id: new-order
    shared-state: {order: null}
    stages:
      - id: pay
        handlers: [{id: hold, request: {url: http://127.0.0.1:9084/v1/hold, body: {sum: !$ shared-state.order.price}}}]
      - id: fetch
        handlers: [{id: get, request: {url: http://127.0.0.1:9081/v1/orders}, result: {order: !$ sources.get.response}}]
`,
		After: `pipelines:
  - id: new-order
    shared-state: {order: null}
    stages:
      - id: fetch
        handlers: [{id: get, request: {url: http://127.0.0.1:9081/v1/orders}, result: {order: !$ sources.get.response}}]
      - id: pay
        handlers: [{id: hold, request: {url: http://127.0.0.1:9084/v1/hold, body: {sum: !$ shared-state.order.price}}}]
`,
	}}
}

// underCondition returns an example with a handler that has a condition, and one that needs its result.
func underCondition(condition string) string {
	return `pipelines:
  - id: new-order
    shared-state: {hold: null}
    stages:
      - id: pay
        handlers:
          - id: hold-payment
            enabled: !$ event.payload.card
            request: {url: http://127.0.0.1:9084/v1/holds}
            result: {hold: !$ sources.hold-payment.response}
      - id: save
        handlers:
          - {id: save-hold, ` + condition + `request: {url: http://127.0.0.1:9081/v1/orders, body: {hold: !$ shared-state.hold.id}}}
`
}
