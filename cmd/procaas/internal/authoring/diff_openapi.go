package authoring

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/definitions"
)

// A breakage is one finding that pipelines have with a new OpenAPI document, and not with the old one.
type breakage struct {
	Handler  string `json:"handler"` // its path; empty outside of handlers
	Severity string `json:"severity"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	At       string `json:"at"`                 // file:line:column
	Document string `json:"document,omitempty"` // the place in the new document
	Hint     string `json:"hint,omitempty"`
}

// compareAPI checks the pipelines at paths with the old document of a service, and with the one that they name. old is
// FILE, or SERVICE=FILE if several services have documents.
func compareAPI(s cli.Streams, old string, paths []string) ([]breakage, error) {
	files, err := source.Pipelines(paths, s.In)
	if err != nil {
		return nil, err
	}
	// With what the document contradicts, pipelines load. With other errors, there is nothing to compare.
	o := dsl.Options{Language: addons.Language(), Types: addons.Types(), Read: source.TreesOf(paths).Read, Stored: true}
	bundle, found := dsl.Load(files, o)
	if bundle == nil {
		if err := s.Findings(files, found); err != nil {
			return nil, err
		}
		return nil, &definitions.LoadError{Found: found, Err: cli.ErrFindings}
	}
	service, file, given := strings.Cut(old, "=")
	if !given {
		service, file = "", old
	}
	document, err := documentOf(bundle, service)
	if err != nil {
		return nil, err
	}
	data, err := s.Input(file)
	if err != nil {
		return nil, err
	}
	read := o.Read
	o.Read = func(name string) ([]byte, error) {
		if path.Clean(name) == document {
			return data, nil
		}
		return read(name)
	}
	files = slices.Clone(files)
	for i := range files {
		if path.Clean(files[i].Name) == document {
			files[i].Data = data
		}
	}
	before, known := dsl.Load(files, o)
	if before == nil {
		return nil, cli.Usagef("the pipelines cannot be checked with %s: %s", file, definitions.FirstError(known))
	}
	return newFindings(bundle, document, known, found), nil
}

// documentOf returns the name of the OpenAPI document of a service. Without an id it is the only one of all services.
func documentOf(b *tree.Bundle, service string) (string, error) {
	names := map[string]string{}
	var ids []string
	for _, s := range b.Services {
		if s.OpenAPI != "" {
			names[s.ID] = path.Join(path.Dir(s.Span.File), s.OpenAPI)
			ids = append(ids, s.ID)
		}
	}
	switch name, ok := names[service]; {
	case len(ids) == 0:
		return "", cli.Usagef("no service of these pipelines has openapi:, so there is no new document to compare with")
	case ok:
		return name, nil
	case service != "":
		return "", cli.Usagef("no service %q with openapi: here, only %s", service, strings.Join(ids, ", "))
	}
	for _, id := range ids {
		if names[id] != names[ids[0]] {
			return "", cli.Usagef("several services have documents: write --openapi SERVICE=FILE, with one of %s", strings.Join(ids, ", "))
		}
	}
	return names[ids[0]], nil
}

// newFindings lists what is found with the new document only, by handler.
func newFindings(b *tree.Bundle, document string, before, after []diag.Diagnostic) []breakage {
	same := func(a, b diag.Diagnostic) bool {
		return a.Span.Equal(b.Span) && a.Code == b.Code && a.Message == b.Message
	}
	out := []breakage{}
	for _, d := range after {
		if d.Severity == diag.Advice || slices.ContainsFunc(before, func(old diag.Diagnostic) bool { return same(old, d) }) {
			continue
		}
		v := breakage{
			Handler: handlerAt(b, d.Span), Severity: string(d.Severity), Code: string(d.Code), Message: d.Message, At: d.Span.String(), Hint: d.Hint,
		}
		if d.Runs {
			v.Severity = string(diag.Error) // as validate says
		}
		for _, r := range d.Related {
			if r.File == document {
				v.Document = r.Span.String()
			}
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b breakage) int { return cmp.Compare(a.Handler, b.Handler) })
	return out
}

// handlerAt returns the path of the handler in whose text a position is, or "".
func handlerAt(b *tree.Bundle, at diag.Span) string {
	within := func(s diag.Span) bool {
		from, to := s.Start, s.End
		after := at.Start.Line > from.Line || at.Start.Line == from.Line && at.Start.Column >= from.Column
		before := at.Start.Line < to.Line || at.Start.Line == to.Line && at.Start.Column < to.Column
		return s.File == at.File && after && before
	}
	for _, id := range diag.SortedKeys(b.Index.Handlers) {
		if within(b.Index.Handlers[id].Span) {
			return id
		}
	}
	return ""
}

// breakText prints what a new document breaks.
func breakText(s cli.Streams, found []breakage) error {
	if len(found) == 0 {
		return s.Printf("the new document breaks no handler\n")
	}
	for i, f := range found {
		if i == 0 || f.Handler != found[i-1].Handler {
			if err := s.Printf("handler %s\n", cmp.Or(f.Handler, "(none)")); err != nil {
				return err
			}
		}
		text := "    " + f.Severity + "[" + f.Code + "] " + f.At + ": " + f.Message + "\n"
		if f.Document != "" {
			text += "        by " + f.Document + "\n"
		}
		if f.Hint != "" {
			text += "        help: " + f.Hint + "\n"
		}
		if err := s.Printf("%s", text); err != nil {
			return err
		}
	}
	return nil
}
