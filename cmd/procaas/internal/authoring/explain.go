package authoring

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/docs"
	"procaas/dsl/diag"
	"procaas/dsl/library"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/flowtest"
	"procaas/handlers"
)

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain NAME… | RUN PATH | KEY PATH",
		Short: "Explain a diagnostic code, a handler type, a function, or what a run did",
		Long: `explain says what a name means:

  PC0103                      a diagnostic code, with a wrong and a right example
  request, retry, stage       the fields of a handler type or a part of the language
  len                         a function of expressions
  tests                       how *.test.yaml files are written
  critical, parked, hold      any other word: a field, a status, a command
  event_rejected              the code of a refused call

It explains several names one after the other. Without a name it lists everything
that it can explain.

With a run of a server and the path of a handler, explain says why the handler ran
or did not run. It names what decided: a condition, a switch, a limit, a rollout or a
fallback. It shows the value that each part of the conditions had at the time. A key
stands for its newest run. You can shorten the path from the left.

The handler may be inside of a call, a repeated stage or a compensation. Write
caller>handler to choose one call of several. Write work/lines[2]>work/lines/reserve
for one element of a list, counted from 0, as the logs do.`,
		Example: "  procaas explain PC0103\n  procaas explain request\n  procaas explain stage\n  procaas explain o-1 notify-driver",
		Args:    cobra.ArbitraryArgs,
	}
	cli.ServerFlags(c)
	format := cli.Format(c, "text", "json")
	return cli.Calls(c, func(q *cli.Call) error {
		word := strings.Join(q.Args, " ")
		known := append(explainable(), words(c.Root())...)
		unknown := func(name string) bool {
			return !slices.Contains(known, name) && !slices.Contains(known, strings.ToUpper(name))
		}
		several := len(q.Args) > 1 && unknown(word)
		switch {
		case several && *format == "text" && !slices.ContainsFunc(q.Args, unknown):
			for i, name := range q.Args {
				if i > 0 {
					fmt.Fprintln(q.Out)
				}
				if err := explain(q.Streams, c.Root(), name); err != nil {
					return err
				}
			}
			return nil
		case several && len(q.Args) > 2:
			return cli.Usagef("%q: want names, or a run or key and the path of a handler", word)
		case several:
			return q.ForRun(q.Args[0], nil, func(run string) error {
				why, err := q.Explain(q.Ctx, run, q.Args[1])
				if err != nil {
					return err
				}
				return q.Show(why, func() error { return writeExplanation(q, why) })
			})
		case *format != "text":
			return cli.Usagef("--format %s is for procaas explain RUN PATH", *format)
		case len(q.Args) == 0:
			return explainAll(q.Streams)
		}
		return explain(q.Streams, c.Root(), word)
	})
}

// Explainable lists what explain knows by name.
func Explainable(root *cobra.Command) []string { return append(explainable(), words(root)...) }

// explain prints what is known of a name of the language or of another word. It accepts the plural, capitals,
// and spaces instead of hyphens.
func explain(s cli.Streams, root *cobra.Command, name string) error {
	forms := []string{name, strings.TrimSuffix(name, "s"), strings.TrimSuffix(name, "es"), name + "s"}
	lower := strings.ToLower(name)
	forms = append(forms, lower, strings.ReplaceAll(lower, "-", " "))
	for _, form := range forms {
		known, err := explainName(s, form)
		if err != nil {
			return err
		}
		if known { // the name may also be a field
			fields := fieldTable(form)
			if form != name {
				fields += fieldTable(name)
			}
			return s.Printf("%s", fields)
		}
	}
	for _, form := range forms {
		if known, err := explainWord(s, root, form); known || err != nil {
			return err
		}
	}
	known := Explainable(root)
	show := "procaas runs show " + name + " shows it, and procaas explain " + name + " PATH says why a handler ran"
	if strings.ContainsAny(name, "0123456789") && (strings.Contains(name, "-") || diag.Suggest(name, known) == "") {
		return cli.Usagef("%s looks like a run or a key: %s", name, show)
	}
	if told, err := mention(s, name); told || err != nil {
		return err
	}
	return cli.Usagef("nothing is called %q; %s", name,
		cli.Meant(name, known, "did you mean %q?", "procaas explain lists what there is, and "+
			"procaas docs --search finds text")+
			"\nIf it is a run or a key: "+show)
}

// mostMentions bounds how many pages explain lists for a word.
const mostMentions = 6

// mention prints which pages are about a word: first those with its name, then those that contain the whole word. It
// returns false if there is none.
func mention(s cli.Streams, word string) (bool, error) {
	pages, err := mentions(word)
	if err != nil || len(pages) == 0 {
		return false, err
	}
	if err := s.Printf("%s is no word of the language. These pages are about it:\n\n", word); err != nil {
		return true, err
	}
	err = cli.Table(s.Out, "READ\tABOUT", pages[:min(mostMentions, len(pages))], func(p docs.Page) cli.Row {
		return cli.Row{"procaas docs " + p.Name, p.Title}
	})
	return true, cmp.Or(err, s.Printf("\nprocaas docs --search %s shows each place.\n", word))
}

