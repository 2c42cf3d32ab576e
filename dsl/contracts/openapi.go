package contracts

import (
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

// An Operation is what a handler calls, in terms of OpenAPI. What is unknown before the handler runs is empty.
type Operation struct {
	Service string      // id of a declared service; empty for a literal address
	Method  string      // such as GET
	Path    *expr.Value // below the URL of the service
	Query   *expr.Value
	Body    *expr.Value // sent as JSON; nil for none
	NoBody  bool        // the request has no body
	Expect  []string    // statuses of success, such as 200 or 2xx
	JSON    bool        // the response is read as JSON if it is JSON
}

// An API is the OpenAPI document of a service, as far as requests need it.
type API struct {
	contracts  *Set
	service    string // its id
	document   string // name of the file
	root       node
	base       string // path of the first server, which requests may put before the paths
	operations []*Endpoint
}

// An Endpoint is one operation of an API.
type Endpoint struct {
	Query     []Parameter
	Body      *Contract // nil for any body
	BodyKnown bool      // the document describes the body
	BodyMust  bool      // the body is required

	method   string
	template string // such as /v1/orders/{id}
	value    node   // in the document
	replies  map[string]*Contract
	bare     map[string]bool // replies without content
	complete bool            // finish has read the rest
}

// String returns the endpoint for messages.
func (op *Endpoint) String() string { return op.method + " " + op.template }

// A Parameter is a parameter of the query.
type Parameter struct {
	Name     string
	Required bool
	Outline  *typing.Outline
	At       diag.Span
}

// A node is a part of a document with its address.
type node struct {
	*expr.Value
	resource string
	path     datum.Path
}

// get returns a member. If there is none, the node has no value.
func (n node) get(name string) node {
	return node{n.Value.Get(name), n.resource, slices.Concat(n.path, datum.Path{name})}
}

// address returns the address of the node for the schema compiler.
func (n node) address() string {
	var b strings.Builder
	b.WriteString(n.resource + "#")
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, name := range n.path {
		b.WriteString("/" + url.PathEscape(escape.Replace(name)))
	}
	return b.String()
}

// follow resolves a $ref. The node has no value if the $ref has no target or is part of a cycle.
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

// API reads the OpenAPI document of a service. It returns nil after it has reported an error. at is where a
// file names the document. The name is relative to that file.
func (k *Set) API(service, document string, at diag.Span) *API {
	name, _, ok := k.files[at.File].Target(document, true)
	f := k.files[name]
	switch {
	case !ok:
		k.Errorf(at, rules.NoFile, "copy it beside the pipelines and name the file",
			"%q is not a relative path: documents are read from files of the set only", document)
		return nil
	case !f.Usable():
		return nil // already reported
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

// basePath returns the path of the first server without a trailing slash. It is empty if there is no server or
// no valid URL.
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

// pathPatterns lists the paths that a request may have, with a hole for each computed part. It returns nothing if nothing
// of a path is known: it does not begin with a slash then.
func pathPatterns(v *expr.Value) []string {
	if text, ok := v.Text(); ok {
		return []string{text}
	}
	e := v.Expr()
	if e == nil {
		return nil
	}
	s, f := syntax.Parse(e.Source)
	if f != nil {
		return nil
	}
	paths := s.Patterns(s.Root)
	if slices.ContainsFunc(paths, func(p string) bool { return !strings.HasPrefix(p, "/") }) {
		return nil
	}
	return paths
}

// below lists the forms of a path: as it is, and below the path of the first server.
func (api *API) below(path string) []string {
	if rest, ok := strings.CutPrefix(path, api.base); ok && api.base != "" && strings.HasPrefix(rest, "/") {
		return []string{path, rest}
	}
	return []string{path}
}

// find returns the operation of a method and a path, or nil.
func (api *API) find(method, path string) *Endpoint {
	for _, p := range api.below(path) {
		var found *Endpoint
		for _, op := range api.operations {
			// Literal segments precede parameters.
			if op.method == method && fitsTemplate(p, op.template) &&
				(found == nil || strings.Count(op.template, "{") < strings.Count(found.template, "{")) {
				found = op
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// segments splits a path at its slashes. A trailing slash makes no difference.
func segments(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// fitsTemplate reports whether a path matches a template. Parameters are within one segment. A hole matches only a
// parameter: where the document has text, the path must have the same text. So a renamed path is found, even if a
// computed part might happen to be another name of the document.
func fitsTemplate(path, template string) bool {
	have, want := segments(path), segments(template)
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		before, rest, isParam := strings.Cut(want[i], "{")
		after := rest[strings.LastIndex(rest, "}")+1:]
		switch {
		case !isParam && have[i] != want[i]:
			return false
		case isParam && (!strings.HasPrefix(have[i], before) || !strings.HasSuffix(have[i], after) || len(have[i]) <= len(before)+len(after)):
			return false
		}
	}
	return true
}

// choices lists the paths of a method that a path would match if its computed parts were text of the document.
func (api *API) choices(method, path string) []string {
	var out []string
	for _, op := range api.operations {
		if op.method == method && slices.ContainsFunc(api.below(path), func(p string) bool { return mayMatch(p, op.template) }) {
			out = append(out, op.template)
		}
	}
	return out
}

// mayMatch is fitsTemplate with holes for any text of the document.
func mayMatch(path, template string) bool {
	have, want := segments(path), segments(template)
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		if strings.Contains(have[i], syntax.Hole) && !strings.Contains(want[i], "{") {
			have[i] = want[i]
		}
	}
	return fitsTemplate(strings.Join(have, "/"), template)
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

// methodsOf lists the methods of matching paths.
func (api *API) methodsOf(path string) []string {
	var out []string
	for _, op := range api.operations {
		if slices.ContainsFunc(api.below(path), func(p string) bool { return fitsTemplate(p, op.template) }) {
			out = append(out, op.method)
		}
	}
	return out
}

// finish reads parameters, body and responses of an operation that a handler calls. Large documents have
// thousands of operations, and schemas that nobody uses may be wrong.
func (api *API) finish(op *Endpoint) {
	if op.complete {
		return
	}
	op.complete = true
	where := op.String() + " of " + api.service
	item := api.contracts.follow(api.root.get("paths").get(op.template))
	seen := map[string]bool{}
	// Parameters of the operation come first, since they replace those of the path.
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

// finishBody reads the schema of the operation's body.
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

// jsonSchema returns the schema of JSON in the content of a body.
func jsonSchema(content node) node {
	for _, key := range content.Keys() {
		mime, _, _ := strings.Cut(strings.ToLower(key.Name), ";")
		if mime == "application/json" || strings.HasSuffix(mime, "+json") {
			return content.get(key.Name).get("schema")
		}
	}
	return node{}
}

// reply returns the contract of a status: its own entry, that of its class, or the default. said reports
// whether there is one.
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

// statuses lists the statuses of the document that belong to an expected status, or to a class such as 4xx. It is never
// empty.
func (op *Endpoint) statuses(want string) []string {
	if !strings.HasSuffix(want, "xx") {
		return []string{want}
	}
	var out []string
	for _, key := range slices.Concat(diag.SortedKeys(op.replies), diag.SortedKeys(op.bare)) {
		if strings.HasPrefix(key, want[:1]) {
			out = append(out, key)
		}
	}
	if out == nil {
		return []string{want}
	}
	return out
}

// outline returns the type of a response with one of the expected statuses, or nil if it is unknown.
func (op *Endpoint) outline(expect []string) *typing.Outline {
	var statuses []string
	for _, want := range expect {
		statuses = append(statuses, op.statuses(want)...)
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
