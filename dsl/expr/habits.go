package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"procaas/dsl/datum"
)

// nameHabits are names of other tools, in lower case. Declared names take precedence.
var nameHabits = map[string]string{
	"state": "write shared-state", "vars": "write shared-state", "variables": "write shared-state", "context": "write shared-state",
	"ctx": "write shared-state", "store": "write shared-state",
	"payload": "write event.payload", "body": "write event.payload", "request": "write event.payload", "input": "write event.payload",
	"message": "write event.payload", "msg": "write event.payload", "data": "write event.payload", "trigger": "write event",
	"steps": "write sources.HANDLER.response", "outputs": "write sources.HANDLER.response", "results": "write sources.HANDLER.response",
	"tasks": "write sources.HANDLER.response", "handlers": "write sources.HANDLER.response", "nodes": "write sources.HANDLER.response",
	"env":     "write !secret NAME in the body of a handler, or read a live setting: configs.NAME",
	"secrets": "write !secret NAME in the body of a handler: expressions do not see secrets",
	"secret":  "write !secret NAME in the body of a handler: expressions do not see secrets",
	"yes":     "write true", "no": "write false", "true": "write true", "false": "write false", // TRUE
	"undefined": "write null", "none": "write null", "null": "write null", "nan": "write null", "nothing": "write null",
	"this": "name the root: event, shared-state or sources", "self": "name the root: event, shared-state or sources",
	"$": "name the root: event, shared-state or sources", "it": "write # for the element of a list",
	"loop": "write #index for the place of an element",
}

// habitOf translates an unknown name. Case does not matter, as in TRUE, NULL and None.
func (b *names) habitOf(name string) string {
	hint := nameHabits[strings.ToLower(name)]
	for _, root := range []string{StateRoot, "event", "sources", "configs"} {
		if strings.Contains(hint, root) && !b.scope.has(root) {
			return "" // a file of another kind has other roots
		}
	}
	return hint
}

// lengthWords are members for the length of lists and texts in other languages.
var lengthWords = []string{"length", "size", "count", "len"}

// glued reports whether a member of the shared state was meant as a subtraction. A hyphen between name
// characters is part of the name.
func (b *names) glued(name string) (spaced string, ok bool) {
	for i := range name {
		if name[i] != '-' || !b.scope.declared(name[:i]) {
			continue
		}
		if right := name[i+1:]; b.knows(right) || strings.Trim(right, "0123456789") == "" {
			return StateRoot + "." + name[:i] + " - " + right, true
		}
	}
	return "", false
}

// lengthHint returns the hint for a member that asks a list for its length.
func lengthHint(member, list string) string {
	if slices.Contains(lengthWords, member) {
		return "write len(" + list + ")"
	}
	return ""
}

// memberHint returns the members of a root, and where the intended one probably is.
func memberHint(of, name string, members []string) string {
	hint := "it has " + strings.Join(members, ", ")
	switch {
	case of == "event":
		return hint + "; the sender's own data is in event.payload"
	case strings.HasPrefix(of, "sources.") && slices.Contains([]string{"body", "result", "output", "data", "value", "json"}, name):
		return "write response"
	}
	return hint
}

// mixHint returns what to write instead of an operator on incompatible types.
func (b *reports) mixHint(x *ast.BinaryNode, l, r datum.Shape) string {
	left, right := b.Text(x.Left), b.Text(x.Right)
	text, number := left, right // which of the two is the string and which the number
	if l&datum.StringShape == 0 {
		text, number = right, left
	}
	join, joins := x.Left.(*ast.BinaryNode)
	mixed := (l|r)&datum.StringShape != 0 && (l|r)&datum.NumberShape != 0
	switch {
	case x.Operator == "-" && joins && join.Operator == "+" && l&datum.NumberShape == 0:
		return fmt.Sprintf("write %s + string(%s - %s)", b.Text(join.Left), b.Text(join.Right), right)
	case x.Operator == "+" && mixed && number == right:
		return fmt.Sprintf("write %s + string(%s)", left, right)
	case x.Operator == "+" && mixed:
		return fmt.Sprintf("write string(%s) + %s", left, right)
	case x.Operator == "%" && l == datum.StringShape:
		return "join the parts: 'order ' + string(number)"
	case x.Operator == "*" && (l|r)&datum.StringShape != 0:
		return fmt.Sprintf("write repeat(%s, %s) to repeat a text, or int(%s) or float(%s) for its number", text, number, text, text)
	case x.Operator == "+" && l&r&datum.MapShape != 0:
		return fmt.Sprintf("write merge(%s, %s)", left, right)
	case l == datum.NullShape || r == datum.NullShape:
		return "write a value in the place of null"
	case mixed:
		return fmt.Sprintf("write int(%s) or float(%s) for the number in the text", text, text)
	}
	return ""
}
