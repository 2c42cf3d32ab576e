package outbound

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// CloudEventMedia is the content type of one event in the structured mode.
const CloudEventMedia = "application/cloudevents+json"

// A CloudEvent is an event of CloudEvents 1.0 whose data is JSON. Empty attributes are left out. A receiver recognises an
// event that comes again by its ID and Source.
type CloudEvent struct {
	ID, Source, Type string
	Subject          string
	Time             time.Time
	PartitionKey     string // orders events: those with the same key keep their order
	Data             any    // nil for none
}

func (e *CloudEvent) attributes() map[string]string {
	all := map[string]string{
		"specversion": "1.0", "id": e.ID, "source": e.Source, "type": e.Type, "subject": e.Subject, "partitionkey": e.PartitionKey,
	}
	if !e.Time.IsZero() {
		all["time"] = e.Time.UTC().Format(time.RFC3339Nano)
	}
	for name, value := range all {
		if value == "" {
			delete(all, name)
		}
	}
	return all
}

// Members returns the event as one object of JSON, which is the structured mode.
func (e *CloudEvent) Members() map[string]any {
	all := map[string]any{}
	for name, value := range e.attributes() {
		all[name] = value
	}
	if e.Data != nil {
		all["datacontenttype"], all["data"] = "application/json", e.Data
	}
	return all
}

// SetHeaders sets the attributes as headers, which is the binary mode. The body is the data then.
func (e *CloudEvent) SetHeaders(h http.Header) {
	for name, value := range e.attributes() {
		h.Set("Ce-"+name, escapeAttribute(value))
	}
}

// escapeAttribute escapes what the HTTP binding of CloudEvents wants escaped in a header.
func escapeAttribute(value string) string {
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(value[i])
	}
	return b.String()
}
