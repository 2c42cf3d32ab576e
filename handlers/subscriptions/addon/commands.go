package addon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"procaas/dsl/diag"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/engine/store"
	"procaas/handlers/subscriptions"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/remote"
)

func subscriptionsCommand(t addon.Tools) *cobra.Command {
	c := &cobra.Command{
		Use: "subscriptions", Short: "Look at subscriptions to brokers, and try them",
		Long: `subscriptions works with what files declare below subscriptions: each message of a
broker becomes an event. procaas switch hold subscriptions/ID stops the reading, and
procaas switch on subscriptions/ID lets it go on.`,
	}
	c.AddCommand(listCommand(), lettersCommand(), letterCommand(), changeCommand("retry", "Submit dead letters again by the present definition"),
		changeCommand("discard", "Forget dead letters"), testCommand(t))
	return c
}

func listCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List subscriptions, and how they are read", Args: cobra.NoArgs,
		Long: `list shows the subscriptions of a server. LAG counts the messages that were not acknowledged
a few seconds ago. DEAD counts those that could become no event. Below a subscription
stands why it is held or fails.`,
		Example: "  procaas subscriptions list",
	}
	cli.ServerFlags(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		all, err := remote.List(q.Ctx, q.Client)
		if err != nil {
			return err
		}
		return q.Show(cli.Items(all), func() error {
			err := cli.Table(q.Out, "SUBSCRIPTION\tBROKER\tFROM\tOWNER\tSTATE\tNODE\tLAG\tACCEPTED\tAGAIN\tIGNORED\tDEAD", all,
				func(s remote.Subscription) cli.Row {
					return cli.Row{
						s.ID, s.Broker, s.From, cli.Dash(s.Owner), s.State, cli.Dash(s.Node), s.Lag, s.Accepted, s.Duplicate, s.Ignored, s.DeadLetters,
					}
				})
			for _, s := range all {
				if s.Problem != "" {
					fmt.Fprintf(q.Out, "%s: %s\n", s.ID, s.Problem)
				}
			}
			return err
		})
	})
}

// examine finds subscriptions that are not read.
func examine(q *cli.Call) ([]store.Check, error) {
	all, err := remote.List(q.Ctx, q.Client)
	if err != nil {
		return nil, err
	}
	var found []store.Check
	for _, s := range all {
		if s.State == remote.Failing {
			found = append(found, store.Check{
				Name: "subscriptions", Level: store.CheckWarning, Found: fmt.Sprintf("subscription %s is not read: %s", s.ID, s.Problem),
				Remedy: "its messages stay in the broker, and the node goes on by itself: procaas docs runbook says what to look at",
			})
		}
	}
	if len(all) > 0 && len(found) == 0 {
		found = []store.Check{{Name: "subscriptions", Level: store.CheckFine, Found: diag.Plural(len(all), "subscription") + ", none of which fails"}}
	}
	return found, nil
}

func lettersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dead-letters SUBSCRIPTION", Short: "List messages that could become no event", Args: cobra.ExactArgs(1),
		Example: "  procaas subscriptions dead-letters orders",
	}
	cli.ServerFlags(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		all, err := remote.DeadLetters(q.Ctx, q.Client, q.Args[0])
		if err != nil {
			return err
		}
		return q.Show(cli.Items(all), func() error {
			return cli.Table(q.Out, "LETTER\tSUBJECT\tKEY\tSINCE\tBYTES\tREASON", all, func(x remote.DeadLetter) cli.Row {
				return cli.Row{x.ID, x.Subject, cli.Dash(x.Key), x.Since.UTC().Format(time.RFC3339), x.Bytes, x.Reason}
			})
		})
	})
}

func letterCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dead-letter SUBSCRIPTION LETTER", Short: "Show a message that could become no event", Args: cobra.ExactArgs(2),
		Example: "  procaas subscriptions dead-letter orders ORDERS/7",
	}
	cli.ServerFlags(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		m, err := remote.DeadLetterOf(q.Ctx, q.Client, q.Args[0], q.Args[1])
		if err != nil {
			return err
		}
		return q.Show(m, func() error {
			fmt.Fprintf(q.Out, "reason   %s\nsubject  %s\nkey      %s\nsent     %s\n",
				m.Reason, cli.Dash(m.Subject), cli.Dash(m.Key), m.Sent.UTC().Format(time.RFC3339))
			for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
				fmt.Fprintf(q.Out, "header   %s: %v\n", name, m.Headers[name])
			}
			switch {
			case m.Cut:
				fmt.Fprintf(q.Out, "body     not kept: it has %d bytes\n", m.Bytes)
			case m.Base64:
				fmt.Fprintf(q.Out, "body     no text; in Base64:\n%s\n", m.Body)
			default:
				fmt.Fprintf(q.Out, "body\n%s\n", m.Body)
			}
			return nil
		})
	})
}

