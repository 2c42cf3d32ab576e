package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// messagesOfClients are the schemas of the API that the clients have types for, by the names that the clients give them.
var messagesOfClients = map[string]string{
	"Event": "Event", "Receipt": "Receipt", "ReceiptItem": "ReceiptItem", "Result": "Result", "Problem": "ProblemDetails", "Fault": "Fault",
	"RunView": "Run", "EventView": "RunEvent", "HandlerView": "RunHandler", "ItemsView": "RunItems", "ItemError": "ItemError",
	"NotUndone": "NotUndone", "Task": "Task", "TaskReceipt": "TaskReceipt", "QueuedTask": "QueuedTask",
}

// aboutMessages says in a sentence what each is.
var aboutMessages = map[string]string{
	"Event": "starts a run.", "Receipt": "says which run an event has started.", "ReceiptItem": "is the outcome of one event of several.",
	"Result": "says how the run of an event has ended.", "ProblemDetails": "is the body of an error.", "Fault": "is an error with its location.",
	"Run": "is a run as it is now.", "RunEvent": "is the event of a run.", "RunHandler": "is the outcome of a handler in a run.",
	"RunItems": "counts the elements of a loop.", "ItemError": "is the error of one element.", "NotUndone": "is a compensation that has failed.",
	"Task": "is work for a queue.", "TaskReceipt": "is the outcome of putting a task.", "QueuedTask": "is a task as a worker gets it.",
}

// A schemaOfMessage is the part of JSON Schema that the messages use.
type schemaOfMessage struct {
	Ref         string                     `json:"$ref"`
	Type        any                        `json:"type"` // a name, or a list with null
	Format      string                     `json:"format"`
	Description string                     `json:"description"`
	Enum        []string                   `json:"enum"`
	Items       *schemaOfMessage           `json:"items"`
	OneOf       []schemaOfMessage          `json:"oneOf"`
	Values      json.RawMessage            `json:"additionalProperties"` // false, or a schema
	Properties  map[string]schemaOfMessage `json:"properties"`
	Required    []string                   `json:"required"`
}

// kind names the type of a value: that of JSON, or ref, time, duration, any or labels.
func (s *schemaOfMessage) kind() (kind string, nullable bool) {
	kind, _ = s.Type.(string)
	if list, ok := s.Type.([]any); ok {
		kind, nullable = list[0].(string), true
	}
	switch {
	case s.Ref != "":
		kind = "ref"
	case len(s.OneOf) > 0:
		kind = "duration"
	case s.Format == "date-time":
		kind = "time"
	case kind == "object" && bytes.Contains(s.Values, []byte("string")):
		kind = "labels"
	case kind == "":
		kind = "any"
	}
	return kind, nullable
}

func (s *schemaOfMessage) ref() string {
	return messagesOfClients[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
}

// A writerOfMessages writes the types of one language.
type writerOfMessages struct {
	file string
	head string
	one  func(out *bytes.Buffer, name string, s *schemaOfMessage)
}

// TestMessagesOfClients keeps the types of the clients those of the API. -update writes them anew.
func TestMessagesOfClients(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../schemas/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(data, &api); err != nil {
		t.Fatal(err)
	}
	for _, w := range []writerOfMessages{
		{"go/messages.go", "// Code generated from schemas/openapi.json by TestMessagesOfClients. DO NOT EDIT.\n\npackage procaas\n\n" +
			"import (\n\"encoding/json\"\n\"time\"\n)\n", goMessage},
		{"typescript/src/messages.ts", "// Generated from schemas/openapi.json by TestMessagesOfClients.\n", tsMessage},
		{"python/procaas/messages.py", "# Generated from schemas/openapi.json by TestMessagesOfClients.\n\"\"\"The messages of the API.\"\"\"\n\n" +
			"from typing import Any, Dict, List, Optional, TypedDict, Union\n", pythonMessage},
	} {
		out := bytes.NewBufferString(w.head)
		for _, name := range slices.Sorted(maps.Keys(messagesOfClients)) {
			var s schemaOfMessage
			if err := json.Unmarshal(api.Components.Schemas[name], &s); err != nil {
				t.Fatalf("the schema %s: %v", name, err)
			}
			w.one(out, messagesOfClients[name], &s)
		}
		text := out.Bytes()
		if strings.HasSuffix(w.file, ".go") {
			if text, err = format.Source(text); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join("../../clients", w.file)
		if *update {
			write(t, path, string(text))
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, text) {
			t.Errorf("%s is not what the API says; run go test ./cmd/procaas -run TestMessagesOfClients -update, and read the diff (%v)", path, err)
		}
	}
}

// members lists the names of the members of a message, without findings in pipelines: no call of the clients returns them.
func members(s *schemaOfMessage) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(name string) bool { return name == "diagnostics" })
}

