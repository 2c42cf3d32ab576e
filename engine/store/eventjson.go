package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// storedEvent is the stored form of a [model.Event]. It has short names and omits zero values.
type storedEvent struct {
	ID          string          `json:"id"`
	Source      string          `json:"source,omitempty"`
	Type        string          `json:"type"`
	Time        time.Time       `json:"time,omitzero"`
	Key         string          `json:"key,omitempty"`
	Labels      string          `json:"labels,omitempty"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	At          time.Time       `json:"at,omitzero"`
	Tolerance   time.Duration   `json:"tolerance,omitempty"`
	Priority    int             `json:"priority,omitempty"`
	Identity    string          `json:"identity,omitempty"`
	Hops        int             `json:"hops,omitempty"`
	ChainSince  time.Time       `json:"chain_since,omitzero"`
	TraceParent string          `json:"traceparent,omitempty"`
	TraceState  string          `json:"tracestate,omitempty"`
	Inner       bool            `json:"inner,omitempty"`
	Rerun       *model.Rerun    `json:"rerun,omitempty"`
	Start       json.RawMessage `json:"start,omitempty"`
}

// EncodeEvent encodes an event for a store. [DecodeEvent] restores the kind of each number: 100.0
// does not become 100. The error names the part of the payload that is not data.
func EncodeEvent(e model.Event) ([]byte, error) {
	payload, err := EncodePayload(e)
	if err != nil {
		return nil, err
	}
	o := object{make([]byte, 0, 256+len(payload))}
	o.b = datum.AppendText(append(o.b, `{"id":`...), e.ID)
	o.text("source", e.Source)
	o.b = datum.AppendText(append(o.b, `,"type":`...), e.Type)
	o.time("time", e.Time)
	o.text("key", e.Key)
	o.text("labels", e.Labels)
	o.json("payload", payload)
	o.time("at", e.At)
	o.number("tolerance", int(e.DelayTolerance))
	o.number("priority", e.Priority)
	o.text("identity", e.Identity)
	o.number("hops", e.Hops)
	o.time("chain_since", e.ChainSince)
	o.text("traceparent", e.TraceParent)
	o.text("tracestate", e.TraceState)
	if e.Inner {
		o.json("inner", []byte("true"))
	}
	if e.Rerun != nil {
		rerun, err := json.Marshal(e.Rerun)
		if err != nil {
			return nil, fmt.Errorf("rerun of event %q: %w", e.ID, err)
		}
		o.json("rerun", rerun)
	}
	o.json("start", e.Start)
	return append(o.b, '}'), nil
}

// An object is a JSON object that is written member by member. Zero values are left out.
type object struct{ b []byte }

func (o *object) name(name string) { o.b = append(append(append(o.b, `,"`...), name...), `":`...) }

func (o *object) text(name, text string) {
	if text != "" {
		o.name(name)
		o.b = datum.AppendText(o.b, text)
	}
}

func (o *object) number(name string, n int) {
	if n != 0 {
		o.name(name)
		o.b = strconv.AppendInt(o.b, int64(n), 10)
	}
}

func (o *object) time(name string, t time.Time) {
	if !t.IsZero() {
		o.name(name)
		o.b = datum.AppendTime(o.b, t)
	}
}

func (o *object) json(name string, value []byte) {
	if len(value) > 0 {
		o.name(name)
		o.b = append(o.b, value...)
	}
}

// EncodePayload encodes the payload of an event. [DecodePayload] restores it.
func EncodePayload(e model.Event) ([]byte, error) {
	payload, err := appendData(nil, e.Payload)
	if err != nil {
		return nil, fmt.Errorf("%w: payload of event %q: %w", ErrRefused, e.ID, err)
	}
	return payload, nil
}

// event returns a stored event without its payload.
func (s *storedEvent) event() model.Event {
	return model.Event{
		ID: s.ID, Source: s.Source, Type: s.Type, Time: s.Time, Key: s.Key, Labels: s.Labels,
		At: s.At, DelayTolerance: s.Tolerance, Priority: s.Priority, Identity: s.Identity, Inner: s.Inner,
		Hops: s.Hops, ChainSince: s.ChainSince, TraceParent: s.TraceParent, TraceState: s.TraceState,
		Rerun: s.Rerun, Start: s.Start,
	}
}

// skipped is a JSON value that is ignored.
type skipped struct{}

// UnmarshalJSON implements [json.Unmarshaler].
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// DecodeBrief is [DecodeEvent] without the parts that can be large: the payload and the start of a
// rerun.
func DecodeBrief(data []byte) (model.Event, error) {
	var s struct {
		storedEvent

		Payload skipped `json:"payload"`
		Start   skipped `json:"start"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return model.Event{}, fmt.Errorf("stored event: %w", err)
	}
	return s.event(), nil
}

