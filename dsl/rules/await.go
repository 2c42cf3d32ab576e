package rules

// awaitRules documents the rules about handlers that wait for events.
func awaitRules() []Rule {
	file := func(flow, fields string) string {
		return `flows:
  - {id: order, key: !$ "event.payload['order-id']"}
pipelines:
  - id: approve-order
` + flow + `    stages:
      - id: ask
        handlers:
          - id: approval
            await: {event: approved, timeout: 24h}
` + fields
	}
	return []Rule{{
		Code:  Await,
		Title: "await that cannot be meant",
		Why: "A handler with await waits for an event of the same key: only a flow says which events those are. It makes no call, so what is " +
			"said of calls has no meaning for it; on-error says what becomes of its timeout.",
		Before: file("", ""),
		After:  file("    flow: order\n", ""),
	}}
}
