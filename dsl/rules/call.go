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
		Title: "call of a pipeline that cannot work",
		Why: "Calls run a pipeline that declares inputs. They also run one that declares outputs, if a handler calls it. A call sets every input without a default, and no " +
			"others. Fields about attempts, such as retry, belong to the handlers inside. No pipeline calls itself, because a run " +
			"must end.",
		Before: file("{sum: 5}"),
		After:  file("{amount: 5}"),
	}}
}
