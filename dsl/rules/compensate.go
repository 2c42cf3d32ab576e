package rules

// compensateRules documents the rules about compensations.
func compensateRules() []Rule {
	file := func(undo string) string {
		return `pipelines:
  - id: order-placed
    shared-state: {hold: null}
    stages:
      - id: pay
        handlers:
          - id: hold
            request: {url: http://127.0.0.1:9084/v1/holds, body: {sum: !$ event.payload.sum}}
            result: {hold: !$ sources.hold.response.id}
            compensate:
              ` + undo + `
      - id: ship
        handlers:
          - {id: ship, request: {url: http://127.0.0.1:9085/v1/parcels, body: {order: !$ event.payload.id}}}
`
	}
	return []Rule{{
		Code:  Compensate,
		Title: "compensation that undoes nothing",
		Why: "A compensation is a call that undoes the work of its handler at a service. Setting the shared state undoes " +
			"nothing there. A handler without a call leaves nothing to undo. With for-each, some of the calls may be made and others " +
			"not, and one call cannot undo that.",
		Before: file("set: {hold: null}"),
		After:  file(`request: {url: http://127.0.0.1:9084/v1/releases, body: {hold: !$ shared-state.hold}}`),
	}}
}
