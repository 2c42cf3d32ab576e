package dsl

import "slices"

// wayRules documents the rules about ways that a run may go.
func wayRules() []Rule {
	return slices.Concat(errorRules(), chooseRules(), eachRules(), awaitRules(), templateRules(), callRules(), compensateRules())
}

// eachRules documents the rules about for-each.
func eachRules() []Rule {
	return []Rule{{
		Code:  codeForEach,
		Title: "for-each with nothing to repeat, or not in parallel",
		Why: "for-each repeats a call. A handler that only computes has none, and functions of lists say it shorter. " +
			"Calls that touch the same thing keep their order, so a bound of parallel ones above 1 has no meaning.",
		Before: `pipelines:
  - id: new-order
    shared-state: {total: 0}
    stages:
      - id: count
        handlers:
          - id: total
            for-each: {items: !$ event.payload.lines}
            set: {total: 1}
`,
		After: `pipelines:
  - id: new-order
    shared-state: {total: 0}
    stages:
      - id: count
        handlers:
          - id: total
            set:
              total: !$ |
                sum(event.payload.lines, .price)
`,
	}}
}
