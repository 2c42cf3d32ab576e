package decode

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/source"
	"procaas/dsl/spec"
)

// An around is a mapping around the current one, with its fields. The outer ones tell where a field belongs
// that is indented too far.
type around struct {
	spec *spec.Spec
	name string // what authors call it
	key  string // of the mapping; empty for the file and for elements of lists
}

// enter opens a level. It returns the function that closes it.
func (d *decoder) enter(s *spec.Spec, name, key string) func() {
	d.levels = append(d.levels, around{s, name, key})
	return func() { d.levels = d.levels[:len(d.levels)-1] }
}

// unknownField reports an unknown key. Known words of other tools and fields of neighbouring mappings take
// precedence over similar names.
func (d *decoder) unknownField(v *expr.Value, i int, s *spec.Spec, of string) {
	k, known := v.Names[i], s.Names()
	hint := d.strayHint(v, i, s, of)
	meant := d.insteadOf(v, s, of)
	if hint == "" {
		hint = diag.Choice(k.Name, known, "the fields are")
	}
	if meant != "" {
		hint = "the " + of + " needs " + meant + ":, which is not there; " + hint
	}
	d.Errorf(k.Span, rules.UnknownField, hint, "unknown field %s of the %s", datum.DescribeData(k.Name), of)
}

// strayHint returns the probable reason for an unknown key, or "".
func (d *decoder) strayHint(v *expr.Value, i int, s *spec.Spec, of string) string {
	name := v.Names[i].Name
	switch r := []rune(name); {
	case isEllipsis(name):
		return "delete it: a listing leaves something out here"
	case len(r) > 1 && r[0] == '-' && r[1] != '-':
		return "put a space after the hyphen: - " + string(r[1:])
	case strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f && unicode.IsSpace(r) }):
		return "the blanks before it are other characters than spaces: write spaces"
	case strings.ContainsAny(name, "“”‘’"):
		return "write straight quotes, ' or \", or none"
	}
	if above := d.emptyAbove(v, i, s); above != "" {
		return "indent it below " + above + ":, which has nothing below it"
	}
	translated := foreignHint(name, of, s)
	if field, ok := strings.CutPrefix(translated, "write "); ok && s.Field(strings.TrimSuffix(field, ":")) != nil {
		return translated // the same thing under another name
	}
	if strings.HasPrefix(translated, "delete it") {
		return translated // there is no such thing, also not one level up
	}
	return cmp.Or(d.neighbourHint(v, i, s), translated)
}

// emptyAbove returns the key right above an unknown one if its value is empty and the unknown key may belong
// below it. That is the usual indentation error.
func (d *decoder) emptyAbove(v *expr.Value, i int, s *spec.Spec) string {
	if i == 0 {
		return ""
	}
	key, item, unknown := v.Names[i-1], v.Elems[i-1], v.Names[i]
	if !item.IsNull() || item.Span.Start != item.Span.End && !item.Plain || key.Span.Start.Column != unknown.Span.Start.Column {
		return ""
	}
	var below *spec.Spec
	if t := d.typeNamed(key.Name); t != nil && s == d.handlerSpec {
		below = t.Spec
	} else if f := s.Field(key.Name); f != nil {
		if f.Kind == datum.MapKind || f.Kind == datum.AnyKind && f.ExprKind == datum.MapKind {
			return key.Name
		}
		below = f.Spec
	}
	if below == nil || below.InlineField() == nil && below.Field(unknown.Name) == nil {
		return ""
	}
	return key.Name
}

// neighbourHint finds the mapping to which an unknown field belongs: an element of a list above it, a mapping
// beside it, or one around it.
func (d *decoder) neighbourHint(v *expr.Value, i int, s *spec.Spec) string {
	name := v.Names[i].Name
	for j := i - 1; j >= 0; j-- {
		f, item := s.Field(v.Names[j].Name), v.Elems[j]
		if f == nil || f.Kind != datum.ListKind || f.Elem.Kind != datum.ObjectKind || f.Elem.Spec.Field(name) == nil || len(item.Elems) == 0 {
			continue
		}
		if last := item.Elems[len(item.Elems)-1]; last.Kind == expr.ValueMap && len(last.Names) > 0 {
			at := last.Names[0].Span.Start
			return fmt.Sprintf("it is a field of the %s above: indent it by %d spaces, as %s: of line %d is",
				spec.Kebab(f.Elem.Spec.Name), at.Column-1, last.Names[0].Name, at.Line)
		}
	}
	if s != d.file {
		var below []string
		for _, f := range s.Fields {
			if f.Kind == datum.ObjectKind && f.Spec.Field(name) != nil && len(f.Words) == 0 {
				below = append(below, f.Name)
			}
		}
		if len(below) == 1 {
			return "it is a field of " + below[0] + ": write it below " + below[0] + ":"
		}
	}
	for j := len(d.levels) - 2; j > 0; j-- {
		l := d.levels[j]
		own := d.levels[j+1].key
		if f := l.spec.Field(name); f != nil && own != "" && d.typeNamed(name) == nil {
			return fmt.Sprintf("it is a field of the %s: indent it as far as %s:", l.name, own)
		}
	}
	return ""
}