// mentions returns the pages with the name of a word, and those that contain the whole word.
func mentions(word string) ([]docs.Page, error) {
	all, err := docs.Pages()
	if err != nil {
		return nil, err
	}
	hits, err := docs.Search(word)
	whole := regexp.MustCompile(`(?i)(^|[^\w-])` + regexp.QuoteMeta(word) + `($|[^\w-])`)
	var pages []docs.Page
	add := func(p docs.Page) {
		if !slices.ContainsFunc(pages, func(have docs.Page) bool { return have.Name == p.Name }) {
			pages = append(pages, p)
		}
	}
	for _, p := range all {
		if strings.EqualFold(path.Base(p.Name), word) {
			add(p)
		}
	}
	for _, h := range hits {
		if whole.MatchString(h.Text) {
			add(h.Page)
		}
	}
	return pages, err
}

// explainName explains a code, a handler type, a part of the language or a function. It returns false for other
// names.
func explainName(s cli.Streams, name string) (bool, error) {
	if rule, ok := addons.Language().Rule(diag.Code(strings.ToUpper(name))); ok {
		explainRule(s, rule)
		return true, nil
	}
	if name == "tests" {
		_, err := fmt.Fprint(s.Out, handlers.Reference(flowtest.Reference()...))
		return true, err
	}
	for _, t := range addons.HandlerTypes() {
		if t.Name == name {
			_, err := fmt.Fprint(s.Out, handlers.Reference(t.Type))
			return true, err
		}
	}
	for _, p := range addons.Language().Parts() {
		if p.Name == name {
			return true, explainPart(s, p)
		}
	}
	for _, f := range library.Functions() {
		if f.Name == name {
			fmt.Fprintf(s.Out, "%s\n\n%s\n", f.Signature, f.Doc)
			return true, nil
		}
	}
	return false, nil
}

// explainPart describes a part of the language. For pipelines, stages, handlers and flows, which people
// confuse, it also says when to use which.
func explainPart(s cli.Streams, p tree.Part) error {
	text := handlers.Reference(p.Type)
	text += "\nIts place in a file is " + p.At + ".\n"
	if why := whys[p.Name]; why != "" {
		text += "\n" + why + "\nprocaas new asks what you want to do, and chooses the right part.\n"
	}
	_, err := io.WriteString(s.Out, text)
	return err
}

func explainRule(s cli.Streams, r rules.Rule) {
	fmt.Fprintf(s.Out, "%s: %s\n\n%s\n", r.Code, r.Title, r.Why)
	if r.Before != "" {
		fmt.Fprintf(s.Out, "\nInstead of\n\n%s\n", indent(r.Before))
	}
	if r.After != "" {
		fmt.Fprintf(s.Out, "\nwrite\n\n%s\n", indent(r.After))
	}
}

func indent(text string) string {
	text = strings.TrimRight(text, "\n")
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

// explainable lists every name that explain knows.
func explainable() []string {
	names := []string{"tests"}
	for _, r := range addons.Language().Rules() {
		names = append(names, string(r.Code))
	}
	for _, t := range addons.HandlerTypes() {
		names = append(names, t.Name)
	}
	for _, p := range addons.Language().Parts() {
		names = append(names, p.Name)
	}
	for _, f := range library.Functions() {
		names = append(names, f.Name)
	}
	return names
}

// explainAll lists all names, in columns.
func explainAll(s cli.Streams) error {
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	section := func(title string) { fmt.Fprintf(w, "%s:\n", title) }
	section("Handler types")
	for _, t := range addons.HandlerTypes() {
		fmt.Fprintf(w, "  %s\t%s\n", t.Name, inShort(t.Type))
	}
	section("\nOther parts of pipeline files")
	for _, p := range addons.Language().Parts() {
		fmt.Fprintf(w, "  %s\t%s\n", p.Name, inShort(p.Type))
	}
	section("\nFunctions of expressions")
	for _, f := range library.Functions() {
		fmt.Fprintf(w, "  %s\t%s\n", f.Signature, firstSentence(f.Doc))
	}
	section("\nTests")
	fmt.Fprintf(w, "  tests\tHow *.test.yaml are written.\n")
	section("\nDiagnostics")
	for _, r := range addons.Language().Rules() {
		fmt.Fprintf(w, "  %s\t%s\n", r.Code, r.Title)
	}
	return w.Flush()
}

// inShort describes a type in a sentence, without its Go name, which authors never see.
func inShort(t tree.Type) string {
	text := firstSentence(t.Spec.Doc)
	for _, begin := range []string{"A ", "An ", ""} {
		if rest, ok := strings.CutPrefix(text, begin+t.Spec.Name+" "); ok {
			return strings.TrimPrefix(rest, "is ")
		}
	}
	return text
}

func firstSentence(doc string) string {
	doc = strings.ReplaceAll(doc, "\n", " ")
	if i := strings.Index(doc, ". "); i >= 0 {
		return doc[:i+1]
	}
	return doc
}
