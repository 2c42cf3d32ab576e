package contracts

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/source"
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// An Operation is what a handler calls, in the words of OpenAPI. What is not
// known before the handler runs is left empty.
type Operation struct {
	Service string      // the id of a declared service; empty for an address of its own
	Method  string      // such as GET
	Path    *expr.Value // below the URL of the service
	Query   *expr.Value
	Body    *expr.Value // sent as JSON; nil for none
	NoBody  bool        // nothing at all is sent
	Expect  []string    // the statuses of success: 200, 2xx
	JSON    bool        // the response is read as JSON, at least where it is some
}

// An API is the OpenAPI document of a service, as far as requests need it.
type API struct {
	contracts  *Set
	service    string // its id
	document   string // the file, as it is named
	root       node
	base       string // path of the first server, which requests may write before the paths
	operations []*Endpoint
}

// An Endpoint is one call of an API, as its document says.
type Endpoint struct {
	Query     []Parameter
	Body      *Contract // what the body must be; nil for anything
	BodyKnown bool      // the document says what the body is
	BodyMust  bool      // there must be one

	method   string
	template string // such as /v1/orders/{id}
	value    node   // of the document
	replies  map[string]*Contract
	bare     map[string]bool // replies without content
	complete bool            // finish has read the rest
}

// String names the endpoint for people.
func (op *Endpoint) String() string { return op.method + " " + op.template }

// A Parameter is one name of the query.
type Parameter struct {
	Name     string
	Required bool
	Outline  *typing.Outline
	At       diag.Span
}

// A node is a part of a document that knows its address.
type node struct {
	*expr.Value
	resource string
	path     datum.Path
}

// get goes to a member; the node of one that is not there has no value.
func (n node) get(name string) node {
	return node{n.Value.Get(name), n.resource, slices.Concat(n.path, datum.Path{name})}
}

// address is what the schema compiler knows the node by.
func (n node) address() string {
	var b strings.Builder
	b.WriteString(n.resource + "#")
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, name := range n.path {
		b.WriteString("/" + url.PathEscape(escape.Replace(name)))
	}
	return b.String()
}

// follow goes to what a $ref names, if the node is one. The node has no value when the $ref
// leads nowhere, or in a circle.
func (k *Set) follow(n node) node {
	for range source.MaxNesting {
		text, ok := n.Get("$ref").Text()
		if !ok {
			return n
		}
		file, fragment, _ := strings.Cut(text, "#")
		to := node{resource: n.resource}
		if file != "" {
			at, err := url.Parse(n.resource)
			if err != nil {
				return node{}
			}
			relative, err := url.Parse(file)
			if err != nil {
				return node{}
			}
			to.resource = at.ResolveReference(relative).String()
		}
		if plain, err := url.PathUnescape(fragment); err == nil {
			fragment = plain
		}
		to.path = pointer(fragment)
		to.Value = k.trees[to.resource].At(to.path)
		n = to
	}
	return node{}
}

// methods are the keys of a path item that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// API reads the OpenAPI document of a service; nil when it cannot be used, which is reported.
// At is where the document is named, in a file that it is relative to.
func (k *Set) API(service, document string, at diag.Span) *API {
	name, _, ok := k.files[at.File].Target(document, true)
	f := k.files[name]
	switch {
	case !ok:
		k.Errorf(at, rules.NoFile, "copy it beside the pipelines and name the file",
			"%q is not a relative path: documents are read from files of the set only", document)
		return nil
	case !f.Usable():
		return nil // reported
	}
	root := node{f.Root, addressOf(name), nil}
	version, _ := root.Get("openapi").Text()
	if !strings.HasPrefix(version, "3.") || root.Get("paths") == nil {
		k.Errorf(at, rules.OpenAPI, "want a file that begins with openapi: 3.1.0, or 3.0.x, and has paths", "%s is not an OpenAPI document", name)
		return nil
	}
	if data, ok := root.Literal(); !ok || data == nil {
		k.Errorf(at, rules.OpenAPI, "", "%s holds expressions", name)
		return nil
	}
	api := &API{contracts: k, service: service, document: document, root: root, base: basePath(root)}
	paths := root.get("paths")
	for _, key := range paths.Keys() {
		item := k.follow(paths.get(key.Name))
		for _, method := range methods {
			if op := item.get(method); op.Value != nil {
				api.operations = append(api.operations, &Endpoint{
					method: strings.ToUpper(method), template: key.Name, value: op,
				})
			}
		}
	}
	return api
}