// largeEvent is how long a stored event is at least that [DecodeClaimed] does not decode, in bytes.
const largeEvent = 16 << 10

// DecodeClaimed is [DecodeEvent] for a claimed run. A large event may take many times its length when it is
// decoded. Of such an event, it returns what [DecodeBrief] does, and the stored form.
func DecodeClaimed(data []byte) (e model.Event, stored []byte, err error) {
	if len(data) < largeEvent {
		e, err = DecodeEvent(data)
		return e, nil, err
	}
	e, err = DecodeBrief(data)
	return e, data, err
}

// DecodeEvent reads what [EncodeEvent] wrote.
func DecodeEvent(data []byte) (model.Event, error) {
	var s storedEvent
	if err := json.Unmarshal(data, &s); err != nil {
		return model.Event{}, fmt.Errorf("stored event: %w", err)
	}
	e := s.event()
	var err error
	if e.Payload, err = DecodePayload(s.Payload); err != nil {
		return model.Event{}, fmt.Errorf("stored event %q: %w", s.ID, err)
	}
	return e, nil
}

// DecodePayload reads what [EncodePayload] wrote.
func DecodePayload(data []byte) (payload any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&payload); err != nil {
		return nil, err
	}
	return exactNumbers(payload)
}

// ReplaceData replaces the payload of a stored event and the start of its rerun, which may be empty.
func ReplaceData(stored []byte, replace func(payload, start json.RawMessage) (p, s json.RawMessage, err error)) ([]byte, error) {
	var s storedEvent
	err := json.Unmarshal(stored, &s)
	if err == nil {
		s.Payload, s.Start, err = replace(s.Payload, s.Start)
	}
	if err != nil {
		return nil, fmt.Errorf("stored event %q: %w", s.ID, err)
	}
	return json.Marshal(s)
}

// appendData encodes data. A float64 always looks like one.
func appendData(b []byte, data any) ([]byte, error) {
	switch v := data.(type) {
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case float64:
		return appendFloat(b, v)
	case []any:
		return appendList(b, v)
	case map[string]any:
		return appendMap(b, v)
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		return datum.AppendText(b, v), nil
	default:
		return nil, fmt.Errorf("a %T is no data; want null, bool, int, float64, string, list or map", v)
	}
}

func appendFloat(b []byte, v float64) ([]byte, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, fmt.Errorf("the number %v has no JSON form", v)
	}
	from := len(b)
	b = strconv.AppendFloat(b, v, 'g', -1, 64)
	if !bytes.ContainsAny(b[from:], ".e") {
		b = append(b, ".0"...)
	}
	return b, nil
}

func appendList(b []byte, list []any) (_ []byte, err error) {
	b = append(b, '[')
	for i, item := range list {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendData(b, item); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, m map[string]any) (_ []byte, err error) {
	b = append(b, '{')
	first := true
	for name, item := range m {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(datum.AppendText(b, name), ':')
		if b, err = appendData(b, item); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// exactNumbers converts each json.Number, in place if possible.
func exactNumbers(data any) (_ any, err error) {
	switch v := data.(type) {
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return strconv.ParseFloat(v.String(), 64)
		}
		return strconv.Atoi(v.String())
	case []any:
		for i := range v {
			if v[i], err = exactNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range v {
			if v[name], err = exactNumbers(v[name]); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}

// MergeShared sets names of an entity's shared state. See [model.Change.Shared]. Both arguments are
// JSON objects, and each may be empty.
func MergeShared(object, names []byte) ([]byte, error) {
	if len(names) == 0 {
		return object, nil
	}
	if len(object) == 0 {
		return names, nil
	}
	var all, some map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(object, &all), json.Unmarshal(names, &some)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	maps.Copy(all, some)
	return json.Marshal(all)
}