// A foreign has words of other tools with one meaning here. Authors who know such a tool write them first.
type foreign struct {
	words string // separated by spaces, with hyphens
	write string // what to write here
}

// foreigns are such words by mapping. An entry with an empty hint would hide a similar field, so each has one.
var foreigns = map[string][]foreign{
	"file": {
		{"workflow workflows jobs dag dags process processes", "write pipelines:"},
		{"version api-version kind metadata spec name description", "delete it: files say only what they declare"},
		{"env vars variables settings parameters", "write configs:"},
		{"secrets", "delete it: write !secret NAME where the value is needed, and give the value to the server"},
		{"cron schedules", "write triggers:"},
		{"steps stages", "write it in a pipeline, below pipelines:"},
	},
	"flow": {
		{"name", "write id:"},
		{"initial final transitions otherwise", "write it below states:"},
	},
	"pipeline": {
		{"name", "write id:"},
		{"steps tasks jobs actions handlers", "write stages:, and handlers: in each stage"},
		{"trigger event events", "write on:, with the type of the event"},
		{"if condition filter enabled", "write when:"},
		{"state vars variables context data", "write shared-state:"},
		{"input params parameters", "write inputs:"},
		{"output", "write outputs:"},
		{"schedule cron every", "write a trigger that emits the pipeline's event, below triggers: of the file"},
		{"key states", "write it in a flow, below flows: of the file, and name that: flow: …"},
		{"payload payload-schema event-schema", "write events: in the file: - {type: …, payload: …}"},
		{"retry timeout critical request", "write it in a handler"},
		{"description comment", "write a comment: # …"},
	},
	"service": {
		{"name", "write id:"},
		{"host address base-url endpoint uri", "write url:"},
		{"mtls certificate client-cert client-certificate cert", "write tls: {cert: FILE, key: FILE, ca: FILE}"},
		{"listen routes", "write it in a file NAME.stub.yaml, which plays the service"},
	},
	"stage": {
		{"name", "write id:"},
		{"steps tasks jobs actions", "write handlers:"},
		{"needs depends-on after before", "delete it: stages run in the order in which they are written"},
		{"parallel", "delete it: handlers of a stage run in parallel wherever that is safe"},
		{"if when condition", "write enabled:"},
		{"foreach loop with-items map", "write for-each:"},
		{"switch branches", "write choose:"},
		{"description comment", "write a comment: # …"},
	},
	"handler": {
		{"name", "write id:"},
		{"http https rest api fetch curl call-http webhook get post put", "write request: {method: …, url: …}"},
		{"query database db postgres postgresql", "write sql: {database: …, statement: …}"},
		{"sleep delay pause timer", "write wait: {for: …}"},
		{"log print echo", "delete it: the run keeps the request and the response of each handler"},
		{"run script exec shell command python code lambda function uses", "put the code behind a URL, and write request: {url: …}: no " +
			"code runs here"},
		{"if when condition only-if", "write enabled:"},
		{"foreach loop with-items repeat", "write for-each: {items: …}"},
		{"retries attempts max-attempts backoff max-retries", "write retry: {attempts: …}"},
		{"needs depends-on after before", "delete it: a handler waits for what it reads; put it into a later stage to wait for all"},
		{"parallel", "delete it: handlers of a stage run in parallel wherever that is safe"},
		{"catch rescue except on-failure error", "write on-error:"},
		{"optional continue-on-error allow-failure ignore-errors ignore-error", "write critical: false"},
		{"output outputs save register", "write result: {name: …}"},
		{"assign set-state state vars shared-state", "write set: {name: …}"},
		{"publish send send-event event raise", "write emit: {type: …}"},
		{"throw stop abort", "write fail:"},
		{"pipeline workflow subflow invoke", "write call: {pipeline: …}"},
		{"rollback undo", "write compensate:"},
		{"template", "write use: {template: …}"},
		{"state-schemas", "write response-schema: {…} beside request:, which checks what the handler gets"},
		{"throttle", "write rate-limit: {rate: …}"},
		{"concurrency parallelism max-concurrency max-parallel", "write max-in-flight:"},
		{"type action", "write the type as a key, such as request: {…} or set: {…}"},
		{"description comment", "write a comment: # …"},
	},
	"await": {
		{"exclusive parallel", "delete it: later events of the key wait, as they would read what is half done. End the pipeline before the " +
			"wait, and let the event start another one"},
	},
	"request": {
		{"stream streaming pipe", "delete it: nothing streams, since a retry must send the same bytes. Write response: bytes, or pass a " +
			"signed URL on"},
		{"uri endpoint href address host", "write url:, or service: and path:"},
		{"verb type", "write method:"},
		{"params query-params args", "write query:"},
		{"data payload json", "write body:"},
		{"auth authorization token bearer", "write headers: {Authorization: …}"},
	},
	"cloudevent": {
		{"id", "delete it: the id is the Idempotency-Key, by which the receiver recognises an event that comes again"},
		{"partitionkey partition-key key", "delete it: it is the key of the flow"},
		{"payload body", "write data:"},
		{"extensions", "write mode: binary, and headers: {Ce-NAME: …} beside cloudevent:"},
	},
	"sql": {
		{"query text command sql", "write statement:"},
		{"params args arguments values bind bindings", "write parameters:"},
		{"db connection", "write database:"},
		{"transaction", "delete it: the statement and its key are one transaction"},
	},
	"database": {
		{"name", "write id:"},
		{"url uri dsn host connection connection-string", "write address: postgres://USER@HOST:PORT/NAME"},
		{"user username", "write it in the address: postgres://USER@HOST:PORT/NAME"},
		{"ssl sslmode", "write tls: {}, with ca: if the certificate of the server is not that of a public authority"},
		{"pool pool-size max-pool-size max-open-connections", "write max-connections:"},
		{"schema search-path", "write it in the address: postgres://USER@HOST:PORT/NAME?search_path=SCHEMA"},
	},
	"emit": {
		{"event name event-type", "write type:"},
		{"data body message", "write payload:"},
	},
	"wait": {
		{"duration seconds time delay timeout", "write for:, such as for: 5s"},
	},
	"retry": {
		{"max-attempts max count times limit retries max-retries", "write attempts:"},
		{"delay backoff interval initial-delay initial-interval wait", "write min-delay:"},
		{"max-backoff max-interval cap", "write max-delay:"},
		{"multiplier exponent backoff-coefficient", "write factor:"},
		{"errors when retry-on", "write on:"},
	},
	"transition": {
		{"event", "write on:"},
		{"target", "write to:"},
		{"source state", "write from:"},
	},
	"trigger": {
		{"name", "write id:"},
		{"schedule", "write cron:"},
		{"interval", "write every:"},
		{"type emit pipeline", "write event:, with the type of the event"},
	},
}

