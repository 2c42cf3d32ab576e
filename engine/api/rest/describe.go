package rest

import (
	"cmp"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
)

// A Document describes operations in OpenAPI.
type Document struct {
	*huma.OpenAPI

	requests map[string]bool // schemas of requests
}

// NewDocument makes a description, to which operations are added.
func NewDocument(about *huma.OpenAPI) *Document {
	d := &Document{OpenAPI: about, requests: map[string]bool{}}
	d.Components.Schemas = huma.NewMapRegistry(schemaPlace, schemaName)
	return d
}

const schemaPlace = "#/components/schemas/"

// Schema returns a reference to the schema of a value's type.
func (d *Document) Schema(v any) *huma.Schema {
	t := reflect.TypeOf(v)
	return d.Components.Schemas.Schema(t, true, t.Name())
}

// Add describes an operation. It adds the problems of all calls of its kind, so that each operation lists only its own.
func (d *Document) Add(o *Operation) {
	op := &huma.Operation{
		Method: o.Method, Path: o.Path, OperationID: o.ID, Summary: o.Summary, Description: o.About, Tags: []string{o.Tag},
		Responses: map[string]*huma.Response{}, RequestBody: d.body(o),
	}
	for i := range o.takes.parameters {
		op.Parameters = append(op.Parameters, o.takes.parameters[i].parameter())
	}
	codes := append([]string{problem.Internal}, o.Refusals...)
	op.Security = []map[string][]string{}
	if !o.Need.Anybody {
		// Roles are listed as scopes. Without any token, none is needed.
		op.Security = []map[string][]string{{"token": {string(o.Need.Role)}}, {}}
		codes = append(codes, problem.Unauthorized, problem.Forbidden, problem.TooManyFailures, problem.UnknownHost, problem.StoreUnavailable)
	}
	if o.Method != http.MethodGet {
		codes = append(codes, problem.CrossOrigin, problem.LengthRequired)
	}
	if op.RequestBody != nil {
		codes = append(codes, problem.MalformedJSON, problem.InvalidBody, problem.BodyTooSlow, problem.BodyTooLarge, problem.UnsupportedMedia,
			problem.Overloaded, problem.ClientLeft)
	}
	if o.strict() {
		codes = append(codes, problem.InvalidParameter)
	}
	kinds := slices.Clone(o.Problems)
	for _, code := range codes {
		kinds = append(kinds, problem.KindOf(code))
	}
	d.addProblems(op, kinds)
	for i := range o.Replies {
		r := &o.Replies[i]
		op.Responses[strconv.Itoa(cmp.Or(r.Status, http.StatusOK))] = d.reply(r)
	}
	d.AddOperation(op)
}

// body describes the body of an operation, or returns nil if it has none.
func (d *Document) body(o *Operation) *huma.RequestBody {
	b := &huma.RequestBody{}
	switch field := o.takes.body; {
	case o.Body != nil:
		b = o.Body(func(v any) *huma.Schema { return d.request(reflect.TypeOf(v)) })
	case field == nil:
		return nil
	default:
		b = JSONBody(d.request(field.Type), o.Example)
		b.Required = !o.takes.optional
	}
	for _, content := range b.Content {
		d.noteRequest(content.Schema)
	}
	return b
}

// JSONBody describes a body of one schema.
func JSONBody(schema *huma.Schema, example any) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{MediaJSON: {Schema: schema, Example: example}}}
}

// request returns a reference to the schema of what callers send.
func (d *Document) request(t reflect.Type) *huma.Schema {
	schema := d.Components.Schemas.Schema(t, true, t.Name())
	d.describeSpans(membersOf(t, false), t)
	return schema
}

// describeSpans describes the durations among the members of a body, which are only numbers to Go.
func (d *Document) describeSpans(members []member, of reflect.Type) {
	for i := range members {
		m := &members[i]
		if m.list != nil {
			d.describeSpans(m.list, m.Type.Elem())
		}
		if m.Type == reflect.TypeFor[wire.Duration]() {
			d.Components.Schemas.Map()[of.Name()].Properties[m.name] = DurationSchema(m.Tag.Get("doc"))
		}
	}
}

// DurationSchema describes the input of [Fields.Duration]: text such as 90s, or a number of
// seconds.
func DurationSchema(about string) *huma.Schema {
	return &huma.Schema{Description: about, OneOf: []*huma.Schema{
		{Type: huma.TypeString, Examples: []any{"90s", "1h30m"}}, {Type: huma.TypeNumber, Minimum: new(float64)},
	}}
}

