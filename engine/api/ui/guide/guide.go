package guide

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"procaas/docs"
	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine/api/ui/words"
)

// Root is where the documentation is.
const Root = words.Root + "docs"

// maxHits bounds the lines that a search shows.
const maxHits = 100

// A View is a page of the documentation, or what a search has found.
type View struct {
	Title string
	Pages []docs.Page
	Name  string // of the page that is shown
	Text  template.HTML
	Query string
	Hits  []docs.Hit
}

// Files reads a file of the repository that pages link to, such as pipelines/recipes/approval.yaml. The program does not
// have all of them.
type Files func(name string) ([]byte, error)

// filesAt is where files of the repository are, below [Root].
const filesAt = "files/"

// Look returns what is at an address below [Root]: the index, a page, a file of the repository, or the rule of a code of
// the language such as PC0501. With a query, it returns what a search finds. It reports whether there is such a page.
func Look(l *tree.Language, files Files, name, query string) (v View, found bool, err error) {
	v = View{Title: "Documentation", Name: strings.TrimSuffix(name, ".md"), Query: query}
	if v.Pages, err = docs.Pages(); err != nil {
		return v, false, err
	}
	switch {
	case v.Query != "":
		v.Hits, err = docs.Search(v.Query)
		v.Hits = v.Hits[:min(len(v.Hits), maxHits)]
	case v.Name == "":
		v.Text, err = rendered(v.Pages, files, v.Pages[0])
	case strings.HasPrefix(name, filesAt):
		file := strings.TrimPrefix(name, filesAt)
		data, missing := files(file)
		if missing != nil {
			return v, false, nil
		}
		v.Title = path.Base(file)
		if !strings.HasSuffix(file, ".md") {
			v.Text = template.HTML("<h1>" + template.HTMLEscapeString(file) + `</h1><pre tabindex="0">` + //nolint:gosec // escaped
				template.HTMLEscapeString(string(data)) + "</pre>")
			break
		}
		v.Text, err = rendered(v.Pages, files, docs.Page{Name: "../" + file, Text: string(data)})
	default:
		if rule, known := l.Rule(diag.Code(strings.ToUpper(v.Name))); known {
			v.Title, v.Text = string(rule.Code), ruleText(rule)
			break
		}
		i := slices.IndexFunc(v.Pages, func(p docs.Page) bool { return p.Name == v.Name })
		if i < 0 {
			return v, false, nil
		}
		v.Title = v.Pages[i].Title
		v.Text, err = rendered(v.Pages, files, v.Pages[i])
	}
	return v, true, err
}

// rendered makes HTML of a page. Links lead to where the console shows what they name; those to what only the repository
// has become text.
func rendered(pages []docs.Page, files Files, p docs.Page) (template.HTML, error) {
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	source := []byte(p.Text)
	tree := markdown.Parser().Parse(text.NewReader(source))
	var dead []*ast.Link
	err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		link, is := n.(*ast.Link)
		if !is || !entering || strings.Contains(string(link.Destination), "://") || bytes.HasPrefix(link.Destination, []byte("#")) {
			return ast.WalkContinue, nil
		}
		file, anchor, _ := strings.Cut(string(link.Destination), "#")
		target := addressOf(pages, files, path.Join("docs", path.Dir(p.Name), file))
		if target == "" {
			dead = append(dead, link)
			return ast.WalkContinue, nil
		}
		if anchor != "" {
			target += "#" + anchor
		}
		link.Destination = []byte(target)
		return ast.WalkContinue, nil
	})
	for _, link := range dead {
		parent := link.Parent()
		for child := link.FirstChild(); child != nil; child = link.FirstChild() {
			parent.InsertBefore(parent, link, child)
		}
		parent.RemoveChild(parent, link)
	}
	var out bytes.Buffer
	if err == nil {
		err = markdown.Renderer().Render(&out, source, tree)
	}
	// What scrolls must be reached by the keyboard.
	page := strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<table>", `<div class="wide" tabindex="0"><table>`, "</table>",
		"</table></div>").
		Replace(out.String())
	return template.HTML(page), err //nolint:gosec // the pages are ours, and goldmark leaves out HTML that stands in them
}

// addressOf returns where the console shows a file of the repository. It is empty for what the program does not have.
func addressOf(pages []docs.Page, files Files, file string) string {
	if file == "schemas/openapi.json" {
		return "/openapi.json"
	}
	if to, inside := strings.CutPrefix(strings.TrimSuffix(file, ".md"), "docs/"); inside {
		if slices.ContainsFunc(pages, func(p docs.Page) bool { return p.Name == to }) {
			return Root + "/" + to
		}
		return ""
	}
	if _, err := files(file); err != nil {
		return ""
	}
	return Root + "/" + filesAt + file
}

// ruleText is the page of a code: what goes wrong, and an example before and after it is mended.
func ruleText(r rules.Rule) template.HTML {
	esc := template.HTMLEscapeString
	out := fmt.Sprintf("<h1>%s: %s</h1><p>%s</p>", esc(string(r.Code)), esc(r.Title), esc(r.Why))
	for _, example := range []struct{ title, text string }{{"Wrong", r.Before}, {"Right", r.After}} {
		if example.text != "" {
			out += fmt.Sprintf("<h2>%s</h2><pre tabindex=\"0\">%s</pre>", example.title, esc(example.text))
		}
	}
	return template.HTML(out) //nolint:gosec // all that is put in is escaped
}
