package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsHand plays the program nats in the commands of pages: nats stream add NAME --subjects SUBJECTS, nats stream get NAME
// --last-for SUBJECT, and nats pub SUBJECT BODY.
func natsHand() {
	if err := runNATS(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
}

func runNATS(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	switch {
	case err != nil:
		return err
	case len(args) >= 5 && args[0] == "stream" && args[1] == "add" && args[3] == "--subjects":
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: args[2], Subjects: []string{args[4]}})
		return err
	case len(args) == 5 && args[0] == "stream" && args[1] == "get" && args[3] == "--last-for":
		return showMessage(ctx, js, args[2], args[4])
	case len(args) == 3 && args[0] == "pub":
		_, err = js.Publish(ctx, args[1], []byte(args[2]))
		return err
	}
	return fmt.Errorf("want stream add NAME --subjects SUBJECTS, stream get NAME --last-for SUBJECT, or pub SUBJECT BODY, have %q", args)
}

func showMessage(ctx context.Context, js jetstream.JetStream, stream, subject string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	m, err := s.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return err
	}
	fmt.Printf("Item: %s#%d received %s on Subject %s\n\nHeaders:\n", stream, m.Sequence, m.Time.Format(time.RFC3339), m.Subject)
	for name, values := range m.Header {
		fmt.Printf("  %s: %s\n", name, strings.Join(values, ", "))
	}
	fmt.Printf("\n%s\n", m.Data)
	return nil
}
