package ui

import (
	"bytes"
	"context"
	"html/template"
	"net/http"
	"slices"

	"procaas/engine/api/ui/seen"
	"procaas/engine/credentials"
)

// A Page is a page that an add-on adds to the console, or a part of one of the console's own.
type Page struct {
	// Pattern is the address below [Root], as in patterns of [http.ServeMux]: clusters, or queue/{type...}.
	Pattern string

	// In is the name of the console's page that this one is a part of. It has no address then.
	In string

	// Menu is its name in the menu. Empty is for pages that others lead to. Before is the name that it stands before,
	// if another add-on has it.
	Menu, Before string

	// Template is the text of an [html/template] that defines page. It may use what the console's own pages use.
	Template string

	// Data returns the title and what Template shows. It leaves out what the caller may not read. The error is a [*Refused]
	// if it is for people.
	Data func(r *http.Request, caller credentials.Grant) (title string, data any, err error)

	// Chart is what the page draws over time. Nil is nothing.
	Chart *Chart
}

// A Chart has numbers over time. The page asks for them anew while it is open.
type Chart struct {
	// Name is in their address, which is console/data?NAME=ID.
	Name string

	// Sample takes the present numbers, every few seconds until ctx ends.
	Sample func(ctx context.Context)

	// Columns returns the numbers of an id: the times in Unix seconds, then those of each line.
	Columns func(id string) [][]any
}

// added returns what serves a page of an add-on.
func (c *Console) added(p Page) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		title, data, err := p.Data(r, c.o.Caller(r))
		if err == nil {
			c.show(w, r, http.StatusOK, p.Pattern, title, data)
		}
		return err
	}
}

// parts renders what add-ons add to a page.
func (c *Console) parts(r *http.Request, page string) (all []template.HTML, err error) {
	for _, p := range c.o.Pages {
		if p.In != page {
			continue
		}
		_, data, err := p.Data(r, c.o.Caller(r))
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		if err := c.pages[p.Pattern].ExecuteTemplate(&text, "page", data); err != nil {
			return nil, err
		}
		all = append(all, template.HTML(text.String())) // it has escaped what it shows
	}
	return all, nil
}

// places lists the entries of add-ons in the menu.
func (c *Console) places() (all []place) {
	for _, p := range c.o.Pages {
		if p.Menu == "" {
			continue
		}
		at := len(all)
		if i := slices.IndexFunc(all, func(x place) bool { return x.Name == p.Before }); i >= 0 {
			at = i
		}
		all = slices.Insert(all, at, place{Name: p.Menu, Href: Root + p.Pattern})
	}
	return all
}

// chart returns the chart whose numbers a request asks for, and of what. It is nil for none.
func (c *Console) chart(r *http.Request) (chart *Chart, id string) {
	for _, p := range c.o.Pages {
		if p.Chart == nil {
			continue
		}
		if id := r.FormValue(p.Chart.Name); id != "" {
			return p.Chart, id
		}
	}
	return nil, ""
}

// sample lets add-ons take the numbers of their charts.
func (c *Console) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, seen.SampleEvery)
	defer cancel()
	for _, p := range c.o.Pages {
		if p.Chart != nil {
			p.Chart.Sample(ctx)
		}
	}
}
