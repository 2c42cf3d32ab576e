package rules

// queueRules documents the rules about pipelines that are queues.
func queueRules() []Rule {
	const before = `pipelines:
  - id: thumbnails
    queue:
`
	const after = `
    stages:
      - id: work
        handlers: [{id: make, request: {url: http://127.0.0.1:9081/v1/thumbnails}}]
`
	return []Rule{{
		Code:  CodeQueue,
		Title: "queue of a pipeline",
		Why: "What becomes of duplicates needs something that makes two tasks the same, and a way to merge them where they are merged. " +
			"Delays are durations.",
		Before: before + "      on-duplicate: rerun" + after,
		After:  before + "      unique: !$ event.payload.file\n      on-duplicate: rerun" + after,
	}}
}
