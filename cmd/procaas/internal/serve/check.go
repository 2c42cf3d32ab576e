package serve

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"

	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/pgkit"
	"procaas/engine/store"
)

// checkServe returns what would keep a node with these flags from serving, and prints what it would do first. It changes nothing: it
// makes no store, and leaves the schema of one as it is.
func checkServe(ctx context.Context, s cli.Streams, f Flags) error {
	f.LogLevel = "error"
	migrates := f.Migrate
	f.Migrate = false
	outdated := func(err error) error {
		if !migrates || !errors.Is(err, store.ErrOutdated) {
			return err
		}
		return s.Printf("%v\nA node would update the schema of the store first. What is in the store was not looked at.\n", err)
	}
	b, without, err := f.choose(ctx, s)
	if err != nil {
		return outdated(err)
	}
	said := "pipelines  " + diag.Plural(len(b.Pipelines), "pipeline") + " in " + strings.Join(f.Pipelines, ", ") + "\n"
	if without {
		said = "pipelines  " + diag.Plural(len(b.Pipelines), "pipeline") + " in the store\n"
	}
	said += "store      " + pgkit.Redact(f.Store)
	if !stores.Exists(f.Store) {
		dir, remove, err := cli.Scratch("procaas-check-")
		if err != nil {
			return err
		}
		defer remove()
		f.Store, f.Migrate = "sqlite:"+filepath.Join(dir, "check.db"), true
		said += " does not exist yet; a node would make it"
	}
	said += "\naddress    " + f.Listen
	if l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.Listen); err == nil {
		err = l.Close()
		if err != nil {
			return err
		}
	} else if errors.Is(err, syscall.EADDRINUSE) {
		// Another node serves there now, which this one may be about to replace.
		host, _, _ := net.SplitHostPort(f.Listen)
		f.Listen = net.JoinHostPort(host, "0")
		said += " is in use now"
	}
	n, err := Open(ctx, s, f, b)
	if err != nil {
		return outdated(err)
	}
	n.telemetry.Close(n.log)
	if err := errors.Join(n.engine.CheckCertificates(), n.closeWeb(), n.closeParts(), n.store.Close()); err != nil {
		return err
	}
	return s.Printf("%s\nA node with these flags would serve.\n", said)
}
