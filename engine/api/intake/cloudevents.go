package intake

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"procaas/dsl/datum"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	engineintake "procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/tracing"
)

// CloudEvents 1.0 over HTTP are read by hand from strict JSON. A lenient reader, which takes the
// last of two equal names or stops after the first value, would let one request mean two things.

// ceHeader is the prefix of headers with attributes, in net/http's form.
const ceHeader = "Ce-"

// extensionName is what the specification allows as a name of an attribute.
var extensionName = regexp.MustCompile(`^[a-z0-9]+$`)

// isBinary reports whether a request has one event in its headers.
func isBinary(h http.Header) bool {
	if media := h.Get("Content-Type"); strings.HasPrefix(strings.ToLower(media), "application/cloudevents") {
		return false
	}
	for name := range h {
		if strings.HasPrefix(name, ceHeader) {
			return true
		}
	}
	return false
}

// decodeCloudEvent decodes the structured mode, and decodeCloudBatch the batched one.
func decodeCloudEvent(body []byte) (submission, error) { return decodeCloudEvents(body, false) }
func decodeCloudBatch(body []byte) (submission, error) { return decodeCloudEvents(body, true) }

func decodeCloudEvents(body []byte, many bool) (submission, error) {
	v, err := rest.Parse(body)
	if err != nil {
		return submission{}, err
	}
	if _, isList := v.([]any); isList != many {
		want := "an object, or the Content-Type " + mediaCloudBatch
		if many {
			want = "an array, or the Content-Type " + mediaCloudEvent
		}
		return submission{}, problem.New(problem.InvalidBody, "want %s, have %s", want, datum.JSONKind(v))
	}
	return decodeList(v, structuredEvent, dataPointerOf)
}

// dataPointerOf is pointerOf for the names of CloudEvents.
func dataPointerOf(field string) string {
	if rest, ok := strings.CutPrefix(field, "payload"); ok {
		return pointerOf("data" + rest)
	}
	return pointerOf(attributeOf(field))
}

// attributeOf returns the attribute for a field of the event.
func attributeOf(field string) string {
	switch field {
	case "key":
		return "partitionkey"
	case "delay_tolerance":
		return "delaytolerance"
	}
	return field
}

// structuredEvent reads an event whose attributes and data are members of one object.
func structuredEvent(f *rest.Fields) model.Event {
	contentType := f.Text("datacontenttype")
	if contentType != "" && !rest.IsJSON(contentType) {
		f.Fault("datacontenttype", "want a type of JSON, such as application/json, have %q: the data is what expressions read", contentType)
	}
	data, encoded := f.Get("data"), f.Get("data_base64")
	switch text, isText := encoded.(string); {
	case encoded == nil:
	case data != nil:
		f.Fault("data_base64", "want either data or data_base64, have both")
	case !isText:
		f.Fault("data_base64", "want a string, have %s", datum.JSONKind(encoded))
	default:
		data = decoded(f, text)
	}
	return cloudEvent(f, data)
}

// decoded decodes a JSON value in base64.
func decoded(f *rest.Fields, text string) any {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		f.Fault("data_base64", "want base64: %v", err)
		return nil
	}
	data, err := rest.Parse(raw)
	if err != nil {
		f.Fault("data_base64", "want JSON within the base64: %v", err)
		return nil
	}
	return data
}

