package format

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"procaas/dsl/diag"
)

// Insert adds an entry to a list of a file. It returns the new text and the line on which the entry begins. The
// path alternates keys and ids: pipelines, new-order, stages, notify, handlers.
//
// The entry is a mapping, without indentation. It goes after the entry with the id after, or to the end.
// Everything else in the file stays the same.
func Insert(f diag.File, path []string, after, entry string) (text []byte, line int, err error) {
	s, root, found := readForm(f)
	if diag.HasErrors(found) {
		return nil, 0, fmt.Errorf("%s: %s", found[0].Span, found[0].Message)
	}
	if root == nil {
		data := tidy(s)
		return append(data, []byte(path[0]+":\n"+listed(entry, 2))...), strings.Count(string(data), "\n") + 2, nil
	}
	i := &inserter{upgrader: &upgrader{Source: s}, entry: entry, after: after}
	i.find(root, path)
	if i.problem != "" {
		return nil, 0, fmt.Errorf("%s: %s", f.Name, i.problem)
	}
	i.edits = []edit{i.add}
	return i.apply(), i.line, nil
}

// An inserter looks for the place of an entry.
type inserter struct {
	*upgrader
	entry, after string
	add          edit
	line         int
	problem      string
}

// find follows a path that begins with a key.
func (i *inserter) find(n *yaml.Node, path []string) {
	if n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 {
		i.problem = fmt.Sprintf("line %d: cannot add to {…}; write it on lines of its own", n.Line)
		return
	}
	list := entryOf(n, path[0])
	switch {
	case list == nil && len(path) == 1:
		i.below(n, path[0])
	case list == nil:
		i.problem = "there are no " + path[0]
	case len(path) == 1:
		i.into(n, list, path[0])
	default:
		for _, item := range list.Content {
			if id := entryOf(item, "id"); id != nil && id.Value == path[1] {
				i.find(item, path[2:])
				return
			}
		}
		i.problem = unknownID(list, path[0], path[1])
	}
}

// unknownID says that no entry of a list below key has an id, and which was probably meant.
func unknownID(list *yaml.Node, key, id string) string {
	var known []string
	for _, item := range list.Content {
		if at := entryOf(item, "id"); at != nil {
			known = append(known, at.Value)
		}
	}
	text := fmt.Sprintf("no entry of %s has the id %q", key, id)
	if near := diag.DidYouMean(id, known, `"`); near != "" {
		return text + "; " + near
	}
	if len(known) > 0 {
		text += "; there are " + strings.Join(known, ", ")
	}
	return text
}

// entryOf returns the value of a key.
func entryOf(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// below adds a list with the entry after all other keys of a mapping.
func (i *inserter) below(n *yaml.Node, key string) {
	column := n.Content[0].Column - 1
	at := i.behind(n, column)
	text := strings.Repeat(" ", column) + key + ":\n" + listed(i.entry, column+2)
	i.insert(at, text, false)
	i.line++
}

// into adds the entry to an existing list.
func (i *inserter) into(parent, list *yaml.Node, key string) {
	column := parent.Content[0].Column - 1
	if len(list.Content) == 0 { // [] or nothing
		for k := 0; k+1 < len(parent.Content); k += 2 {
			if parent.Content[k].Value != key {
				continue
			}
			end := i.NodeSpan(parent.Content[k]).End
			to := end
			to.Column++ // the colon
			if list.Style&yaml.FlowStyle != 0 {
				to = i.endOf(list)
			}
			i.add = edit{from: end, to: to, text: ":\n" + strings.TrimSuffix(listed(i.entry, column+2), "\n")}
			i.line = end.Line + 1
		}
		return
	}
	if list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 {
		i.problem = fmt.Sprintf("line %d: cannot add to %s: […]; write its entries on lines of their own", list.Line, key)
		return
	}
	last := list.Content[len(list.Content)-1]
	for _, item := range list.Content {
		if id := entryOf(item, "id"); id != nil && id.Value == i.after {
			last, i.after = item, ""
		}
	}
	if i.after != "" {
		i.problem = unknownID(list, key, i.after)
		return
	}
	dash := i.dashOf(last)
	at := i.behind(last, dash+1)
	i.insert(at, listed(i.entry, dash), i.airy(list))
}

// dashOf returns the column of an entry's dash.
func (i *inserter) dashOf(item *yaml.Node) int {
	line := i.Lines[item.Line-1]
	for column := min(item.Column-1, len(line)) - 1; column >= 0; column-- {
		if line[column] == '-' {
			return column
		}
	}
	return max(0, item.Column-3)
}

// behind returns the line after a value, and after the comments below it that are indented by at least from.
func (i *inserter) behind(n *yaml.Node, from int) int {
	line := i.endOf(n).Line
	for line < len(i.Lines) {
		text := string(i.Lines[line])
		trimmed := strings.TrimLeft(text, " ")
		if !strings.HasPrefix(trimmed, "#") || len(text)-len(trimmed) < max(from, 1) {
			break
		}
		line++
	}
	return line
}

// airy reports whether empty lines separate the entries of a list.
func (i *inserter) airy(list *yaml.Node) bool {
	for k := 1; k < len(list.Content); k++ {
		end := i.endOf(list.Content[k-1]).Line
		for line := end; line < list.Content[k].Line-1; line++ {
			if strings.TrimSpace(string(i.Lines[line])) == "" {
				return true
			}
		}
	}
	return false
}

// insert inserts text after a line.
func (i *inserter) insert(line int, text string, airy bool) {
	end := diag.Pos{Line: line, Column: len(i.Lines[line-1]) + 1}
	i.line = line + 1
	if airy {
		text = "\n" + text
		i.line++
	}
	i.add = edit{from: end, to: end, text: "\n" + strings.TrimSuffix(text, "\n")}
}

// listed returns an entry with its dash in a column.
func listed(entry string, column int) string {
	var b strings.Builder
	for k, line := range strings.Split(strings.TrimSuffix(entry, "\n"), "\n") {
		switch {
		case k == 0:
			line = strings.Repeat(" ", column) + "- " + line
		case line != "":
			line = strings.Repeat(" ", column+2) + line
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
