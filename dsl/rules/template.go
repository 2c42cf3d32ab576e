package rules

// templateRules documents the rules about templates of handlers.
func templateRules() []Rule {
	file := func(with string) string {
		return `templates:
  - id: notify
    parameters: {to: {type: string}, text: {type: string, default: done}}
    handler:
      critical: false
      request: {url: http://127.0.0.1:9083/v1/push, body: {to: !$ params.to, text: !$ "'order: ' + params.text"}}
pipelines:
  - id: order-placed
    stages:
      - id: tell
        handlers:
          - id: tell-user
            use: {template: notify, with: ` + with + `}
`
	}
	return []Rule{{
		Code:  Template,
		Title: "use of a template that cannot work",
		Why: "Each use of a template sets every parameter without a default, and no others. Expressions of the template read " +
			"them as params.NAME. procaas expands a template before it checks anything, so it does not check one without a use.",
		Before: file("{user: u-1}"),
		After:  file("{to: u-1}"),
	}}
}
