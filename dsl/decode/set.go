package decode

import (
	"cmp"
	"errors"
	"slices"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/source"
	"procaas/dsl/tree"
)

// A Reading is the result of reading one file.
type Reading struct {
	contracts.File
	Data   []byte
	doc    *tree.Document // nil for a foreign file
	source *source.Source // until it is decoded
}

// readingOf returns the Reading of an unread file.
func readingOf(f diag.File) *Reading {
	return &Reading{File: contracts.File{Name: f.Name, ID: f.ID}, Data: f.Data}
}

// A Set is all decoded files of a bundle: the given ones, and those that they name.
type Set struct {
	diag.Reporter // findings in all files

	Files     []diag.File      // sorted by name
	Given     []*Reading       // files that were given
	Documents []*tree.Document // of files of pipelines; nil if nothing in the file is valid
	Language  *tree.Language

	read   func(name string) ([]byte, error)
	byName map[string]*Reading
}

// maxReferred limits how many files are read because others name them.
const maxReferred = 1000

// Read reads and decodes files of a language. It reads files that they name with the function read, which may be nil. It
// sorts files by name, and reads duplicates once.
func Read(files []diag.File, language *tree.Language, types []tree.Type, read func(name string) ([]byte, error)) *Set {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b diag.File) int { return cmp.Compare(a.Name, b.Name) })
	files = slices.CompactFunc(files, func(a, b diag.File) bool { return a.Name == b.Name })
	owners, files := codeOwnersOf(files)
	s := &Set{Given: make([]*Reading, len(files)), Language: language, read: read}
	diag.InParallel(len(files), new(diag.Reporter), func(i int, _ *diag.Reporter) { s.Given[i] = readFile(files[i], language) })
	templates := mouldsOf(s.Given)
	refused := boundUses(s.Given, templates)
	partial := slices.ContainsFunc(s.Given, func(r *Reading) bool { return diag.HasErrors(r.Found) && r.Root == nil })
	diag.InParallel(len(files), new(diag.Reporter), func(i int, _ *diag.Reporter) { s.Given[i].decode(types, templates, refused, partial) })
	s.gather()
	s.checkNested(owners)
	var found []diag.Diagnostic
	for _, was := range s.Given {
		file := s.byName[was.Name]
		found = append(found, file.Found...)
		switch {
		case file.broken():
			s.Documents = append(s.Documents, nil)
		case !file.Foreign:
			s.own(file, owners)
			s.Documents = append(s.Documents, file.doc)
		}
	}
	s.Found = append(found, s.Found...)
	for _, o := range owners {
		if o.used { // others change nothing here, so they make no other version
			files = append(files, o.file)
		}
	}
	s.Files = s.withReferred(files)
	return s
}

// readFile reads the values of one file. Files of pipelines are decoded later, when the templates of all files
// are known.
func readFile(f diag.File, language *tree.Language) *Reading {
	var r diag.Reporter
	out := readingOf(f)
	out.doc = &tree.Document{Language: language}
	s, ok := source.New(f, &r)
	if ok {
		out.parse(s)
	}
	out.Found = r.Found
	return out
}

// file returns the file as it was given.
func (r *Reading) file() diag.File { return diag.File{Name: r.Name, ID: r.ID, Data: r.Data} }

// HasOnlyPipelines reports whether a file declares nothing but pipelines, and names no other file. It has no uses of templates either,
// since what all of them create has a limit.
func (r *Reading) HasOnlyPipelines() bool {
	if r.Foreign || r.Root == nil || len(r.references()) > 0 {
		return false
	}
	uses := false
	r.Root.Walk(func(v *expr.Value) { uses = uses || v.Get("use") != nil })
	rest := *r.doc
	rest.Pipelines = nil
	return len(r.doc.Pipelines) > 0 && empty(&rest) && !uses
}

// broken reports whether nothing in a file of pipelines is valid.
func (r *Reading) broken() bool { return !r.Foreign && diag.HasErrors(r.Found) && empty(r.doc) }

func (r *Reading) parse(s *source.Source) {
	root := s.Read()
	if root == nil || !s.Measure(root) {
		return
	}
	r.Foreign = source.MarksContract(root)
	s.Foreign = r.Foreign
	r.Root = s.Value(root)
	s.Done()
	if r.Foreign {
		r.doc = nil
		return
	}
	r.source = s
}

// decode decodes the values of a file. refused has the uses of templates that are not expanded. partial means that
// templates may be in a file that could not be read.
func (r *Reading) decode(types []tree.Type, templates map[string]*mould, refused map[*expr.Value]string, partial bool) {
	if r.source == nil {
		return
	}
	found := &diag.Reporter{Found: r.Found}
	r.source.Reporter = found
	d := &decoder{Source: r.source, types: types, doc: r.doc, templates: templates, refused: refused, partial: partial}
	d.document(r.Root)
	r.Found, r.source = found.Found, nil
}

// readContract reads a file as a JSON Schema or an OpenAPI document.
func readContract(f diag.File) *Reading {
	var r diag.Reporter
	out := readingOf(f)
	out.Foreign = true
	if s, ok := source.New(f, &r); ok {
		if root := s.Read(); root != nil && s.Measure(root) {
			s.Foreign = true
			out.Root = s.Value(root)
		}
	}
	out.Found = r.Found
	if !diag.HasErrors(r.Found) {
		return out
	}
	// Values of JSON that YAML cannot read, such as JSON with tabs, have no positions.
	if data, err := datum.ParseJSON(f.Data); err == nil {
		at := diag.Span{File: f.Name, Start: diag.Pos{Line: 1, Column: 1}, End: diag.Pos{Line: 1, Column: 2}}
		out.Root, out.Found = valueOf(data, at), nil
	}
	return out
}

