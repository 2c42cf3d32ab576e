package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"procaas/engine/api/client"
	"procaas/engine/api/wire"

	"github.com/spf13/cobra"
)

// clientFlags say which server a command talks to.
type clientFlags struct {
	server, token, adminToken string
}

func (f *clientFlags) add(c *cobra.Command) {
	c.PersistentFlags().StringVar(&f.server, "server", "http://127.0.0.1:8080", "address of the server")
	c.PersistentFlags().StringVar(&f.token, "token", "", "bearer token to call it with; see procaas token")
	c.PersistentFlags().StringVar(&f.adminToken, "admin-token", "", "the same")
	_ = c.PersistentFlags().MarkHidden("admin-token") // PROCAAS_ADMIN_TOKEN serves a server and those who call it
}

func (f *clientFlags) client() *client.Client {
	return client.New(f.server, cmp.Or(f.token, f.adminToken))
}

func submitCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "submit [FILE|-]",
		Short: "Submit an event to a server",
		Long: `submit sends one event, a JSON array of events, or one event a line (NDJSON), and
prints what became of it. Events are read from a file or from standard input, or made
from flags. Lines are sent in arrays of up to 1000 events; the first that is no event
is refused, and nothing is sent.`,
		Example: `  procaas submit --type new-order-created --payload '{"order-id": "o-1"}'
  procaas submit event.json
  jq -c '.[]' events.json | procaas submit -`,
		Args: cobra.MaximumNArgs(1),
	}
	var f clientFlags
	f.add(c)
	var e struct{ Type, ID, Source, Key, Payload string }
	c.Flags().StringVar(&e.Type, "type", "", "type of the event")
	c.Flags().StringVar(&e.ID, "id", "", "id of the event; the same id is accepted once")
	c.Flags().StringVar(&e.Source, "source", "", "who sends the event")
	c.Flags().StringVar(&e.Key, "key", "", "key of the entity, when the flow has no key expression")
	c.Flags().StringVar(&e.Payload, "payload", "", "payload as JSON")
	c.RunE = func(c *cobra.Command, args []string) error {
		var bodies []json.RawMessage
		var err error
		switch {
		case len(args) == 1 && e.Type != "":
			return usagef("submit takes a file or --type, not both")
		case len(args) == 1:
			bodies, err = readEvents(s, args[0])
		case e.Type != "":
			bodies = make([]json.RawMessage, 1)
			bodies[0], err = eventJSON(e.Type, e.ID, e.Source, e.Key, e.Payload)
		default:
			return usagef("submit needs a file, - or --type")
		}
		if err != nil {
			return err
		}
		var refused error
		for _, body := range bodies {
			reply, err := f.client().Submit(c.Context(), body)
			if err != nil {
				return err
			}
			if err := printJSON(s.out, reply); err != nil {
				return err
			}
			if refused = cmp.Or(refused, refusedEvents(reply)); refused != nil && !errors.Is(refused, errFindings) {
				return refused
			}
		}
		return refused
	}
	return c
}

// The bounds of an array that submit makes of lines: those of the server's defaults.
const (
	mostLines     = 1000
	mostLineBytes = 1000 << 10
)

// readEvents reads what is to be sent, as bodies of requests: JSON as it is, and lines of it
// as arrays.
func readEvents(s streams, name string) (bodies []json.RawMessage, err error) {
	data, err := readInput(s, name)
	if err != nil || json.Valid(data) {
		return []json.RawMessage{data}, err
	}
	var array []byte
	held, number := 0, 0
	for line := range bytes.Lines(data) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, new(map[string]json.RawMessage)); err != nil {
			var wrong *json.SyntaxError
			if held == 0 && errors.As(json.Unmarshal(data, new(any)), &wrong) { // it is no line of many
				number = 1 + bytes.Count(data[:wrong.Offset-1], []byte("\n"))
				err = wrong
			}
			return nil, usagef("%s, line %d: %w; want one event, a JSON array of events, or one event on each line", name, number, err)
		}
		if held == mostLines || held > 0 && len(array)+len(line) > mostLineBytes {
			bodies, array, held = append(bodies, append(array, ']')), nil, 0
		}
		array = append(append(array, "[,"[min(held, 1)]), line...)
		held++
	}
	if held == 0 {
		return nil, usagef("%s is empty; want one event, a JSON array of events, or one event on each line", name)
	}
	return append(bodies, append(array, ']')), nil
}

// refusedEvents is errFindings when an array of events was taken in part only.
func refusedEvents(reply json.RawMessage) error {
	var receipts wire.Receipts
	if err := json.Unmarshal(reply, &receipts); err != nil {
		return fmt.Errorf("read the reply: %w", err)
	}
	if slices.ContainsFunc(receipts.Items, func(i wire.ReceiptItem) bool { return i.Error != nil }) {
		return errFindings
	}
	return nil
}

func eventJSON(kind, id, source, key, payload string) ([]byte, error) {
	event := map[string]any{"type": kind}
	for name, value := range map[string]string{"id": id, "source": source, "key": key} {
		if value != "" {
			event[name] = value
		}
	}
	if payload != "" {
		if !json.Valid([]byte(payload)) {
			return nil, usagef("--payload is not JSON: %s", payload)
		}
		event["payload"] = json.RawMessage(payload)
	}
	return json.Marshal(event)
}

// readInput reads a file, or standard input for "-".
func readInput(s streams, name string) ([]byte, error) {
	in := s.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError{err}
		}
		defer f.Close()
		in = f
	}
	data, err := readAtMost(in, maxInput)
	if err != nil {
		return nil, usagef("%s: %w", name, withoutPath(err))
	}
	return data, nil
}

func printJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}