func changeCommand(verb, short string) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " SUBSCRIPTION [LETTER...]", Short: short, Args: cobra.MinimumNArgs(1),
		Example: "  procaas subscriptions " + verb + " orders --all",
	}
	if verb == "retry" {
		c.Long = `retry submits dead letters again, in their order, by the definition that serves now. Those
that become events are dead letters no longer. Events of their keys that came later have
run already. It ends with 1 if some stay.`
	}
	cli.ServerFlags(c)
	var choice remote.Choice
	c.Flags().BoolVar(&choice.All, "all", false, "all dead letters of the subscription")
	reason := cli.Reason(c)
	return cli.Formatted(c, func(q *cli.Call) error {
		choice.IDs, choice.Reason = q.Args[1:], *reason
		if choice.All == (len(choice.IDs) > 0) {
			return cli.Usagef("%s needs dead letters, or --all; procaas subscriptions dead-letters %s lists them", verb, q.Args[0])
		}
		done, err := remote.Change(q.Ctx, q.Client, q.Args[0], verb, choice)
		if err != nil {
			return err
		}
		err = q.Show(done, func() error {
			fmt.Fprintf(q.Out, "%s: %d of %d\n", verb, done.Changed, done.Changed+done.Left)
			for _, why := range done.Reasons {
				fmt.Fprintf(q.Out, "  %s\n", why)
			}
			return nil
		})
		return cmp.Or(err, cli.FindingsIf(done.Left > 0))
	})
}

// testCommand tries a subscription without a server and without a broker.
func testCommand(t addon.Tools) *cobra.Command {
	c := &cobra.Command{
		Use: "test SUBSCRIPTION FILE [PATH...]", Short: "Show what a subscription makes of a message", Args: cobra.MinimumNArgs(2),
		Long: `test shows which event a subscription makes of a message, and which pipeline takes it. FILE
has the body of the message. PATH are the files with the pipelines; without any, they are
those in the working directory. - is stdin. It needs no broker.

It ends with 1 if the message would become a dead letter.`,
		Example: "  procaas subscriptions test orders order.json flows/ --subject orders.eu.paid",
	}
	m := broker.Message{ID: "STREAM/1", Time: time.Now()}
	var headers map[string]string
	c.Flags().StringVar(&m.Subject, "subject", "", "subject or topic of the message")
	c.Flags().StringVar(&m.Key, "message-key", "", "key of the message")
	c.Flags().StringToStringVar(&headers, "header", nil, "NAME=VALUE, a header of the message (repeatable)")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		s := cli.Of(c)
		var err error
		if m.Body, err = s.Input(args[1]); err != nil {
			return err
		}
		m.Headers = map[string]any{}
		for name, value := range headers {
			m.Headers[name] = value
		}
		b, err := t.Bundle(s, args[2:])
		if err != nil {
			return err
		}
		sub := language.Of(b, args[0])
		if sub == nil {
			ids := cli.Names(language.All(b), func(s *language.Subscription) string { return s.ID })
			return cli.Usagef("no file declares the subscription %q%s", args[0], cli.Meant(args[0], ids, "; did you mean %s?", ""))
		}
		out := tried{}
		in, wanted, err := subscriptions.Map(sub, &m)
		e := in.Event
		switch {
		case err != nil:
			out.Dead = err.Error()
		case m.Subject != "" && !sub.Passes(m.Subject):
			out.Ignored = fmt.Sprintf("the filter %s does not let the subject %s pass", sub.Filter, m.Subject)
		case !wanted:
			out.Ignored = "when of the subscription does not want it"
		default:
			out.Type = e.Type
			out.ID = e.ID
			out.Source = e.Source
			out.Key = e.Key
			out.Payload = e.Payload
			if served := slices.Concat(b.On(e.Type), b.Awaiting(e.Type)); len(served) > 0 {
				out.Pipeline = served[0].ID
				if err := b.Event(e.Type).Contract().Check(e.Payload); err != nil {
					out.Dead = err.Error()
				}
			} else {
				out.Dead = "no pipeline serves events of the type " + e.Type
			}
		}
		if *format == "json" {
			err = s.PrintJSON(out)
		} else {
			err = printTried(s, &out)
		}
		return cmp.Or(err, cli.FindingsIf(out.Dead != ""))
	}
	return c
}

// A tried is what a subscription makes of a message.
type tried struct {
	Dead     string `json:"dead_letter,omitempty"` // why
	Ignored  string `json:"ignored,omitempty"`
	Type     string `json:"type,omitempty"`
	ID       string `json:"id,omitempty"`
	Source   string `json:"source,omitempty"`
	Key      string `json:"key,omitempty"`
	Payload  any    `json:"payload,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
}

func printTried(s cli.Streams, out *tried) error {
	for _, line := range []struct{ name, value string }{
		{"dead letter", out.Dead}, {"ignored", out.Ignored}, {"event", out.Type}, {"id", out.ID}, {"source", out.Source}, {"key", out.Key},
		{"pipeline", out.Pipeline},
	} {
		if line.value != "" {
			fmt.Fprintf(s.Out, "%-11s  %s\n", line.name, line.value)
		}
	}
	if out.Type == "" {
		return nil
	}
	fmt.Fprint(s.Out, "payload      ")
	return s.PrintJSON(out.Payload)
}
