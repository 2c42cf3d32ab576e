package source

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// Event parses an event in JSON: {"type", "id", "source", "key", "payload"}. All members are optional.
func Event(data []byte) (model.Event, error) {
	var e model.Event
	value, err := datum.ParseJSON(data)
	if err != nil {
		return e, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return e, fmt.Errorf(`want an object such as {"key": "o-1", "payload": {}}`)
	}
	texts := map[string]*string{"type": &e.Type, "id": &e.ID, "source": &e.Source, "key": &e.Key}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name == "payload" {
			e.Payload = fields[name]
			continue
		}
		into, known := texts[name]
		if !known {
			return e, fmt.Errorf("unknown field %q; an event has %s and payload", name, strings.Join(slices.Sorted(maps.Keys(texts)), ", "))
		}
		*into, ok = fields[name].(string)
		if !ok {
			return e, fmt.Errorf("field %q: want a string", name)
		}
	}
	return e, nil
}