// noteRequest remembers the schemas of requests. Those of CloudEvents say themselves which other
// members are allowed.
func (d *Document) noteRequest(schema *huma.Schema) {
	if schema == nil {
		return
	}
	if name, ok := strings.CutPrefix(schema.Ref, schemaPlace); ok && !d.requests[name] {
		d.requests[name] = true
		d.noteRequest(d.Components.Schemas.Map()[name])
	}
	for _, p := range schema.Properties {
		d.noteRequest(p)
	}
	for _, one := range schema.OneOf {
		d.noteRequest(one)
	}
	d.noteRequest(schema.Items)
}

// Refine adds to the schemas what Go types cannot express. Requests refuse unknown members. Replies
// may get new members later, so clients must accept them.
func (d *Document) Refine() {
	for name, schema := range d.Components.Schemas.Map() {
		if !d.requests[name] {
			schema.AdditionalProperties = nil
		}
		for _, p := range schema.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false // an empty list is a list
			}
		}
	}
}

// parameter describes a member of the path, the query or the headers.
func (m *member) parameter() *huma.Param {
	p := &huma.Param{
		Name: m.name, In: m.in, Description: m.Tag.Get("doc"), Required: m.in == "path",
		Schema: &huma.Schema{Type: huma.TypeString},
	}
	if m.Tag.Get("required") == "true" {
		p.Required = true
	}
	s := p.Schema
	t := m.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		s.Type = huma.TypeInteger
	case reflect.Bool:
		s.Type = huma.TypeBoolean
	}
	if kind := m.Tag.Get("type"); kind != "" { // read by the operation itself
		s.Type = kind
	}
	s.Format = m.Tag.Get("format")
	if t == reflect.TypeFor[time.Time]() {
		s.Format = "date-time"
	}
	for _, value := range m.values {
		s.Enum = append(s.Enum, value)
	}
	for tag, at := range map[string]**float64{"minimum": &s.Minimum, "maximum": &s.Maximum} {
		if n, known := m.bound(tag); known {
			*at = &n
		}
	}
	switch text := m.Tag.Get("default"); {
	case text == "":
	case s.Type == huma.TypeInteger:
		s.Default = int(m.number(text))
	case s.Type == huma.TypeBoolean:
		s.Default = text == "true"
	default:
		s.Default = text
	}
	if m.Type == reflect.TypeFor[wire.Duration]() {
		p.Schema = DurationSchema(m.Tag.Get("doc"))
	}
	return p
}

// reply describes one successful reply.
func (d *Document) reply(r *Reply) *huma.Response {
	response := &huma.Response{Description: r.About, Content: map[string]*huma.MediaType{}}
	if r.ContentType != "" {
		response.Content[r.ContentType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if r.Body != nil {
		schema := d.Schema(r.Body)
		if r.Or != nil {
			schema = &huma.Schema{OneOf: []*huma.Schema{schema}}
			for _, one := range r.Or {
				schema.OneOf = append(schema.OneOf, d.Schema(one))
			}
		}
		response.Content[MediaJSON] = &huma.MediaType{Schema: schema, Example: r.Example}
	}
	if len(response.Content) == 0 {
		response.Content = nil
	}
	for _, h := range r.Headers {
		name, about, _ := strings.Cut(h, ": ")
		if response.Headers == nil {
			response.Headers = map[string]*huma.Param{}
		}
		response.Headers[name] = &huma.Param{Description: about, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return response
}

// addProblems lists the problems of each status.
func (d *Document) addProblems(op *huma.Operation, kinds []problem.Kind) {
	slices.SortFunc(kinds, func(a, b problem.Kind) int { return cmp.Compare(a.Code, b.Code) })
	for _, p := range slices.Compact(kinds) {
		status := strconv.Itoa(p.Status)
		line := "`" + p.Code + "`: " + p.Title + "."
		if known := op.Responses[status]; known != nil {
			known.Description += "\n" + line
			continue
		}
		op.Responses[status] = &huma.Response{
			Description: line,
			Content:     map[string]*huma.MediaType{MediaProblem: {Schema: d.Schema(problem.Problem{})}},
		}
	}
}

// schemaName returns the name of a type in the description. Generated programs depend on it, so the
// name of a View includes its package, as in FallbackView. So do the types of an inbox.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if pkg := path.Base(t.PkgPath()); name == "View" || pkg == "inbox" {
		return strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	return name
}
