package syntax

import "strings"

// InQuotes puts an expression into YAML quotes, preferably a kind that it does not contain.
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
