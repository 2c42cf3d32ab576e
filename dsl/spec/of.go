package spec

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
	"procaas/dsl/source"
)

// Sources are the comments of structs and fields in some source files.
type Sources map[string]string

// Read reads the comments of all files. It panics if a file is not Go, which is a bug that any test finds.
func Read(files fs.FS) Sources {
	out := Sources{}
	names, err := fs.Glob(files, "*")
	for _, name := range names {
		source, failed := fs.ReadFile(files, name)
		file, err2 := parser.ParseFile(gotoken.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err = errors.Join(err, failed, err2); err != nil {
			break
		}
		maps.Copy(out, commentsOf(file))
	}
	if err != nil {
		panic("spec: " + err.Error())
	}
	return out
}

// Of derives the Spec of a struct from its type and the comments. It panics if a field is undocumented or a tag
// is invalid, which are bugs that any test finds.
func Of(t reflect.Type, from Sources) *Spec {
	b := specBuilder{comments: from, specs: map[reflect.Type]*Spec{}}
	return b.spec(t)
}

// A specBuilder derives each spec once, since specs may be recursive.
type specBuilder struct {
	comments Sources // by Struct and Struct.Field
	specs    map[reflect.Type]*Spec
}

func (b *specBuilder) spec(t reflect.Type) *Spec {
	if s := b.specs[t]; s != nil {
		return s
	}
	if t.Kind() != reflect.Struct {
		panic("spec: " + t.String() + " is no struct")
	}
	s := &Spec{Type: t, Name: t.Name(), Doc: b.comments[t.Name()]}
	b.specs[t] = s
	if s.Doc == "" {
		panic("spec: " + t.String() + " is undocumented, or its source is not given")
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Type == reflect.TypeFor[Places]() || f.Tag.Get("yaml") == "-" {
			continue
		}
		field := b.field(t, f)
		field.Index = i
		if field.Name == "" {
			if s.Inline {
				panic("spec: " + t.String() + " has two inline fields")
			}
			s.Inline = true
		} else if s.Field(field.Name) != nil {
			panic("spec: " + t.String() + " names two fields " + field.Name)
		}
		s.Fields = append(s.Fields, field)
	}
	return s
}

// knownTags are the tags that have a meaning here.
var knownTags = []string{"yaml", "required", "enum", "default", "min", "max", "pattern", "kind", "expr", "words", "one", "live"}

var fieldName = regexp.MustCompile(`^[a-z][a-z0-9]*([-_][a-z0-9]+)*$`)

func (b *specBuilder) field(t reflect.Type, sf reflect.StructField) *Field {
	bug := func(format string, args ...any) {
		panic("spec: field " + t.String() + "." + sf.Name + ": " + fmt.Sprintf(format, args...))
	}
	tags, err := parseTag(string(sf.Tag))
	if err != nil {
		bug("%v", err)
	}
	for name, value := range tags {
		if !slices.Contains(knownTags, name) {
			bug("unknown tag %s", name)
		}
		if only := map[string]string{"required": "true", "expr": "no", "one": "true", "live": "true"}[name]; only != "" && value != only {
			bug("the tag %s can only be %q", name, only)
		}
	}
	f := &Field{}
	b.kind(f, sf.Type, bug)
	f.Name, f.GoName, f.Type = tags["yaml"], sf.Name, sf.Type
	f.Doc = b.comments[t.Name()+"."+sf.Name]
	f.Required = tags["required"] != ""
	f.NoExpr = tags["expr"] != ""
	f.Live = tags["live"] != ""
	switch {
	case sf.Anonymous:
		bug("embedded structs are not supported")
	case f.Doc == "":
		bug("undocumented, or its source is not given")
	case f.Name == ",inline":
		f.Name = ""
		if f.Kind != datum.MapKind {
			bug("only a map can be inline")
		}
	case !fieldName.MatchString(f.Name):
		bug("want a tag yaml with a name such as min-delay, have %q", f.Name)
	}
	f.constrain(tags, bug)
	if f.preset != nil && sf.Type.Kind() != reflect.Pointer {
		f.initial = reflect.New(sf.Type).Elem()
		if err := assign(f.initial, f, f.preset, f.Name); err != nil {
			bug("the default makes no sense: %v", err)
		}
	}
	return f
}

// constrain sets the limits of values, or of the elements of a list, from tags.
func (f *Field) constrain(tags map[string]string, bug func(string, ...any)) {
	target := f
	if f.Kind == datum.ListKind {
		target = f.Elem
	}
	if enum, ok := tags["enum"]; ok {
		target.Enum = strings.Split(enum, ",")
	}
	if words, ok := tags["words"]; ok {
		object := f.Innermost()
		object.Words = strings.Split(words, ",")
		if object.Kind != datum.ObjectKind {
			bug("words stand only in place of a mapping")
		}
	}
	if tags["one"] != "" {
		list := f
		if f.Kind == datum.MapKind {
			list = f.Elem
		}
		list.One = true
		if list.Kind != datum.ListKind || list.Elem.Kind != datum.ObjectKind {
			bug("one stands in place of a list of mappings")
		}
	}
	target.Min, target.Max, target.Pattern = tags["min"], tags["max"], tags["pattern"]
	f.Default = tags["default"]
	if kind, ok := tags["kind"]; ok {
		f.ExprKind, ok = map[string]datum.Kind{
			"bool": datum.BoolKind, "map": datum.MapKind, "list": datum.ListKind, "string": datum.StringKind,
			"int": datum.IntKind, "float": datum.FloatKind, "schema": datum.SchemaKind, "secret": datum.SecretKind,
		}[kind]
		if !ok || f.Kind != datum.AnyKind {
			bug("the tag kind cannot be %q here", kind)
		}
	}
	if _, ok := datum.TextForms[target.Pattern]; target.Pattern != "" && !ok {
		bug("unknown pattern %q", target.Pattern)
	}
	if (len(target.Enum) > 0 || target.Pattern != "") && target.Kind != datum.StringKind {
		bug("enum and pattern are for text")
	}
	target.low, target.high = target.bound(target.Min, bug), target.bound(target.Max, bug)
	if _, ok := tags["default"]; ok {
		var err error
		if f.preset, err = f.DefaultData(); err != nil {
			bug("the default makes no sense: %v", err)
		}
	}
}

// Innermost returns the field of the innermost elements of lists and mappings.
func (f *Field) Innermost() *Field {
	for f.Elem != nil {
		f = f.Elem
	}
	return f
}

// bound parses a min or max tag. It returns nil if there is none.
func (f *Field) bound(text string, bug func(string, ...any)) any {
	if text == "" {
		return nil
	}
	v, err := f.parse(text)
	if err != nil || !slices.Contains([]datum.Kind{datum.IntKind, datum.FloatKind, datum.DurationKind, datum.BytesKind, datum.RateKind},
		f.Kind) {
		bug("the bound %q makes no sense", text)
	}
	return v
}

// DefaultData returns the default as data that the field accepts.
func (f *Field) DefaultData() (any, error) {
	if f.Kind == datum.ListKind {
		list := []any{}
		for text := range strings.SplitSeq(f.Default, ",") {
			if _, err := f.Elem.Scalar(text); err != nil {
				return nil, err
			}
			list = append(list, text)
		}
		return list, nil
	}
	if f.Kind == datum.AnyKind || f.Kind == datum.MapKind || f.Kind == datum.ObjectKind {
		return nil, fmt.Errorf("%s cannot have one", datum.Wants[f.Kind])
	}
	var data any = f.Default
	switch f.Kind {
	case datum.BoolKind, datum.IntKind, datum.FloatKind, datum.JitterKind:
		data, _ = source.PlainScalar(f.Default)
	}
	_, err := f.Scalar(data)
	return data, err
}

// Types with a special meaning.
var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	bytesType    = reflect.TypeFor[datum.Bytes]()
	rateType     = reflect.TypeFor[datum.Rate]()
	jitterType   = reflect.TypeFor[datum.Jitter]()
	namesType    = reflect.TypeFor[Names]()
	valueType    = reflect.TypeFor[*expr.Value]()
)

