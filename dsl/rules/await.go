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
		Title: "await that cannot work",
		Why: "A handler with await waits for an event of the same key, and only a flow has a key. It makes no call, so " +
			"fields about calls mean nothing for it. Its timeout is an error for on-error.",
		Before: file("", ""),
		After:  file("    flow: order\n", ""),
	}}
}
