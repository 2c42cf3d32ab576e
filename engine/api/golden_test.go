package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"

	"github.com/cockroachdb/datadriven"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"procaas/engine/api"
	"procaas/engine/model"
)

// TestRecordedRequests replays testdata/api: requests in, replies out. The
// commands are
//
//	server [token=T] [open=(G,…)] [hosts=(H,…)] [max-body=N]   a new server on a new engine; hosts make it one of this machine
//	http                            a request; {{repeat "x" 9}}, {{hex "ff"}} and {{gzip "x"}} write what cannot be shown
//	submitted                       the events that the engine has accepted since the last time
//	end run=ID status=S             how a run ended
//	engine down|up|panics|wrong     what the engine does next; wrong has errors in its pipelines
//
// Every reply must be one that the description of the API allows.
func TestRecordedRequests(t *testing.T) {
	datadriven.Walk(t, filepath.Join("..", "..", "testdata", "api"), func(t *testing.T, path string) {
		r := &recorder{}
		r.serve(t, api.Options{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "server":
				o := api.Options{}
				d.MaybeScanArgs(t, "token", &o.Token)
				d.MaybeScanArgs(t, "max-body", &o.MaxBody)
				o.Open, o.Hosts, o.Local = list(d, "open"), list(d, "hosts"), d.HasArg("hosts")
				r.serve(t, o)
				return "ok\n"
			case "http":
				return r.send(t, d.Input)
			case "submitted":
				return r.submitted()
			case "end":
				var run, status string
				d.ScanArgs(t, "run", &run)
				d.ScanArgs(t, "status", &status)
				r.engine.end(run, model.Status(status))
				return "ok\n"
			case "engine":
				r.engine.down, r.engine.panics, r.engine.wrong = d.HasArg("down"), d.HasArg("panics"), d.HasArg("wrong")
				r.engine.overloaded = d.HasArg("overloaded")
				return "ok\n"
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

// list returns the values of an argument.
func list(d *datadriven.TestData, name string) []string {
	if a, ok := d.Arg(name); ok {
		return a.Vals
	}
	return nil
}

type recorder struct {
	engine  *fakeEngine
	handler http.Handler
	told    int // events of the engine that were shown
}

func (r *recorder) serve(t *testing.T, o api.Options) {
	t.Helper()
	r.engine, r.told = newFake(taxi(t)), 0
	o.Version, o.Reload = "v1", r.engine.reload
	r.handler = api.New(withProducts(r.engine, o))
}

func (r *recorder) send(t *testing.T, input string) string {
	t.Helper()
	req := readRequest(t, input)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	checkDescribed(t, req, w.Result(), w.Body.Bytes())
	return shownReply(w)
}

func readRequest(t *testing.T, input string) *http.Request {
	t.Helper()
	funcs := template.FuncMap{"repeat": strings.Repeat, "hex": func(s string) (string, error) {
		b, err := hex.DecodeString(s)
		return string(b), err
	}, "gzip": func(s string) (string, error) {
		var b strings.Builder
		z := gzip.NewWriter(&b)
		_, err := io.WriteString(z, s)
		err = errors.Join(err, z.Close())
		return b.String(), err
	}}
	var text bytes.Buffer
	if err := template.Must(template.New("").Funcs(funcs).Parse(input)).Execute(&text, nil); err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(text.String(), "\n\n")
	first, headers, _ := strings.Cut(head, "\n")
	method, target, _ := strings.Cut(first, " ")
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, target, reader)
	for line := range strings.SplitSeq(headers, "\n") {
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		if name == "Host" {
			req.Host = value
			continue
		}
		if name == "Transfer-Encoding" {
			req.TransferEncoding = []string{value}
			continue
		}
		req.Header.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	}
	return req
}

// shownReply writes a reply without the headers that all replies have.
func shownReply(w *httptest.ResponseRecorder) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d %s\n", w.Code, http.StatusText(w.Code))
	var names []string
	for name := range w.Header() {
		if name != "X-Content-Type-Options" && name != "Cache-Control" && name != "Content-Length" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(w.Header()[name], ", "))
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, w.Body.Bytes(), "", "  ") == nil {
		return out.String() + strings.TrimSpace(pretty.String()) + "\n"
	}
	return out.String() + strings.TrimSpace(w.Body.String()) + "\n"
}

func (r *recorder) submitted() string {
	var out strings.Builder
	for _, e := range r.engine.seen[r.told:] {
		fmt.Fprintf(&out, "type=%s id=%s source=%s key=%s payload=%#v", e.Type, e.ID, e.Source, e.Key, e.Payload)
		if !e.Time.IsZero() {
			fmt.Fprintf(&out, " time=%s", e.Time)
		}
		if !e.At.IsZero() {
			fmt.Fprintf(&out, " at=%s", e.At)
		}
		fmt.Fprintf(&out, " tolerance=%s priority=%d trace=%s\n", e.DelayTolerance, e.Priority, e.TraceParent)
	}
	r.told = len(r.engine.seen)
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

var pathParam = regexp.MustCompile(`\{[^}]+\}`)

// description is what the API says of itself, read once; compiled are the schemas
// of it that were needed.
var (
	description = sync.OnceValues(func() (any, error) {
		w := httptest.NewRecorder()
		api.New(described()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
		return jsonschema.UnmarshalJSON(w.Body)
	})
	compiled sync.Map
)

// checkDescribed checks a reply against the API's description of itself.
func checkDescribed(t *testing.T, req *http.Request, reply *http.Response, body []byte) {
	t.Helper()
	doc, err := description()
	if err != nil {
		t.Fatal(err)
	}
	media, _, _ := strings.Cut(reply.Header.Get("Content-Type"), ";")
	schema := "#/components/schemas/Problem" // of what no operation answers
	about := doc.(map[string]any)["info"]
	at, operation := operationOf(doc, req)
	if reply.StatusCode != http.StatusNotFound && reply.StatusCode != http.StatusMethodNotAllowed || at != "" {
		status := strconv.Itoa(reply.StatusCode)
		schema = fmt.Sprintf("#/paths/%s/responses/%s/content/%s/schema", at, status, escape(media))
		responses, _ := operation["responses"].(map[string]any)
		about = responses[status]
	}
	known, found := compiled.Load(schema)
	if !found {
		c := jsonschema.NewCompiler()
		if err := c.AddResource("api.json", doc); err != nil {
			t.Fatal(err)
		}
		if known, err = c.Compile("api.json" + schema); err != nil {
			t.Errorf("%s %s: reply %d %s is not described: %v", req.Method, req.URL.Path, reply.StatusCode, media, err)
			return
		}
		compiled.Store(schema, known)
	}
	if !strings.HasSuffix(media, "json") {
		return
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if problem, ok := value.(map[string]any); ok && media == "application/problem+json" {
		if named := fmt.Sprint(about); !strings.Contains(named, fmt.Sprintf("`%s`", problem["code"])) {
			t.Errorf("%s %s: the description does not name the code %s of its reply %d", req.Method, req.URL.Path, problem["code"],
				reply.StatusCode)
		}
	}
	if err == nil {
		err = known.(*jsonschema.Schema).Validate(value)
	}
	if err != nil {
		t.Errorf("%s %s: reply %d is not as described: %v\n%s", req.Method, req.URL.Path, reply.StatusCode, err, body)
	}
}

// operationOf finds the operation that serves a request, with its path and its method
// as a pointer below paths; empty when there is none.
func operationOf(doc any, req *http.Request) (at string, operation map[string]any) {
	method := strings.ToLower(req.Method)
	if method == "head" {
		method = "get"
	}
	for path, item := range doc.(map[string]any)["paths"].(map[string]any) {
		pattern := "^" + pathParam.ReplaceAllString(path, "[^/]+") + "$"
		if operation, ok := item.(map[string]any)[method].(map[string]any); ok &&
			regexp.MustCompile(pattern).MatchString(req.URL.EscapedPath()) {
			return escape(path) + "/" + method, operation
		}
	}
	return "", nil
}

func escape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B").Replace(s)
}
