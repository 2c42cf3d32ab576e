package contracts

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/source"
)

// A Set compiles the schemas of a bundle. Each schema file, and each schema in a file of pipelines, is one
// resource with an address. Addresses make relative references between files work as in the standard. The set
// never reads from the network.
type Set struct {
	*diag.Reporter
	files    map[string]*File
	named    map[string]*expr.Value // by name, as written
	trees    map[string]*expr.Value // by the address of the resource
	made     map[string]*Contract   // by address and name; nil if an error was reported
	ids      map[string]*expr.Value // documents by their own $id
	compiler *jsonschema.Compiler
	outliner *outliner
	failed   map[string]bool // addresses with reported errors

	finite map[*jsonschema.Schema]bool // whether a visited schema terminates; false while it is visited
}

// New prepares the files of a set. Only files that pipelines name as schemas or documents are resources. A file
// of pipelines may contain expressions, which schemas cannot.
func New(files map[string]*File, named map[string]*expr.Value, r *diag.Reporter) *Set {
	k := &Set{
		Reporter: r, files: files, named: named,
		trees: map[string]*expr.Value{}, made: map[string]*Contract{}, ids: map[string]*expr.Value{}, failed: map[string]bool{},
		finite:   map[*jsonschema.Schema]bool{},
		compiler: jsonschema.NewCompiler(),
	}
	k.compiler.UseLoader(k)
	k.compiler.UseRegexpEngine(compilePattern)
	k.compiler.AssertFormat()
	for name := range noted {
		k.compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	k.outliner = newOutliner(k.place)
	for _, name := range diag.SortedKeys(files) {
		if f := files[name]; f.Foreign && f.Root != nil {
			k.trees[addressOf(name)] = f.Root
			if id, ok := f.Root.Get("$id").Text(); ok {
				k.ids[strings.TrimSuffix(id, "#")] = f.Root
			}
		}
	}
	return k
}

// depth is how many directories a reference may lead up from the base directory of names.
const depth = 32

// addressOf returns the address of a file. It adds directories before relative names, because an address cannot
// lead above its root, as ../shared.yaml does.
func addressOf(name string) string {
	if !path.IsAbs(name) {
		name = strings.Repeat("/r", depth) + "/" + name
	}
	return (&url.URL{Scheme: "procaas", Path: path.Clean(name)}).String()
}

// ErrNotGiven is the reason why a file is missing that was not among the given ones.
var ErrNotGiven = errors.New("it is not among the files")

// ErrTooLarge is the reason for a file that exists and is too large to be read.
var ErrTooLarge = errors.New("it is too large")

// Load implements [jsonschema.URLLoader] on the files of the set.
func (k *Set) Load(address string) (any, error) {
	tree := k.trees[address]
	if tree == nil {
		tree = k.ids[address]
	}
	if tree == nil {
		return nil, ErrNotGiven
	}
	data, ok := tree.Literal() // a copy for each call, so it may be changed below
	if !ok {
		return nil, errors.New("it holds expressions")
	}
	if version, ok := tree.Get("openapi").Text(); ok && strings.HasPrefix(version, "3.0") {
		data = upgradeNullable(data)
	}
	return data, nil
}

// upgradeNullable converts schemas of OpenAPI 3.0 to JSON Schemas, in place: null becomes a type, and exclusive
// limits become numbers. As the standard says, it ignores nullable without a type.
func upgradeNullable(data any) any {
	switch x := data.(type) {
	case []any:
		for i := range x {
			x[i] = upgradeNullable(x[i])
		}
	case map[string]any:
		for name := range x {
			x[name] = upgradeNullable(x[name])
		}
		if text, ok := x["type"].(string); ok && x["nullable"] == true {
			x["type"] = []any{text, "null"}
			if enum, ok := x["enum"].([]any); ok && !slices.Contains(enum, nil) {
				x["enum"] = append(enum, nil)
			}
		}
		for name, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
			switch x[name] {
			case true: // without a limit, it has no effect
				delete(x, name)
				if limit, bounded := x[bound]; bounded {
					x[name] = limit
					delete(x, bound)
				}
			case false:
				delete(x, name)
			}
		}
	}
	return data
}

// Of compiles the schema of a field. It returns nil if there is none, or after it has reported an error.
func (k *Set) Of(v *expr.Value, name string) *Contract {
	if !mayBeSchema(v) {
		return nil // already reported
	}
	text, isText := v.Text()
	if !isText {
		return k.compile(k.inline(v), v, name)
	}
	address, ok := k.resolve(v, text)
	if !ok {
		return nil
	}
	return k.compile(address, v, name)
}

