// Command testdb runs a command with a private PostgreSQL cluster, which all
// tests of the command share:
//
//	go run ./engine/enginetest/testdb -- go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"procaas/engine/enginetest/cluster"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
	}
	os.Exit(code)
}

// couldNotWork is the exit code if the command did not run.
const couldNotWork = 3

func run(args []string) (code int, err error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 2, errors.New("want a command to run, such as: testdb -- go test ./...")
	}
	// The terminal sends its signals to the command, too, which ends by them. They are caught, not
	// ignored, because the command would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	c, err := cluster.Start(context.Background())
	if err != nil {
		return couldNotWork, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), cluster.Env+"="+c.URL)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return couldNotWork, err
	}
	return 0, nil
}
