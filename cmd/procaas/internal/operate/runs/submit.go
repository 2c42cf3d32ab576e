package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/dsl/datum"
	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/model"
)

func submitCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "submit [FILE|-]",
		Short: "Submit an event to a server",
		Long: `submit sends one event, a JSON array of events, or one event per line (NDJSON), and
prints the results. It reads a file or standard input, or makes an event from flags.
It sends lines in arrays of up to 1000 events. If a line is not an event, submit
reports it and sends nothing.

With --wait, submit waits for the end of the run of a single event, and prints the
result. It exits with 1 if the run did not succeed, and with 3 if the run has not ended
in time. The run then continues.`,
		Example: `  procaas submit --type new-order-created --payload '{"order-id": "o-1"}'
  procaas submit event.json
  procaas submit event.json --wait=30s
  jq -c '.[]' events.json | procaas submit -`,
		Args: cobra.MaximumNArgs(1),
	}
	cli.ServerFlags(c)
	var e struct{ Type, ID, Source, Key, Payload string }
	c.Flags().StringVar(&e.Type, "type", "", "type of the event")
	c.Flags().StringVar(&e.ID, "id", "", "id of the event; the server accepts each id once")
	c.Flags().StringVar(&e.Source, "source", "", "sender of the event")
	c.Flags().StringVar(&e.Key, "key", "", "key of the entity, if the flow has no key expression")
	labels := c.Flags().StringArray("label", nil, "label to find the run by, such as city=berlin; repeat it for several")
	c.Flags().StringVar(&e.Payload, "payload", "", "payload as JSON")
	wait := c.Flags().Duration("wait", 0, "wait for the end of the run, and print its result; 1m when no time is said")
	c.Flags().Lookup("wait").NoOptDefVal = "1m"
	return cli.Calls(c, func(q *cli.Call) error {
		if *wait < 0 {
			return cli.Usagef("--wait needs a time of 0s or more, such as --wait=30s, have %s", *wait)
		}
		var bodies []json.RawMessage
		var err error
		switch {
		case len(q.Args) == 1 && *wait > 0 && isTime(q.Args[0]):
			return cli.Usagef("want the time behind an equals sign: --wait=%s", q.Args[0])
		case len(q.Args) == 1 && e.Type != "":
			return cli.Usagef("submit takes a file or --type, not both")
		case len(q.Args) == 1:
			bodies, err = readEvents(q.Streams, q.Args[0])
		case e.Type != "":
			bodies = make([]json.RawMessage, 1)
			bodies[0], err = eventJSON(e.Type, e.ID, e.Source, e.Key, e.Payload, *labels)
		default:
			return cli.Usagef("submit needs a file, - or --type")
		}
		if err != nil {
			return err
		}
		if *wait > 0 && len(bodies) == 1 {
			return submitAndWait(q, bodies[0], *wait)
		}
		if *wait > 0 {
			return cli.Usagef("--wait takes a single event, have many")
		}
		var refused error
		for _, body := range bodies {
			reply, err := q.Submit(q.Ctx, body)
			if err != nil {
				return err
			}
			if err := q.PrintJSON(reply); err != nil {
				return err
			}
			refused = cmp.Or(refused, refusedEvents(reply))
			if refused != nil && !errors.Is(refused, cli.ErrFindings) {
				return refused
			}
		}
		return refused
	})
}

// Limits of an array that submit makes of lines: the defaults of the server.
const (
	mostLines     = 1000
	mostLineBytes = 1000 << 10
)

// readEvents reads events as request bodies. It combines lines of JSON to arrays, and sends other JSON
// unchanged.
func readEvents(s cli.Streams, name string) (bodies []json.RawMessage, err error) {
	data, err := s.Input(name)
	if err != nil || json.Valid(data) {
		return []json.RawMessage{data}, err
	}
	var array []byte
	held, number := 0, 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimRight(line, " \t\r\n")
		if len(line) == 0 {
			continue
		}
		fault := datum.FindJSONFault(line)
		switch {
		case fault != nil && held == 0: // not one of several lines
			fault = datum.FindJSONFault(data)
		case fault != nil:
			fault.Line = number
		case bytes.TrimLeft(line, " \t")[0] != '{':
			fault = &datum.JSONFault{TextPlace: datum.TextPlace{Line: number, Column: 1}, Problem: "want an event, have other JSON"}
		}
		if fault != nil {
			return nil, cli.Usagef("%s, %v; want one event, a JSON array of events, or one event on each line", name, fault)
		}
		if held == mostLines || held > 0 && len(array)+len(line) > mostLineBytes {
			bodies, array, held = append(bodies, append(array, ']')), nil, 0
		}
		array = append(append(array, "[,"[min(held, 1)]), line...)
		held++
	}
	if held == 0 {
		return nil, cli.Usagef("%s is empty; want one event, a JSON array of events, or one event on each line", name)
	}
	return append(bodies, append(array, ']')), nil
}

// refusedEvents returns cli.ErrFindings if some events of an array were refused.
func refusedEvents(reply json.RawMessage) error {
	var receipts wire.Receipts
	if err := json.Unmarshal(reply, &receipts); err != nil {
		return fmt.Errorf("read the reply: %w", err)
	}
	return cli.FindingsIf(slices.ContainsFunc(receipts.Items, func(i wire.ReceiptItem) bool { return i.Error != nil }))
}

func eventJSON(kind, id, source, key, payload string, labels []string) ([]byte, error) {
	event := map[string]any{"type": kind}
	if pairs, err := model.ParseLabels(strings.Join(labels, ",")); err != nil {
		return nil, cli.Usagef("--label: %w", err)
	} else if len(pairs) > 0 {
		event["labels"] = pairs
	}
	for name, value := range map[string]string{"id": id, "source": source, "key": key} {
		if value != "" {
			event[name] = value
		}
	}
	if payload != "" {
		if fault := datum.FindJSONFault([]byte(payload)); fault != nil {
			return nil, cli.Usagef("--payload %s is not JSON: %v; write text in double quotes, and the whole payload in single quotes", payload, fault)
		}
		event["payload"] = json.RawMessage(payload)
	}
	return json.Marshal(event)
}
