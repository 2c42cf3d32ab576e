package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/engine/flowtest"
	"procaas/handlers"
)

func explainCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain NAME | RUN PATH",
		Short: "Explain a diagnostic code, a handler type, a function, or what a run did",
		Long: `explain tells what a diagnostic code such as PC0103 means, with an example that
breaks the rule and the same example mended; what the fields of a handler type
such as request are; what a function of expressions such as len does; or, as
tests, how *.test.yaml are written.
Without a name it lists everything that it can explain.

With a run of a server and the path of a handler it tells why the handler ran in
it, or did not: what decided (a condition, a switch, a limit, a rollout, a
fallback), and what every part of its conditions came to at the time. The path
may be shortened from the left. It may be of a handler inside of a call, of a
repeated stage, or of a compensation; caller>handler asks for one call of several,
and work/lines[2]>work/lines/reserve for one element of a list, from 0, as the
logs name it.`,
		Example: "  procaas explain PC0103\n  procaas explain request\n  procaas explain 0199d3f0-6f6e-7c7b-9d0a-6a3c1c2f4e11 notify-driver",
		Args:    cobra.MaximumNArgs(2),
	}
	var f clientFlags
	f.add(c)
	format := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		form, err := format()
		if err != nil {
			return err
		}
		switch {
		case len(args) == 2:
			return explainRun(c.Context(), s, &f, args[0], args[1], form)
		case form != "text":
			return usagef("--format %s is for procaas explain RUN PATH", form)
		case len(args) == 0:
			return explainAll(s)
		}
		return explain(s, args[0])
	}
	return c
}

func explain(s streams, name string) error {
	if rule, ok := dsl.Explain(dsl.Code(strings.ToUpper(name))); ok {
		explainRule(s, rule)
		return nil
	}
	if name == "tests" {
		_, err := fmt.Fprint(s.out, handlers.Reference(flowtest.Reference()...))
		return err
	}
	for _, t := range handlers.All() {
		if t.Name == name {
			_, err := fmt.Fprint(s.out, handlers.Reference(t.Type))
			return err
		}
	}
	for _, f := range dsl.Functions() {
		if f.Name == name {
			fmt.Fprintf(s.out, "%s\n\n%s\n", f.Signature, f.Doc)
			return nil
		}
	}
	if near := dsl.Suggest(name, explainable()); near != "" {
		return usagef("nothing is called %q; did you mean %q?", name, near)
	}
	return usagef("nothing is called %q; procaas explain lists what there is", name)
}

func explainRule(s streams, r dsl.Rule) {
	fmt.Fprintf(s.out, "%s: %s\n\n%s\n", r.Code, r.Title, r.Why)
	if r.Before != "" {
		fmt.Fprintf(s.out, "\nInstead of\n\n%s\n", indent(r.Before))
	}
	if r.After != "" {
		fmt.Fprintf(s.out, "\nwrite\n\n%s\n", indent(r.After))
	}
}

func indent(text string) string {
	text = strings.TrimRight(text, "\n")
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// explainable lists every name that explain knows.
func explainable() []string {
	names := []string{"tests"}
	for _, r := range dsl.Rules() {
		names = append(names, string(r.Code))
	}
	for _, t := range handlers.All() {
		names = append(names, t.Name)
	}
	for _, f := range dsl.Functions() {
		names = append(names, f.Name)
	}
	return names
}

func explainAll(s streams) error {
	fmt.Fprintln(s.out, "Handler types:")
	for _, t := range handlers.All() {
		fmt.Fprintf(s.out, "  %-10s %s\n", t.Name, firstSentence(t.Spec.Doc))
	}
	fmt.Fprintln(s.out, "\nFunctions of expressions:")
	for _, f := range dsl.Functions() {
		fmt.Fprintf(s.out, "  %-34s %s\n", f.Signature, firstSentence(f.Doc))
	}
	fmt.Fprintln(s.out, "\nDiagnostics:")
	for _, r := range dsl.Rules() {
		fmt.Fprintf(s.out, "  %s  %s\n", r.Code, r.Title)
	}
	return nil
}

func firstSentence(doc string) string {
	doc = strings.ReplaceAll(doc, "\n", " ")
	if i := strings.Index(doc, ". "); i >= 0 {
		return doc[:i+1]
	}
	return doc
}
