package words

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

// maxTree bounds the nodes of a tree: larger values are plain text.
const maxTree = 2000

// Tree shows a value as JSON whose objects and lists fold. Its text is JSON, which the script of the page copies.
func Tree(v any) template.HTML {
	data, err := json.Marshal(v)
	if err != nil {
		return template.HTML(`<pre tabindex="0">` + template.HTMLEscapeString(err.Error()) + `</pre>`)
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var plain any
	if err := d.Decode(&plain); err != nil {
		panic(err) // it was written above
	}
	t := treeWriter{}
	t.write("", plain, "")
	if t.nodes > maxTree {
		return template.HTML(`<pre tabindex="0">` + template.HTMLEscapeString(JSON(v)) + `</pre>`)
	}
	return template.HTML(`<div class="tree">` + t.String() + `</div>`) //nolint:gosec // all that is put in is escaped
}

type treeWriter struct {
	strings.Builder
	nodes, depth int
}

// treeOpen is how deep a tree is open at first.
const treeOpen = 2

// write adds a value with its name before it and the comma behind it.
func (t *treeWriter) write(name string, v any, comma string) {
	t.nodes++
	if t.nodes > maxTree {
		return
	}
	open, shut, size := "{", "}", 0
	switch v := v.(type) {
	case map[string]any:
		size = len(v)
	case []any:
		open, shut, size = "[", "]", len(v)
	}
	if size == 0 {
		data, _ := json.Marshal(v) // it was decoded
		fmt.Fprintf(t, `<div>%s%s%s</div>`, name, template.HTMLEscapeString(string(data)), comma)
		return
	}
	state := ""
	if t.depth < treeOpen {
		state = " open"
	}
	fmt.Fprintf(t, `<details%s><summary>%s%s<i data-rest=" … %d %s%s"></i></summary>`, state, name, open, size, shut, comma)
	t.depth++
	next := func() string {
		size--
		if size > 0 {
			return ","
		}
		return ""
	}
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			quoted, _ := json.Marshal(key) // a string
			t.write(`<b>`+template.HTMLEscapeString(string(quoted))+`</b>: `, v[key], next())
		}
	case []any:
		for _, e := range v {
			t.write("", e, next())
		}
	}
	t.depth--
	fmt.Fprintf(t, `<div class="end">%s%s</div></details>`, shut, comma)
}
