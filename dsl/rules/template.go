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
		Title: "template that cannot be meant",
		Why: "A use of a template gives each of its parameters that has no default, and no others; expressions of the template read them as " +
			"params.NAME. A template is expanded before anything is checked, so one that nobody uses is not checked at all.",
		Before: file("{user: u-1}"),
		After:  file("{to: u-1}"),
	}}
}
