// Package docs embeds the pages of the documentation.
package docs

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// files are the pages. Decisions are for contributors only.
//
//go:embed *.md authoring operating reference systems
var files embed.FS

// A Page is one page.
type Page struct {
	Name    string // its path below docs, without .md: authoring/state
	Title   string // the text of its first heading
	Section string // the heading of the index above it; empty for the index
	Text    string // Markdown
}

// indexed finds an entry of the index.
var indexed = regexp.MustCompile(`^- \[[^\]]*\]\(([a-z][a-z/-]*)\.md\)`)

// Pages returns all pages: the index first, then the others in the order of the index.
func Pages() ([]Page, error) {
	index, err := page("README")
	if err != nil {
		return nil, err
	}
	pages, section := []Page{index}, ""
	for line := range strings.Lines(index.Text) {
		if heading, found := strings.CutPrefix(line, "## "); found {
			section = strings.TrimSpace(heading)
		}
		m := indexed.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		p, err := page(m[1])
		if err != nil {
			return nil, fmt.Errorf("the index of the pages links to %s.md: %w", m[1], err)
		}
		p.Section = section
		pages = append(pages, p)
	}
	return pages, nil
}

func page(name string) (Page, error) {
	text, err := fs.ReadFile(files, name+".md")
	if err != nil {
		return Page{}, err
	}
	p := Page{Name: name, Text: string(text)}
	for line := range strings.Lines(p.Text) {
		if title, found := strings.CutPrefix(line, "# "); found {
			p.Title = strings.TrimSpace(title)
			break
		}
	}
	return p, nil
}

// A Hit is a line of a page that matches a query.
type Hit struct {
	Page Page
	Line int // from 1
	Text string
}

// Search finds paragraphs and rows of tables that contain all words of a query, in any case and order. For each
// it returns the line with most of the words. Matches of the exact query come first, then the order of the
// pages applies.
func Search(query string) ([]Hit, error) {
	pages, err := Pages()
	if err != nil {
		return nil, err
	}
	query = strings.ToLower(query)
	words := strings.Fields(query)
	var exact, rest []Hit
	for _, p := range pages {
		lines := strings.Split(p.Text, "\n")
		for from, to := 0, 0; from < len(lines); from = to {
			to = from + 1
			if !isRow(lines[from]) {
				for to < len(lines) && lines[to] != "" && !isRow(lines[to]) {
					to++
				}
			}
			best, most := from, 0
			for i, line := range lines[from:to] {
				if n := held(line, words); n > most {
					best, most = from+i, n
				}
			}
			hit := Hit{p, best + 1, strings.TrimSpace(lines[best])}
			switch block := strings.Join(lines[from:to], " "); {
			case most == 0 || held(block, words) < len(words):
			case strings.Contains(strings.ToLower(block), query):
				exact = append(exact, hit)
			default:
				rest = append(rest, hit)
			}
		}
	}
	return append(exact, rest...), nil
}

func isRow(line string) bool { return strings.HasPrefix(line, "|") }

// held returns how many of the words a text contains. words must be in lower case.
func held(text string, words []string) (n int) {
	text = strings.ToLower(text)
	for _, w := range words {
		if strings.Contains(text, w) {
			n++
		}
	}
	return n
}

// Glossary returns the definitions of the glossary, by term.
func Glossary() (map[string]string, error) {
	p, err := page("glossary")
	if err != nil {
		return nil, err
	}
	words := map[string]string{}
	for line := range strings.Lines(p.Text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 2 || !strings.HasPrefix(line, "| ") {
			continue
		}
		if word := strings.TrimSpace(cells[0]); word != "Word" && word != "---" {
			words[word] = strings.TrimSpace(cells[1])
		}
	}
	return words, nil
}
