//go:build !linux && !darwin

package demo

import (
	"context"
	"errors"
)

func startServers(context.Context) ([]string, func(), error) {
	return nil, nil, errors.New("demo shards starts PostgreSQL servers, which it can do only on Linux and macOS")
}
