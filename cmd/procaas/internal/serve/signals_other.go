//go:build !unix

package serve

import (
	"context"
	"os"
)

// There is no SIGHUP and no SIGPIPE on these systems.

func catchHangups() <-chan os.Signal { return nil }

func survivePipes() {}

func (n *Node) reloadOnHangup(context.Context, <-chan os.Signal) {}
