package rules

// callRules documents the rules about pipelines that call each other.
func callRules() []Rule {
	file := func(with string) string {
		return `pipelines:
  - id: charge
    inputs: {amount: {type: number}, currency: {type: string, default: EUR}}
    outputs: {receipt: !$ sources.pay.response}
    stages:
      - id: pay
        handlers:
          - {id: pay, request: {url: http://127.0.0.1:9084/v1/charge, body: {sum: !$ inputs.amount, in: !$ inputs.currency}}}
  - id: order-placed
    shared-state: {receipt: null}
    stages:
      - id: pay
        handlers:
          - id: charge-user
            call: {pipeline: charge, with: ` + with + `}
            result: {receipt: !$ sources.charge-user.response.receipt}
`
	}
	return []Rule{{
		Code:  Call,
		Title: "call of a pipeline that cannot be meant",
		Why: "A pipeline that declares inputs or outputs is run by calls. A call gives each input that has no default, and no others. What is " +
			"said of attempts, such as retry, belongs to the handlers that make them. No pipeline calls itself: a run must come to an end.",
		Before: file("{sum: 5}"),
		After:  file("{amount: 5}"),
	}}
}