// foreignHint translates a word of another tool.
func foreignHint(name, of string, s *spec.Spec) string {
	plain := strings.ReplaceAll(spec.Kebab(strings.ReplaceAll(name, "_", "-")), "--", "-")
	for _, f := range foreigns[of] {
		if slices.Contains(strings.Fields(f.words), plain) && s.Field(name) == nil {
			return f.write
		}
	}
	return ""
}

// shapeHint returns how to write a value that has the wrong shape: a list without hyphens, or one word instead
// of a mapping.
func shapeHint(v *expr.Value, f *spec.Field, name string) string {
	switch {
	case v.Kind == expr.ValueLiteral && isEllipsis(v.Scalar):
		return "write what belongs here: a listing leaves it out"
	case f.Kind == datum.ListKind && v.Kind == expr.ValueMap && f.Elem.Kind == datum.ObjectKind && len(v.Names) > 0:
		first := v.Names[0].Name
		if v.Elems[0].Kind == expr.ValueMap && f.Elem.Spec.Field("id") != nil && f.Elem.Spec.Field(first) == nil {
			return fmt.Sprintf("make it an entry of a list: - id: %s, and its fields below id", first)
		}
		return fmt.Sprintf("begin each entry with a hyphen: - %s: …", first)
	case f.Kind == datum.ListKind && v.Kind == expr.ValueLiteral && v.Scalar != nil:
		if f.Elem.Holds(v.Scalar) {
			return "write " + name + ": [" + datum.Plainly(v.Scalar) + "]"
		}
	case f.Kind == datum.ObjectKind && v.Kind == expr.ValueLiteral && v.Scalar != nil && f.Name != "": // not an element of a list
		return shorthandHint(v.Scalar, f.Spec, name)
	case f.Kind == datum.ObjectKind && v.Kind == expr.ValueList && f.Spec != nil && len(f.Spec.Names()) > 0:
		return "write a mapping: {" + f.Spec.Names()[0] + ": …}"
	case (f.Kind == datum.MapKind || f.Kind == datum.AnyKind && f.ExprKind == datum.MapKind) && v.Kind == expr.ValueList && len(v.Elems) > 0:
		if name, ok := v.Elems[0].Scalar.(string); ok && v.Elems[0].Kind == expr.ValueLiteral {
			return "write a mapping: {" + name + ": null}"
		}
	}
	return ""
}

