package language

import "procaas/dsl/rules"

// queueRules documents the rules about pipelines that are queues.
func queueRules() []rules.Rule {
	const before = `pipelines:
  - id: thumbnails
    queue:
`
	const after = `
    stages:
      - id: work
        handlers: [{id: make, request: {url: http://127.0.0.1:9081/v1/thumbnails}}]
`
	return []rules.Rule{{
		Code:  rules.CodeQueue,
		Title: "queue of a pipeline",
		Why: "Duplicates need a rule for when two tasks are the same, and a way to merge them if on-duplicate merges. Delays " +
			"are durations.",
		Before: before + "      on-duplicate: rerun" + after,
		After:  before + "      unique: !$ event.payload.file\n      on-duplicate: rerun" + after,
	}}
}
