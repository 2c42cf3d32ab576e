package syntax

import "strings"

// InQuotes puts an expression into quotes of YAML, those that it has none of if it can.
func InQuotes(text string) string {
	if strings.Contains(text, `"`) && !strings.Contains(text, "'") {
		return "'" + text + "'"
	}
	return InDoubleQuotes(text)
}

// InDoubleQuotes puts an expression into double quotes of YAML.
func InDoubleQuotes(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
