package rules

// suppressRules documents the rules about comments that suppress findings.
func suppressRules() []Rule {
	const before = `pipelines:
  - id: new-order
    stages:
`
	const stage = `      - id: notify
        handlers:
          - {id: driver, request: {url: http://127.0.0.1:9083/v1/push}}
`
	return []Rule{{
		Code:  NoReason,
		Title: "suppression without a reason",
		Why: "A comment suppresses a warning or an advice of one code, on its line or on the line below. Later readers must " +
			"know the reason, or nobody dares to remove it.",
		Before: before + "      # procaas:ignore PC0212\n" + stage,
		After:  "pipelines:\n  # procaas:ignore PC0212 because the team of orders fills it by contributions\n  - {id: new-order}\n",
	}, {
		Code:  Idle,
		Title: "suppression of nothing",
		Why: "The finding of the comment is gone, or it is an error. Errors stay: a file with one cannot run. A comment that " +
			"was left behind would hide the next mistake.",
		Before: before + "      # procaas:ignore PC0212 because it is filled later\n" + stage,
		After:  before + stage,
	}}
}