// shorthandHint returns the mapping that one word probably means: its first field that accepts the word.
func shorthandHint(data any, s *spec.Spec, name string) string {
	if s == nil {
		return ""
	}
	if _, isBool := data.(bool); isBool {
		return ""
	}
	if text, ok := data.(string); ok && (strings.ContainsFunc(text, unicode.IsSpace) || text == "") {
		return ""
	}
	for _, f := range s.Fields {
		written := ""
		switch _, number := data.(int); {
		case number && f.Kind == datum.RateKind:
			written = datum.Plainly(data) + "/s"
		case number && f.Kind == datum.DurationKind:
			written = datum.Plainly(data) + "s"
		default:
			if f.Holds(data) {
				written = datum.Plainly(data)
			}
		}
		if written != "" {
			return fmt.Sprintf("write %s: {%s: %s}", name, f.Name, written)
		}
	}
	return ""
}

// exprBelowHint returns where to put an expression that replaces a mapping.
func exprBelowHint(f *spec.Field, name string) string {
	if f.Kind != datum.ObjectKind {
		return ""
	}
	for _, below := range f.Spec.Fields {
		if below.IsValue {
			return fmt.Sprintf("write it below: %s: {%s: …}", name, below.Name)
		}
	}
	return ""
}

// What a duration, a rate or a name looks like in other tools.
var (
	looseDuration = regexp.MustCompile(`(?i)^(?:pt)?([0-9]+(?:\.[0-9]+)?)\s*(ms|msecs?|millis|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)$`)
	looseRate     = regexp.MustCompile(`(?i)^([0-9]+(?:\.[0-9]+)?)\s*(?:/|per|a|rp|qp|tp)\s*(s|m|h|sec|second|min|minute|hr|hour)$`)
	looseName     = regexp.MustCompile(`[^A-Za-z0-9_-]+`)
	spokenPeriods = map[string]string{"secondly": "1s", "minutely": "1m", "hourly": "1h", "daily": "1d", "weekly": "1w"}
)

// scalarHint returns how to write a text that has the wrong form.
func scalarHint(text string, f *spec.Field, kind datum.Kind) string {
	switch {
	case kind == datum.BoolKind && (strings.EqualFold(text, "true") || strings.EqualFold(text, "false")):
		return "write " + strings.ToLower(text) + ", without quotes"
	case kind == datum.IntKind || kind == datum.FloatKind:
		if data, _ := source.PlainScalar(text); !isText(data) && data != nil {
			return "write " + text + ", without quotes"
		}
	case kind == datum.DurationKind:
		if _, err := datum.ParseDuration(text); err == nil {
			return "" // too short or too long
		}
		if period := spokenPeriods[strings.ToLower(text)]; period != "" {
			return "write " + period
		}
		if m := looseDuration.FindStringSubmatch(text); m != nil {
			return "write " + m[1] + shortUnit(m[2])
		}
	case kind == datum.RateKind:
		if _, err := datum.ParseRate(text); err == nil {
			return ""
		}
		if m := looseRate.FindStringSubmatch(text); m != nil {
			return "write " + m[1] + "/" + shortUnit(m[2])
		}
	case f.Pattern == "id":
		return nameHint(text)
	case f.Pattern == "class":
		return diag.DidYouMean(text, []string{"timeout", "deadline", "connection", "credentials", "certificate", "schema", "5xx", "4xx", "other", "any"}, "")
	}
	return ""
}

// isEllipsis reports whether data is the dots of a copied listing.
func isEllipsis(data any) bool { return data == "..." || data == "…" }

func isText(data any) bool { _, ok := data.(string); return ok }

// shortUnit returns the unit of time in our syntax.
func shortUnit(unit string) string {
	unit = strings.ToLower(unit)
	if strings.HasPrefix(unit, "ms") || strings.HasPrefix(unit, "mil") {
		return "ms"
	}
	return unit[:1]
}

// nameHint returns a valid name that resembles a text.
func nameHint(text string) string {
	name := strings.Trim(looseName.ReplaceAllString(text, "-"), "-_")
	if !datum.TextForms["id"].Expr.MatchString(name) ||
		slices.ContainsFunc([]rune(text), func(r rune) bool { return r > 0x7f && unicode.IsLetter(r) }) {
		return ""
	}
	return "write " + name
}
