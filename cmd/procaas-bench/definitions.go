package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// These are the definitions of a large company.
const (
	manyFiles     = 50
	manyPipelines = 1000
	manyReloads   = 16
)

// writeMany writes the files of 1,000 pipelines of 7 handlers, and one of what they share. number changes one of the first.
func writeMany(dir string, number int) error {
	for f := range manyFiles {
		var file bytes.Buffer
		file.WriteString("pipelines:\n")
		for p := range manyPipelines / manyFiles {
			fmt.Fprintf(&file, "  - id: team-%d-flow-%d\n    shared-state: {order: null, n: 0}\n    stages:\n", f, p)
			for s := range 7 {
				fmt.Fprintf(&file, manyHandler, s, s, s, s*number, s)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("team-%02d.yaml", f)), file.Bytes(), 0o600); err != nil {
			return err
		}
		number = 1 // only the first file changes
	}
	return os.WriteFile(filepath.Join(dir, "services.yaml"), []byte("services: [{id: orders, url: http://127.0.0.1:9081}]\n"), 0o600)
}

// manyHandler is a stage of a handler, as most are written.
const manyHandler = `      - id: stage-%d
        handlers:
          - id: handler-%d
            enabled: !$ event.payload['is-authorized'] and event.payload.tariff in ['econom', 'business']
            request:
              service: orders
              path: /v1/orders/%d
              query: {id: !$ "event.payload['order-id']", n: !$ shared-state.n + %d}
            result:
              n: !$ sources.handler-%d.response.n ?? 0
            retry: {attempts: 3, min-delay: 100ms, on: [timeout, 5xx]}
            critical: false
`

// measureDefinitions measures what many definitions cost: to check them, to keep them at rest, and to replace them.
func measureDefinitions(ctx context.Context, b *bench) error {
	const prefix = "definitions: "
	err := b.eachRound(ctx, func(ctx context.Context, b *bench) (err error) {
		dir, err := os.MkdirTemp("", "procaas-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		note := func(what, unit string, value float64) { b.note(prefix+what, unit, value) }
		if err := writeMany(dir, 1); err != nil {
			return err
		}
		if err := b.validated(ctx, dir, note); err != nil {
			return err
		}
		return b.replaced(ctx, dir, note)
	})
	fmt.Fprintf(b.out, "%d pipelines of 7 handlers, median of %d rounds\n", manyPipelines, b.rounds)
	b.report(prefix)
	return err
}

// validated measures procaas validate.
func (b *bench) validated(ctx context.Context, dir string, note notice) error {
	for range 5 {
		check := exec.CommandContext(ctx, b.binary, "validate", dir)
		began := time.Now()
		if out, err := check.CombinedOutput(); err != nil {
			return fmt.Errorf("validate: %w: %.500s", err, out)
		}
		note("validate", "s", time.Since(began).Seconds())
		note("validate, processor time", "s", (check.ProcessState.UserTime() + check.ProcessState.SystemTime()).Seconds())
		if usage, ok := check.ProcessState.SysUsage().(*syscall.Rusage); ok {
			note("validate, memory", "MB", float64(usage.Maxrss)/1000)
		}
	}
	return nil
}

// replaced measures a node with the definitions at rest, and while they change.
func (b *bench) replaced(ctx context.Context, dir string, note notice) (err error) {
	p, err := newBinary(ctx, b, onPostgres("definitions"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	p.pipelines = dir
	if err := p.restart(ctx); err != nil {
		return err
	}
	start, err := p.atRest(ctx, b.span, note)
	if err != nil {
		return err
	}
	for i := range manyReloads {
		if err := writeMany(dir, 2+i); err != nil {
			return err
		}
		began := time.Now()
		if err := p.call(ctx, "/admin/v1/reload", struct{}{}, nil); err != nil {
			return err
		}
		note("a reload", "s", time.Since(began).Seconds())
	}
	memory, err := p.resident()
	if err != nil {
		return err
	}
	note(fmt.Sprintf("memory after %d reloads", manyReloads), "MB", memory)
	note("memory after the reloads, of the start", "", memory/start)
	if err := pause(ctx, settles); err != nil {
		return err
	}
	memory, err = p.resident()
	note("memory after the reloads and a rest", "MB", memory)
	return err
}