// cloudEvent reads the attributes, which are the same in all modes.
func cloudEvent(f *rest.Fields, data any) model.Event {
	if v := f.Required("specversion"); v != "" && v != "1.0" {
		f.Fault("specversion", "want 1.0, have %q", v)
	}
	e := model.Event{
		ID:             f.Required("id"),
		Source:         f.Required("source"),
		Type:           f.Required("type"),
		Time:           f.Instant("time"),
		Payload:        data,
		At:             f.Instant("at"),
		DelayTolerance: f.Duration("delaytolerance"),
		Priority:       f.Integer("priority"),
	}
	e.TraceParent, e.TraceState = tracing.Context(f.Text("traceparent"), f.Text("tracestate"))
	if labels, err := model.ParseLabels(f.Text("labels")); err != nil {
		f.Fault("labels", "%s", err)
	} else {
		e.Labels, _ = model.FormatLabels(labels) // checked already
	}
	e.Key = f.Text("partitionkey")
	if subject := f.Text("subject"); e.Key == "" {
		e.Key = subject
		if len(subject) > engineintake.MaxKey {
			f.Fault("subject", "want at most %d bytes, have %d, because it is the key: add the attribute partitionkey, which is the key then",
				engineintake.MaxKey, len(subject))
		}
	}
	f.Text("dataschema") // it must be text, and is not used
	for _, name := range f.Unknown() {
		if !extensionName.MatchString(name) {
			f.Fault(name, "want an attribute named with lower-case letters and digits only; %s", f.Suggest(name))
			continue
		}
		switch v := f.Value(name).(type) {
		case map[string]any, []any, float64:
			f.Fault(name, "want an extension that is a string, a boolean or a whole number, have %s", datum.JSONKind(v))
		}
	}
	return e
}

// decodeBinary decodes the binary mode: attributes in headers, data in the body.
func decodeBinary(h http.Header, body []byte) (submission, error) {
	attributes := map[string]any{}
	f := rest.TextFields("header/ce-", attributes)
	for name, values := range h {
		attribute, ok := strings.CutPrefix(name, ceHeader)
		if !ok {
			continue
		}
		attribute = strings.ToLower(attribute)
		attributes[attribute] = headerText(values[0])
		if len(values) > 1 {
			f.Fault(attribute, "want the header once, have it %d times", len(values))
		}
	}
	for _, name := range []string{"data", "data_base64", "datacontenttype"} {
		if f.Get(name) != nil {
			f.Fault(name, "the data is the body, and its type the Content-Type")
		}
	}
	slices.SortFunc(f.Faults, func(a, b problem.Fault) int { return strings.Compare(a.Location, b.Location) })
	if t := h.Get("Content-Type"); t != "" && !rest.IsJSON(t) {
		return submission{}, problem.New(problem.UnsupportedMedia, "the data of the event is %s; want JSON, such as application/json: it is what "+
			"expressions read", t).
			With("Accept-Post", strings.Join([]string{rest.MediaJSON, mediaCloudEvent, mediaCloudBatch}, ", "))
	}
	var data any
	if len(body) > 0 {
		var err error
		if data, err = rest.Parse(body); err != nil {
			return submission{}, err
		}
	}
	f.Forget() // the three above are not attributes to suggest
	e := cloudEvent(f, data)
	in := submission{events: []engineintake.Submission{{Event: e}}, field: binaryPlaceOf}
	return in, problem.Body(f.Faults)
}

// binaryPlaceOf is pointerOf for the binary mode, whose body is the payload.
func binaryPlaceOf(field string) string {
	switch rest, ok := strings.CutPrefix(field, "payload"); {
	case ok && rest == "":
		return ""
	case ok:
		return pointerOf(strings.TrimPrefix(rest, "."))
	}
	return "header/ce-" + attributeOf(field)
}

// headerText decodes a header value: first double quotes, then percent signs. A percent sign that
// encodes nothing stays, and so does everything if the result is not UTF-8.
func headerText(v string) string {
	if n := len(v); n >= 2 && v[0] == '"' && v[n-1] == '"' {
		v = unquoted(v[1 : n-1])
	}
	if !strings.Contains(v, "%") {
		return v
	}
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] == '%' && i+2 < len(v) {
			if hi, lo := unhex(v[i+1]), unhex(v[i+2]); hi >= 0 && lo >= 0 {
				out, i = append(out, byte(hi<<4|lo)), i+2
				continue
			}
		}
		out = append(out, v[i])
	}
	if !utf8.Valid(out) {
		return v
	}
	return string(out)
}

// unquoted removes the backslashes within double quotes (RFC 9110, quoted-string).
func unquoted(v string) string {
	if !strings.Contains(v, `\`) {
		return v
	}
	var out strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) {
			i++
		}
		out.WriteByte(v[i])
	}
	return out.String()
}

// unhex returns the value of a hexadecimal digit, or -1.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
