package pgkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// These parameters of an address say where its password comes from. Only addresses of operators may have them: a file of
// pipelines must neither run a command on a node nor send a file of it to a server.
const (
	passwordFile    = "password_file"
	passwordCommand = "password_command"
)

// passwordTime bounds how long a command for a password may take.
const passwordTime = 10 * time.Second

// ParseOperators parses the address of a pool that an operator has given. Like [KeepLoggedIn], each new connection reads the address
// and its password again.
func ParseOperators(ctx context.Context, dsn string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if err := fetchPassword(ctx, &config.ConnConfig.Config); err != nil {
		return nil, err
	}
	keepLoggedIn(config, dsn, fetchPassword)
	return config, nil
}

// fetchPassword sets the password of an address that says where it comes from.
func fetchPassword(ctx context.Context, c *pgconn.Config) error {
	file, command := c.RuntimeParams[passwordFile], c.RuntimeParams[passwordCommand]
	delete(c.RuntimeParams, passwordFile)
	delete(c.RuntimeParams, passwordCommand)
	var text []byte
	var err error
	switch {
	case file == "" && command == "":
		return nil
	case file != "" && command != "":
		return fmt.Errorf("want one of %s and %s in the address of the store, have both", passwordFile, passwordCommand)
	case file != "":
		if text, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("%s in the address of the store: %w", passwordFile, err)
		}
	default:
		if text, err = runForPassword(ctx, command); err != nil {
			return fmt.Errorf("%s in the address of the store: %w", passwordCommand, err)
		}
	}
	c.Password = strings.TrimRight(string(text), "\r\n")
	if c.Password == "" {
		return fmt.Errorf("%s or %s in the address of the store: want the password, have nothing", passwordFile, passwordCommand)
	}
	return nil
}

// runForPassword runs a command of the shell and returns what it prints.
func runForPassword(ctx context.Context, command string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, passwordTime)
	defer cancel()
	var said bytes.Buffer
	c := exec.CommandContext(ctx, "sh", "-c", command)
	c.Stderr, c.WaitDelay = &said, time.Second
	out, err := c.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("it has not ended within %s", passwordTime)
	}
	if err != nil {
		line, _, _ := strings.Cut(said.String(), "\n")
		return nil, fmt.Errorf("%w: %.200s", err, line)
	}
	return out, nil
}