// mayBeSchema reports whether a schema can be written like this.
func mayBeSchema(v *expr.Value) bool {
	if v == nil || !v.Fixed() {
		return false
	}
	switch v.Scalar.(type) {
	case string, bool:
		return true
	}
	return v.Kind == expr.ValueMap
}

// resolve returns the address of a reference: the name of a schema, which may refer to another one, or a file.
func (k *Set) resolve(v *expr.Value, text string) (string, bool) {
	for range source.MaxNesting { // names may refer to one another in a cycle
		if !IsSchemaName(text) {
			return k.resolveFile(v, text)
		}
		named := k.named[text]
		if named == nil {
			k.Errorf(v.Span, rules.UnknownSchema, k.DidYouMean(text, diag.NamesIn(k.named)), "there is no schema %q", text)
			return "", false
		}
		next, isText := named.Text()
		if !isText {
			return k.inline(named), true
		}
		v, text = named, next
	}
	k.Errorf(v.Span, rules.UnknownSchema, "write the schema itself", "schemas stand for one another in a circle")
	return "", false
}

// resolveFile returns the address of the named file, with the fragment after #. It returns false after an error
// was reported, here or where the file was read.
func (k *Set) resolveFile(v *expr.Value, text string) (string, bool) {
	name, _, ok := k.files[v.Span.File].Target(text, false)
	switch f := k.files[name]; {
	case strings.HasPrefix(text, "#"):
		k.Errorf(v.Span, rules.UnknownSchema, "name one of schemas, or a file", "want the name of a schema or a file, have %q", text)
	case !ok:
		k.Errorf(v.Span, rules.NoFile, "copy it beside the pipelines and name the file",
			"%q is not a relative path: schemas are read from files of the set only", text)
	case !f.Usable():
		// already reported
	case !f.Foreign:
		k.Errorf(v.Span, rules.UnknownSchema, "put the schema below schemas there, and write its name alone",
			"%s is a file of pipelines, not of schemas", name)
	default:
		_, fragment, _ := strings.Cut(text, "#")
		return addressOf(name) + "#" + fragment, true
	}
	return "", false
}

// inline returns the address of a schema in a file of pipelines: its position, which is unique.
func (k *Set) inline(v *expr.Value) string {
	at := v.Span.Start
	address := addressOf(v.Span.File) + "!" + strconv.Itoa(at.Line) + "-" + strconv.Itoa(at.Column)
	if k.trees[address] == nil {
		k.trees[address] = v // a schema may refer to itself
		k.trees[address] = k.linked(v)
	}
	return address
}

// linked copies a schema. It replaces names of other schemas in $ref by their addresses.
func (k *Set) linked(v *expr.Value) *expr.Value {
	if v == nil || v.Kind != expr.ValueMap && v.Kind != expr.ValueList {
		return v
	}
	out := *v
	out.Elems = make([]*expr.Value, len(v.Elems))
	for i, item := range v.Elems {
		text, ok := item.Text()
		if ok && v.Kind == expr.ValueMap && v.Names[i].Name == "$ref" && IsSchemaName(text) {
			address, ok := k.resolve(item, text)
			if !ok {
				return &expr.Value{Span: v.Span, Scalar: true} // already reported; nothing is known of it
			}
			out.Elems[i] = &expr.Value{Span: item.Span, Scalar: address}
			continue
		}
		out.Elems[i] = k.linked(item)
	}
	return &out
}

// compile compiles the contract at an address. v is where it is used, for findings.
func (k *Set) compile(address string, v *expr.Value, name string) *Contract {
	key := address + " " + name
	if c, ok := k.made[key]; ok {
		return c
	}
	k.made[key] = nil // an error is reported only once
	schema, err := k.try(address)
	if err != nil {
		k.report(v, address, err)
		return nil
	}
	if !k.ends(v, schema) {
		return nil
	}
	c := &Contract{Name: name, schema: schema, outline: k.outliner.outline(schema), at: v.Span}
	k.made[key] = c
	return c
}

// try compiles a schema. It turns a panic of the compiler into an error: schemas come from other teams, and one
// of them must not end the check.
func (k *Set) try(address string) (s *jsonschema.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("it cannot be understood: %v", p)
		}
	}()
	return k.compiler.Compile(address)
}

