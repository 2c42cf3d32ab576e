package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsHand plays the program nats in the commands of pages: nats stream add NAME --subjects SUBJECTS, and nats pub SUBJECT BODY.
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
	case len(args) == 3 && args[0] == "pub":
		_, err = js.Publish(ctx, args[1], []byte(args[2]))
		return err
	}
	return fmt.Errorf("want stream add NAME --subjects SUBJECTS, or pub SUBJECT BODY, have %q", args)
}