// exported turns a name of JSON into one of Go.
func exported(name string) string {
	var out strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		if part == "id" {
			part = "ID"
		}
		out.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return out.String()
}

func article(name string) string {
	if strings.ContainsAny(name[:1], "AEIO") {
		return "An"
	}
	return "A"
}

func goMessage(out *bytes.Buffer, name string, s *schemaOfMessage) {
	fmt.Fprintf(out, "\n// %s %s %s\ntype %s struct {\n", article(name), name, aboutMessages[name], name)
	sent := name == "Event" || name == "Task"
	for i, member := range members(s) {
		p := s.Properties[member]
		if p.Description != "" {
			if i > 0 {
				out.WriteString("\n")
			}
			fmt.Fprintf(out, "// %s\n", p.Description)
		}
		omit := ",omitempty"
		if kind, _ := p.kind(); kind == "time" {
			omit = ",omitzero"
		}
		if slices.Contains(s.Required, member) {
			omit = ""
		}
		fmt.Fprintf(out, "%s %s `json:\"%s%s\"`\n", exported(member), goType(&p, sent, omit == ""), member, omit)
	}
	out.WriteString("}\n")
}

func goType(s *schemaOfMessage, sent, required bool) string {
	kind, nullable := s.kind()
	switch kind {
	case "ref":
		if required {
			return s.ref()
		}
		return "*" + s.ref()
	case "array":
		return "[]" + goType(s.Items, sent, true)
	case "time":
		if nullable {
			return "*time.Time"
		}
		return "time.Time"
	case "object":
		return "json.RawMessage"
	case "any":
		if sent {
			return "any"
		}
		return "json.RawMessage"
	}
	return map[string]string{
		"string": "string", "boolean": "bool", "integer": "int", "number": "float64", "duration": "Duration", "labels": "map[string]string",
	}[kind]
}

func tsMessage(out *bytes.Buffer, name string, s *schemaOfMessage) {
	fmt.Fprintf(out, "\n/** %s %s %s */\nexport interface %s {\n", article(name), name, aboutMessages[name], name)
	for _, member := range members(s) {
		p := s.Properties[member]
		if p.Description != "" {
			fmt.Fprintf(out, "  /** %s */\n", p.Description)
		}
		optional := "?"
		if slices.Contains(s.Required, member) {
			optional = ""
		}
		fmt.Fprintf(out, "  %s%s: %s;\n", member, optional, tsType(&p))
	}
	out.WriteString("}\n")
}

func tsType(s *schemaOfMessage) string {
	kind, nullable := s.kind()
	text := map[string]string{
		"string": "string", "boolean": "boolean", "integer": "number", "number": "number", "time": "string", "any": "unknown",
		"duration": "string | number", "labels": "Record<string, string>", "object": "Record<string, unknown>", "ref": s.ref(),
	}[kind]
	if kind == "array" {
		text = tsType(s.Items) + "[]"
	}
	if len(s.Enum) > 0 {
		text = "'" + strings.Join(s.Enum, "' | '") + "'"
	}
	if nullable {
		text += " | null"
	}
	return text
}

// pythonMessage writes a TypedDict. Its members may be absent, since Python 3.9 has no way to mark single ones.
func pythonMessage(out *bytes.Buffer, name string, s *schemaOfMessage) {
	fmt.Fprintf(out, "\n\nclass %s(TypedDict, total=False):\n    \"\"\"%s %s %s\"\"\"\n\n", name, article(name), name, aboutMessages[name])
	for _, member := range members(s) {
		p := s.Properties[member]
		if p.Description != "" {
			fmt.Fprintf(out, "    # %s\n", p.Description)
		}
		fmt.Fprintf(out, "    %s: %s\n", member, pythonType(&p))
	}
}

func pythonType(s *schemaOfMessage) string {
	kind, nullable := s.kind()
	text := map[string]string{
		"string": "str", "boolean": "bool", "integer": "int", "number": "float", "time": "str", "any": "Any",
		"duration": "Union[str, float]", "labels": "Dict[str, str]", "object": "Dict[str, Any]", "ref": `"` + s.ref() + `"`,
	}[kind]
	if kind == "array" {
		text = "List[" + pythonType(s.Items) + "]"
	}
	if nullable {
		text = "Optional[" + text + "]"
	}
	return text
}