// valueOf returns data as a value. Its parts have no positions of their own.
func valueOf(data any, at diag.Span) *expr.Value {
	switch x := data.(type) {
	case []any:
		v := &expr.Value{Span: at, Kind: expr.ValueList}
		for _, item := range x {
			v.Elems = append(v.Elems, valueOf(item, at))
		}
		return v
	case map[string]any:
		v := &expr.Value{Span: at, Kind: expr.ValueMap}
		for _, name := range diag.SortedKeys(x) {
			v.Names, v.Elems = append(v.Names, expr.Key{Name: name, Span: at}), append(v.Elems, valueOf(x[name], at))
		}
		return v
	}
	return &expr.Value{Span: at, Scalar: data}
}

// A reference is a place that names a file.
type reference struct {
	from *Reading
	at   diag.Span
	text string
	file bool // the text can only be a file
}

// gather reads the files that others name and that were not given. It reports unreadable files where an author
// names them.
func (s *Set) gather() {
	s.byName = make(map[string]*Reading, len(s.Given))
	var open []reference
	for _, r := range s.Given {
		s.byName[r.Name] = r
		open = append(open, r.references()...)
	}
	for n := 0; len(open) > 0 && n < maxReferred; {
		ref := open[0]
		open = open[1:]
		name, id, ok := ref.from.Target(ref.text, ref.file)
		if !ok {
			continue // reported where it is used
		}
		r := s.byName[name]
		switch {
		case r == nil:
			n++
			r = s.fetch(diag.File{Name: name, ID: id})
		case r.Foreign || !empty(r.doc):
		default:
			r = readContract(r.file())
		}
		if r.Missing != nil && !ref.from.Foreign {
			s.reportUnread(ref.at, name, r.Missing)
		}
		if s.byName[name] != r {
			s.byName[name] = r
			open = append(open, r.references()...)
		}
	}
}

// reportUnread reports a file that could not be read where an author names it.
func (s *Set) reportUnread(at diag.Span, name string, err error) {
	if errors.Is(err, contracts.ErrTooLarge) {
		s.Errorf(at, rules.NoFile, "name parts of it, in files of their own, with $ref", "file %s cannot be read: %v", name, err)
		return
	}
	s.Errorf(at, rules.NoFile, "paths are relative to the file that names them; pass the directory that holds both",
		"there is no file %s: %v", name, err)
}

// fetch reads a file that was not given.
func (s *Set) fetch(f diag.File) *Reading {
	err := contracts.ErrNotGiven
	if s.read != nil {
		f.Data, err = s.read(f.Name)
	}
	if err != nil {
		out := readingOf(f)
		out.Foreign, out.Missing = true, err
		return out
	}
	return readContract(f)
}

// references lists the files that a file names.
func (r *Reading) references() []reference {
	var out []reference
	if r.Foreign {
		r.Root.WalkRefs(func(v *expr.Value, text string) { out = append(out, reference{r, v.Span, text, true}) })
		return out
	}
	for _, s := range r.doc.Services {
		if s.OpenAPI != "" {
			out = append(out, reference{r, s.PlaceOf("openapi", s.Span), s.OpenAPI, true})
		}
	}
	r.doc.EachDeclaration(func(x tree.Declaration) {
		if x.File != "" {
			out = append(out, reference{r, x.FileAt, x.File, true})
		}
	})
	eachSchema(r.doc, func(v *expr.Value) {
		if text, ok := v.Text(); ok {
			out = append(out, reference{r, v.Span, text, false})
			return
		}
		v.WalkRefs(func(v *expr.Value, text string) { out = append(out, reference{r, v.Span, text, false}) })
	})
	return out
}

// empty reports whether a document has no declarations.
func empty(d *tree.Document) bool {
	return d.Configs == nil && d.ConfigSchemas == nil && d.Schemas == nil && !d.HasSections() &&
		len(d.Services)+len(d.Flows)+len(d.Pipelines)+len(d.Handlers)+len(d.Triggers)+len(d.Events)+len(d.Templates) == 0
}

// eachSchema visits the schemas of a document.
func eachSchema(d *tree.Document, visit func(*expr.Value)) {
	all := func(m *expr.Value) {
		for _, v := range m.Items() {
			visit(v)
		}
	}
	one := func(v *expr.Value) {
		if v != nil {
			visit(v)
		}
	}
	all(d.Schemas)
	all(d.ConfigSchemas)
	for _, t := range d.Templates {
		all(t.Parameters)
	}
	for _, e := range d.Events {
		one(e.Payload)
	}
	for _, f := range d.Flows {
		all(f.StateSchemas)
	}
	for _, p := range d.Pipelines {
		all(p.StateSchemas)
		all(p.Inputs)
		all(p.OutputSchemas)
		for _, s := range p.Stages {
			all(s.StateSchemas)
			for _, h := range s.Handlers {
				one(h.ResponseSchema)
			}
		}
	}
	for _, h := range d.Handlers {
		one(h.ResponseSchema)
	}
}

// Contracts returns all files by name, for package contracts.
func (s *Set) Contracts() map[string]*contracts.File {
	out := make(map[string]*contracts.File, len(s.byName))
	for name, r := range s.byName {
		out[name] = &r.File
	}
	return out
}

// withReferred adds the files that others name.
func (s *Set) withReferred(files []diag.File) []diag.File {
	given := make(map[string]bool, len(files))
	for _, f := range files {
		given[f.Name] = true
	}
	for _, name := range diag.SortedKeys(s.byName) {
		if r := s.byName[name]; !given[name] && r.Missing == nil {
			files = append(files, r.file())
		}
	}
	slices.SortFunc(files, func(a, b diag.File) int { return cmp.Compare(a.Name, b.Name) })
	return files
}