// kind sets the kind of a field from its Go type.
func (b *specBuilder) kind(f *Field, t reflect.Type, bug func(string, ...any)) {
	switch t {
	case durationType:
		f.Kind = datum.DurationKind
		return
	case timeType:
		f.Kind = datum.TimeKind
		return
	case bytesType:
		f.Kind = datum.BytesKind
		return
	case rateType:
		f.Kind = datum.RateKind
		return
	case jitterType:
		f.Kind = datum.JitterKind
		return
	case namesType:
		f.Kind, f.Names, f.Elem = datum.ListKind, true, &Field{Kind: datum.StringKind}
		return
	case valueType:
		f.IsValue = true
		return
	}
	switch t.Kind() {
	case reflect.Bool:
		f.Kind = datum.BoolKind
	case reflect.Int, reflect.Int64:
		f.Kind = datum.IntKind
	case reflect.Float64:
		f.Kind = datum.FloatKind
	case reflect.String:
		f.Kind = datum.StringKind
	case reflect.Pointer:
		b.kind(f, t.Elem(), bug)
	case reflect.Struct:
		f.Kind, f.Spec = datum.ObjectKind, b.spec(t)
	case reflect.Slice:
		f.Kind, f.Elem = datum.ListKind, &Field{}
		b.kind(f.Elem, t.Elem(), bug)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			bug("a map needs text for keys")
		}
		f.Kind, f.Elem = datum.MapKind, &Field{}
		b.kind(f.Elem, t.Elem(), bug)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			bug("the type %s is not supported", t)
		}
	default:
		bug("the type %s is not supported", t)
	}
}

