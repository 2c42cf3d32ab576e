package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"procaas/engine/api"
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

func (f *clientFlags) client() *api.Client {
	return api.NewClient(f.server, cmp.Or(f.token, f.adminToken))
}

func submitCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "submit [FILE|-]",
		Short: "Submit an event to a server",
		Long: `submit sends one event, or a JSON array of events, and prints what became of it.
The event is read from a file or from standard input, or made from flags.`,
		Example: `  procaas submit --type new-order-created --payload '{"order-id": "o-1"}'
  procaas submit event.json`,
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
		var body []byte
		var err error
		switch {
		case len(args) == 1 && e.Type != "":
			return usagef("submit takes a file or --type, not both")
		case len(args) == 1:
			body, err = readInput(s, args[0])
		case e.Type != "":
			body, err = eventJSON(e.Type, e.ID, e.Source, e.Key, e.Payload)
		default:
			return usagef("submit needs a file, - or --type")
		}
		if err != nil {
			return err
		}
		reply, err := f.client().Submit(c.Context(), body)
		if err != nil {
			return err
		}
		if err := printJSON(s.out, reply); err != nil {
			return err
		}
		return refusedEvents(reply)
	}
	return c
}

// refusedEvents is errFindings when an array of events was taken in part only.
func refusedEvents(reply json.RawMessage) error {
	var receipts api.Receipts
	if err := json.Unmarshal(reply, &receipts); err != nil {
		return fmt.Errorf("read the reply: %w", err)
	}
	if slices.ContainsFunc(receipts.Items, func(i api.ReceiptItem) bool { return i.Error != nil }) {
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
