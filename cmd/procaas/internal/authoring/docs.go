package authoring

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/docs"
	"procaas/engine"
	"procaas/engine/api/cli"
	"procaas/pipelines"
)

func docsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "docs [PAGE]",
		Short: "Read the documentation",
		Long: `docs prints a page of the documentation, as Markdown. Without a page it lists
all pages in reading order. "docs recipes" lists flows to copy, and "docs recipes/NAME"
prints one with its test. "docs guarantees" prints what the engine promises, exactly.
With --search it lists the paragraphs that contain all words.`,
		Example: "  procaas docs\n  procaas docs tutorial\n  procaas docs authoring/state\n  procaas docs --search idempotency",
		Args:    cobra.MaximumNArgs(1),
	}
	search := c.Flags().String("search", "", "list the paragraphs that contain all these words, in any case and order")
	c.RunE = func(c *cobra.Command, args []string) error {
		pages, err := docs.Pages()
		if err != nil {
			return err
		}
		s := cli.Of(c)
		switch {
		case *search != "" && len(args) > 0:
			return cli.Usagef("want a page, or --search, not both")
		case *search != "":
			return searchDocs(s, *search)
		case len(args) > 0 && strings.HasPrefix(args[0]+"/", "recipes/"):
			return showRecipe(s, strings.TrimPrefix(strings.TrimPrefix(args[0], "recipes"), "/"))
		case len(args) > 0:
			return showPage(s, c.Root(), pages, args[0])
		}
		return cli.Table(s.Out, "PAGE\tABOUT", pages[1:], func(p docs.Page) cli.Row { return cli.Row{p.Name, p.Title} })
	}
	return c
}

// showPage prints a page. The last part of its name is enough if it is unique.
func showPage(s cli.Streams, root *cobra.Command, pages []docs.Page, name string) error {
	name = strings.TrimSuffix(name, ".md")
	i := slices.IndexFunc(pages, func(p docs.Page) bool { return p.Name == name })
	if i < 0 {
		i = slices.IndexFunc(pages, func(p docs.Page) bool { return strings.HasSuffix(p.Name, "/"+name) })
	}
	if i < 0 && strings.EqualFold(name, "guarantees") {
		text, err := engine.Guarantees.ReadFile("GUARANTEES.md")
		return cmp.Or(err, s.Printf("%s", text))
	}
	if i < 0 {
		return noPage(root, pages, name)
	}
	_, err := fmt.Fprint(s.Out, pages[i].Text)
	return err
}

// noPage returns the error for a name that no page has. It says where else to look.
func noPage(root *cobra.Command, pages []docs.Page, name string) error {
	var names []string
	for _, p := range pages {
		names = append(names, p.Name)
	}
	about, err := mentions(name)
	if err != nil {
		return err
	}
	otherwise := "procaas docs lists them all"
	switch {
	case slices.Contains(Explainable(root), name):
		otherwise = fmt.Sprintf("procaas explain %s says what the word means, and procaas docs lists the pages", name)
	case len(about) > 0:
		otherwise = fmt.Sprintf("procaas explain %s lists the pages about it", name)
	}
	return cli.Usagef("there is no page %q; %s", name, cli.Meant(name, names, "did you mean %q?", otherwise))
}

// showRecipe prints a recipe and its test. Without a name it prints the list of recipes.
func showRecipe(s cli.Streams, name string) error {
	if name == "" {
		page, err := pipelines.Recipes.ReadFile("recipes/README.md")
		return cmp.Or(err, s.Printf("%s", page))
	}
	name = strings.TrimSuffix(name, ".yaml")
	flow, err := pipelines.Recipes.ReadFile("recipes/" + name + ".yaml")
	if err != nil {
		return cli.Usagef("there is no recipe %q; procaas docs recipes lists them all", name)
	}
	test, err := pipelines.Recipes.ReadFile("recipes/" + name + ".test.yaml")
	return cmp.Or(err, s.Printf("# %s.yaml\n%s\n# %s.test.yaml\n%s", name, flow, name, test))
}

func searchDocs(s cli.Streams, text string) error {
	hits, err := docs.Search(text)
	if err != nil {
		return err
	}
	if len(hits) == 0 {
		return cli.Usagef("no paragraph contains all of %q; try fewer words, or procaas docs for the list of pages", text)
	}
	for _, h := range hits {
		if err := s.Printf("%s:%d: %s\n", h.Page.Name, h.Line, h.Text); err != nil {
			return err
		}
	}
	return nil
}