// parseTag parses all keys of a struct tag.
func parseTag(tag string) (map[string]string, error) {
	tags := map[string]string{}
	for tag = strings.TrimSpace(tag); tag != ""; tag = strings.TrimSpace(tag) {
		name, rest, ok := strings.Cut(tag, ":")
		text, err := strconv.QuotedPrefix(rest)
		if !ok || err != nil {
			return nil, fmt.Errorf("the tag near %q is malformed", tag)
		}
		if _, again := tags[name]; again {
			return nil, fmt.Errorf("the tag %s is given twice", name)
		}
		tags[name], _ = strconv.Unquote(text)
		tag = rest[len(text):]
	}
	return tags, nil
}

// commentsOf returns the comments of a file's structs and fields.
func commentsOf(file *ast.File) map[string]string {
	comments := map[string]string{}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range decl.Specs {
			ts, ok := s.(*ast.TypeSpec)
			if !ok {
				continue
			}
			doc := ts.Doc
			if doc == nil {
				doc = decl.Doc
			}
			comments[ts.Name.Name] = paragraphs(doc.Text())
			st, ok := ts.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range st.Fields.List {
				for _, name := range f.Names {
					comments[ts.Name.Name+"."+name.Name] = paragraphs(f.Doc.Text())
				}
			}
		}
	}
	return comments
}

// paragraphs joins the lines of each paragraph. It keeps indented lines.
func paragraphs(text string) string {
	var b strings.Builder
	before := ""
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		indented := strings.HasPrefix(line, "\t") || strings.HasPrefix(line, " ")
		switch {
		case b.Len() == 0:
		case line == "" || before == "" || indented || strings.HasPrefix(before, "\t"):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(line)
		before = line
	}
	return b.String()
}

// Kebab returns the name of a struct in the style of the language: DatabaseTLS is database-tls.
func Kebab(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			endsAcronym := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if before := runes[i-1]; before != '-' && (!unicode.IsUpper(before) || endsAcronym) {
				b.WriteByte('-')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