// basePath is the path of the first server of a document, without a slash at its end; empty
// when it has none, or one that is no URL.
func basePath(root node) string {
	servers := root.Get("servers").Items()
	if len(servers) == 0 {
		return ""
	}
	text, _ := servers[0].Get("url").Text()
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// pathPattern returns the text of a path, with a hole for each computed part; false
// when nothing of it is known.
func pathPattern(v *expr.Value) (text string, ok bool) {
	if text, ok := v.Text(); ok {
		return text, true
	}
	e := v.Expr()
	if e == nil {
		return "", false
	}
	s, f := syntax.Parse(e.Source)
	if f != nil {
		return "", false
	}
	text = s.Pattern(s.Root)
	return text, strings.HasPrefix(text, "/")
}

// find returns the operation that a method and a path mean. When there is none,
// known tells whether that is sure.
func (api *API) find(method, path string) (found *Endpoint, known bool) {
	computed := strings.Contains(path, syntax.Hole)
	for _, p := range []string{path, strings.TrimPrefix(path, api.base)} {
		var matches []*Endpoint
		for _, op := range api.operations {
			if op.method == method && fitsTemplate(p, op.template) {
				matches = append(matches, op)
			}
		}
		if len(matches) == 0 {
			continue
		}
		// What is written out counts more than a parameter.
		slices.SortStableFunc(matches, func(a, b *Endpoint) int {
			return cmp.Compare(strings.Count(a.template, "{"), strings.Count(b.template, "{"))
		})
		if computed {
			return only(p, matches), false
		}
		return matches[0], true
	}
	return nil, !computed
}

// only returns the operation that a computed path means: where there are several,
// the one whose parameters stand where parts are computed. It is nil when that is
// not one.
func only(path string, matches []*Endpoint) *Endpoint {
	if len(matches) == 1 {
		return matches[0]
	}
	var found []*Endpoint
	for _, op := range matches {
		have, want := segments(path), segments(op.template)
		ok := true
		for i := range have {
			ok = ok && (have[i] != syntax.Hole || strings.HasPrefix(want[i], "{"))
		}
		if ok {
			found = append(found, op)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// segments are the parts of a path between its slashes; one at the end makes no difference.
func segments(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// fitsTemplate reports whether a path may be one of a template: a parameter takes
// one segment, and a hole may be any text.
func fitsTemplate(path, template string) bool {
	have, want := segments(path), segments(template)
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		before, rest, isParam := strings.Cut(want[i], "{")
		_, after, _ := strings.Cut(rest, "}")
		lead, _, holed := strings.Cut(have[i], syntax.Hole)
		switch {
		case isParam && holed:
		case isParam:
			if !strings.HasPrefix(have[i], before) || !strings.HasSuffix(have[i], after) || len(have[i]) <= len(before)+len(after) {
				return false
			}
		case holed:
			if !strings.HasPrefix(want[i], lead) {
				return false
			}
		case have[i] != want[i]:
			return false
		}
	}
	return true
}

// templates lists the paths of a method, for suggestions.
func (api *API) templates(method string) []string {
	var out []string
	for _, op := range api.operations {
		if op.method == method {
			out = append(out, op.template)
		}
	}
	return out
}

// methodsOf lists the methods of the paths that a path fits.
func (api *API) methodsOf(path string) []string {
	var out []string
	for _, op := range api.operations {
		if fitsTemplate(path, op.template) || fitsTemplate(strings.TrimPrefix(path, api.base), op.template) {
			out = append(out, op.method)
		}
	}
	return out
}

// finish reads what an operation takes and gives, once somebody calls it. Documents of whole
// companies have thousands of operations, and schemas that nobody here needs may be wrong.
func (api *API) finish(op *Endpoint) {
	if op.complete {
		return
	}
	op.complete = true
	where := op.String() + " of " + api.service
	item := api.contracts.follow(api.root.get("paths").get(op.template))
	seen := map[string]bool{}
	// Those of the operation come first: by the standard, they replace those of the path.
	for _, list := range []node{op.value.get("parameters"), item.get("parameters")} {
		for i := range list.Items() {
			p := api.contracts.follow(node{list.Items()[i], list.resource, slices.Concat(list.path, datum.Path{strconv.Itoa(i)})})
			name, _ := p.Get("name").Text()
			if in, _ := p.Get("in").Text(); in != "query" || seen[name] {
				continue
			}
			seen[name] = true
			required, _ := p.Get("required").Literal()
			q := Parameter{Name: name, Required: required == true, At: p.Value.Head()}
			if s := p.get("schema"); s.Value != nil {
				q.Outline = api.contracts.compile(s.address(), s.Value, "query "+name+" of "+where).Outline()
			}
			op.Query = append(op.Query, q)
		}
	}
	api.finishBody(op, where)
	op.replies, op.bare = map[string]*Contract{}, map[string]bool{}
	responses := op.value.get("responses")
	for _, key := range responses.Keys() {
		reply := api.contracts.follow(responses.get(key.Name))
		status := strings.ToLower(key.Name)
		if reply.Value == nil {
			continue
		}
		if content := reply.get("content"); len(content.Keys()) == 0 {
			op.bare[status] = true
		} else if s := jsonSchema(content); s.Value != nil {
			op.replies[status] = api.contracts.compile(s.address(), s.Value, "the reply "+key.Name+" of "+where)
		} else {
			op.replies[status] = nil
		}
	}
}

// finishBody reads what the body of an operation must be.
func (api *API) finishBody(op *Endpoint, where string) {
	body := api.contracts.follow(op.value.get("requestBody"))
	if body.Value == nil {
		return
	}
	required, _ := body.Get("required").Literal()
	op.BodyMust = required == true
	content := body.get("content")
	if s := jsonSchema(content); s.Value != nil {
		op.Body = api.contracts.compile(s.address(), s.Value, "the body of "+where)
	}
	op.BodyKnown = len(content.Keys()) > 0
}

// jsonSchema finds the schema of the JSON among the contents of a body.
func jsonSchema(content node) node {
	for _, key := range content.Keys() {
		mime, _, _ := strings.Cut(strings.ToLower(key.Name), ";")
		if mime == "application/json" || strings.HasSuffix(mime, "+json") {
			return content.get(key.Name).get("schema")
		}
	}
	return node{}
}

// reply finds what the document says of a status: its own entry, that of its
// class, or the default. It is false when nothing is said.
func (op *Endpoint) reply(status string) (c *Contract, bare, said bool) {
	for _, key := range []string{status, status[:1] + "xx", "default"} {
		if op.bare[key] {
			return nil, true, true
		}
		if c, ok := op.replies[key]; ok {
			return c, false, true
		}
	}
	return nil, false, false
}

// outline is what a response may be that has one of the expected statuses; nil
// when that is not known.
func (op *Endpoint) outline(expect []string) *typing.Outline {
	var statuses []string
	for _, want := range expect {
		class := want[:1]
		if !strings.HasSuffix(want, "xx") {
			statuses = append(statuses, want)
			continue
		}
		found := false
		for _, key := range slices.Concat(diag.SortedKeys(op.replies), diag.SortedKeys(op.bare)) {
			if strings.HasPrefix(key, class) {
				statuses, found = append(statuses, key), true
			}
		}
		if !found {
			statuses = append(statuses, want)
		}
	}
	var out *typing.Outline
	for i, status := range statuses {
		c, bare, said := op.reply(status)
		var one *typing.Outline
		switch {
		case !said:
			return nil
		case bare:
			one = &typing.Outline{Shape: datum.NullShape, Why: "a reply " + status + " has no content"}
		case c == nil:
			return nil
		default:
			one = c.outline
		}
		if i == 0 {
			out = one
			continue
		}
		out = typing.Either(out, one)
	}
	return out
}
