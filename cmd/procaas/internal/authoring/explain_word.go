package authoring

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/docs"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/api/problem"
	"procaas/engine/flowtest"
	"procaas/handlers"
)

// explainWord prints what is known of a word outside the language: its glossary entry, fields, commands, and
// problems with this code. It returns false if nothing is known.
func explainWord(s cli.Streams, root *cobra.Command, word string) (bool, error) {
	glossary, err := docs.Glossary()
	if err != nil {
		return false, err
	}
	var b strings.Builder
	if meaning := glossary[word]; meaning != "" {
		fmt.Fprintf(&b, "%s: %s.\n", word, strings.TrimSuffix(meaning, "."))
	}
	b.WriteString(fieldTable(word))
	for _, t := range typesOfFields(word) {
		b.WriteString("\n" + handlers.Reference(t))
	}
	if m := problems()[word]; m.Code != "" {
		fmt.Fprintf(&b, "\nThe code %s of a refused call: %s (%d %s).\n", word, m.Title, m.Status, http.StatusText(m.Status))
	}
	title := "\nCommands:\n"
	for _, c := range everyCommand(root) {
		if c.Name() == word {
			fmt.Fprintf(&b, "%s  %s: %s\n", title, c.CommandPath(), c.Short)
			title = ""
		}
	}
	if b.Len() == 0 {
		return false, nil
	}
	_, err = fmt.Fprint(s.Out, strings.TrimPrefix(b.String(), "\n"))
	return true, err
}

// fieldTable returns a table of the fields with this name, or "".
func fieldTable(word string) string {
	fields := fieldsNamed(word)
	if len(fields) == 0 {
		return ""
	}
	return fmt.Sprintf("\nThe field `%s`:\n\n| of | type | default | meaning |\n| --- | --- | --- | --- |\n%s", word, strings.Join(fields, ""))
}

// fieldsNamed returns the rows of that table, with the mapping instead of the name.
func fieldsNamed(name string) (rows []string) {
	for _, t := range everyType() {
		for _, f := range t.Spec.Fields {
			if f.Name != name {
				continue
			}
			row := strings.Replace(handlers.ReferenceRow(f), "`"+name+"`", "`"+t.Name+"`", 1)
			if !slices.Contains(rows, row) {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// typesOfFields lists the mappings that are values of fields with this name.
func typesOfFields(name string) (found []tree.Type) {
	all := everyType()
	for _, t := range all {
		if slices.ContainsFunc(all, func(of tree.Type) bool {
			f := of.Spec.Field(name)
			for f != nil && f.Elem != nil {
				f = f.Elem
			}
			return f != nil && f.Spec == t.Spec
		}) {
			found = append(found, t)
		}
	}
	return found
}

// everyType lists the mappings of pipeline files, of handler types and of tests.
func everyType() (all []tree.Type) {
	for _, p := range addons.Language().Parts() {
		all = append(all, p.Type)
	}
	for _, t := range addons.HandlerTypes() {
		all = append(all, t.Type)
	}
	return append(all, flowtest.Reference()...)
}

// problems returns all kinds of refused calls by their codes.
func problems() map[string]problem.Kind {
	all := map[string]problem.Kind{}
	for code := range problem.Table {
		all[code] = problem.KindOf(code)
	}
	for _, p := range addons.Problems() {
		all[p.Code] = p
	}
	return all
}

// everyCommand lists the visible sub-commands of a command, recursively.
func everyCommand(c *cobra.Command) (all []*cobra.Command) {
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			all = append(append(all, sub), everyCommand(sub)...)
		}
	}
	return all
}

// words lists the words that explainWord knows.
func words(root *cobra.Command) (all []string) {
	glossary, _ := docs.Glossary()
	for w := range glossary {
		all = append(all, w)
	}
	for _, t := range everyType() {
		for _, f := range t.Spec.Fields {
			all = append(all, f.Name)
		}
	}
	for code := range problems() {
		all = append(all, code)
	}
	for _, c := range everyCommand(root) {
		all = append(all, c.Name())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