// report reports what is wrong with a schema, at the wrong part if that is known.
func (k *Set) report(v *expr.Value, address string, err error) {
	if k.failed[address] {
		return
	}
	k.failed[address] = true
	at := v.Span
	var invalid *jsonschema.SchemaValidationError
	var cause *jsonschema.ValidationError
	var missing *jsonschema.LoadURLError
	switch {
	case errors.As(err, &invalid) && errors.As(invalid.Err, &cause):
		tree, whole := k.tree(invalid.URL)
		data, _ := tree.Literal()
		for _, f := range faultsOf(cause, data) {
			part := tree.At(f.Path)
			if part == nil {
				part = whole
			}
			k.Errorf(part.Head(), rules.BadSchema, "see https://json-schema.org/draft/2020-12/schema", "this is not a JSON Schema: %s", f)
		}
		return
	case errors.As(err, &missing):
		k.Errorf(at, rules.NoFile, "put the file beside the others", "the schema needs %s, which is not there", k.fileOf(missing.URL))
		return
	}
	if lost, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		k.noFragment(v, lost.URL)
		return
	}
	if lost, ok := errors.AsType[*jsonschema.AnchorNotFoundError](err); ok {
		k.noFragment(v, lost.Reference)
		return
	}
	part, what, found := k.misnamed(err)
	if !found {
		part, what = v.Head(), "the schema cannot be used: "+k.readable(err.Error())
	}
	k.Errorf(part, rules.BadSchema, "", "%s", what)
}

func (k *Set) noFragment(v *expr.Value, address string) {
	_, fragment, _ := strings.Cut(address, "#")
	k.Errorf(v.Head(), rules.UnknownSchema, "", "there is no #%s to refer to", fragment)
}

// misnamed returns where a part of a schema has an invalid name, and what is wrong with it.
func (k *Set) misnamed(err error) (at diag.Span, what string, found bool) {
	if same, ok := errors.AsType[*jsonschema.DuplicateAnchorError](err); ok {
		return k.second(same.URL, same.Ptr1, same.Ptr2), fmt.Sprintf("two parts of the schema have the $anchor %q", same.Anchor), true
	}
	if same, ok := errors.AsType[*jsonschema.DuplicateIDError](err); ok {
		return k.second(same.URL, same.Ptr1, same.Ptr2), fmt.Sprintf("two parts of the schema have the $id %q", same.ID), true
	}
	if bad, ok := errors.AsType[*jsonschema.ParseIDError](err); ok {
		return k.place(bad.URL), "this $id is no URI reference", true
	}
	return at, "", false
}

// second returns the later one of two positions. The compiler names them in any order.
func (k *Set) second(address, one, other string) diag.Span {
	a, b := k.place(address+"#"+one), k.place(address+"#"+other)
	if a.Start.Line > b.Start.Line || a.Start.Line == b.Start.Line && a.Start.Column > b.Start.Column {
		return a
	}
	return b
}

// tree returns the value at an address, and the whole resource.
func (k *Set) tree(address string) (part, whole *expr.Value) {
	resource, fragment, _ := strings.Cut(address, "#")
	whole = k.trees[resource]
	if whole == nil {
		return nil, &expr.Value{}
	}
	if plain, err := url.PathUnescape(fragment); err == nil {
		fragment = plain
	}
	part = whole.At(pointer(fragment))
	if part == nil {
		part = whole
	}
	return part, whole
}

// place returns the position of a compiled schema, or the zero Span if no file contains it.
func (k *Set) place(location string) diag.Span {
	part, _ := k.tree(location)
	if part == nil {
		return diag.Span{}
	}
	return part.Head()
}

// fileOf returns the name of the file at an address, for messages.
func (k *Set) fileOf(address string) string {
	resource, _, _ := strings.Cut(address, "#")
	for _, name := range slices.Sorted(maps.Keys(k.files)) {
		if addressOf(name) == resource {
			return name
		}
	}
	return k.readable(resource)
}

// readable removes addresses from a message, since authors do not know them.
func (k *Set) readable(text string) string {
	return strings.ReplaceAll(text, "procaas://"+strings.Repeat("/r", depth)+"/", "")
}

// pointer parses a JSON pointer (RFC 6901). It replaces both escapes in one pass, so that ~01 becomes ~1. It
// ignores what precedes the first slash.
func pointer(text string) datum.Path {
	var out datum.Path
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i, part := range strings.Split(text, "/") {
		if i > 0 {
			out = append(out, unescape.Replace(part))
		}
	}
	return out
}
