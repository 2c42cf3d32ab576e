package rules

// errorRules documents rules about errors of handlers.
func errorRules() []Rule {
	return []Rule{{
		Code:  OnError,
		Title: "rule of on-error that cannot work",
		Why: "A rule says how the run continues after a call has failed: continue takes a result, fail takes a message, and " +
			"skip neither. A handler without a call has no such errors.",
		Before: inOnError("- {on: 404, then: fail, result: {driver: null}}"),
		After:  inOnError("- {on: 404, then: continue, result: {driver: none}}"),
	}, {
		Code:   NeverMatches,
		Title:  "rule of on-error that no error reaches",
		Why:    "The first rule that fits counts. A rule after one that takes the same errors never does anything.",
		Before: inOnError("- {then: continue, result: {driver: none}}", "- {on: 404, then: fail, message: no such driver}"),
		After:  inOnError("- {on: 404, then: fail, message: no such driver}", "- {then: continue, result: {driver: none}}"),
	}}
}

// inOnError returns an example with rules of on-error.
func inOnError(rules ...string) string {
	s := `pipelines:
  - id: new-order
    shared-state: {driver: null}
    stages:
      - id: search
        handlers:
          - id: find
            request: {url: http://127.0.0.1:9082/v1/drivers}
            result: {driver: !$ sources.find.response.id}
            on-error:
`
	for _, rule := range rules {
		s += Indented(14, rule)
	}
	return s
}
