package rules

// chooseRules documents rules about branches of stages.
func chooseRules() []Rule {
	const head = `pipelines:
  - id: new-order
    stages:
      - id: pay
        choose:
`
	const card = "- when: !$ event.payload.method == 'card'\n  handlers: [{id: charge, request: {url: http://127.0.0.1:9084/v1/charge}}]\n"
	const other = "- handlers: [{id: bill, request: {url: http://127.0.0.1:9084/v1/bill}}]\n"
	return []Rule{{
		Code:  Choose,
		Title: "branch that is never taken",
		Why: "The engine takes the first branch whose when is true. A branch without when is for all other cases, so it " +
			"stands last.",
		Before: head + Indented(10, other+card),
		After:  head + Indented(10, card+other),
	}}
}
