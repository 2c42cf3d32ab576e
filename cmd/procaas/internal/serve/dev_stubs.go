package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"procaas/cmd/procaas/internal/source"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/stub"
)

// devStubs are the stub services beside the pipelines of dev.
type devStubs struct {
	cli.Streams
	paths  []string
	server *stub.Server      // nil if there are none
	urls   map[string]string // by service; an address never changes
	told   sync.Map          // the notes on stub services that are printed
}

// start serves the stub services, if there are any, until close. Calls that end after ctx still need them.
func (d *devStubs) start(ctx context.Context) error {
	spec, err := d.read()
	if err != nil || spec == nil {
		return err
	}
	if d.server, err = stub.Start(context.WithoutCancel(ctx), spec, stub.Options{Yield: true}); err != nil {
		return err
	}
	d.urls = d.server.URLs()
	return nil
}

// read reads the stub files. It returns nil if there are none.
func (d *devStubs) read() (*stub.Spec, error) {
	files, err := source.StubsBeside(d.paths)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, nil //nolint:nilnil // no spec is fine
	}
	return source.StubSpec(d.Streams, files)
}

// restart serves the stub services from their current files beside pipelines. Files with errors change nothing.
func (d *devStubs) restart(ctx context.Context, b *tree.Bundle) {
	spec, err := d.read()
	if err == nil && spec == nil && d.server == nil {
		return // a folder came or went, and there are no stubs
	}
	if err != nil || spec == nil {
		switch {
		case err == nil:
			fmt.Fprintf(d.Err, "procaas: no stub services (*.stub.yaml) are left in %s\n", strings.Join(d.paths, ", "))
		case !errors.Is(err, cli.ErrFindings): // findings are already printed
			fmt.Fprintf(d.Err, "procaas: %v\n", err)
		}
		fmt.Fprintln(d.Err, "the stub services that were good go on")
		return
	}
	var late []string
	for _, service := range spec.Services {
		if url, known := d.urls[service.ID]; known {
			service.Listen = strings.TrimPrefix(url, "http://")
		} else {
			late = append(late, service.ID)
		}
	}
	d.close()
	if d.server, err = stub.Start(context.WithoutCancel(ctx), spec, stub.Options{}); err != nil {
		fmt.Fprintf(d.Err, "procaas: %v\n", err)
		return
	}
	fmt.Fprintf(d.Err, "%s stub services reloaded\n", time.Now().Format(time.TimeOnly))
	now := d.server.URLs()
	for _, id := range slices.Sorted(maps.Keys(d.urls)) {
		if now[id] == "" {
			fmt.Fprintf(d.Err, "the stub service %s is gone, and calls of it fail until it is back; restart procaas dev to call the service "+
				"at the address in the pipelines\n", id)
		}
	}
	for _, id := range late {
		fmt.Fprintf(d.Err, "restart procaas dev to let pipelines call the new stub service %s at %s\n", id, now[id])
	}
	d.tellUnplayed(b, now)
}

// tellUnplayed prints once which of the stub services at some addresses play no service of the pipelines.
func (d *devStubs) tellUnplayed(b *tree.Bundle, at map[string]string) {
	for _, note := range source.Unplayed(b, at) {
		if _, told := d.told.LoadOrStore(note, true); !told {
			fmt.Fprintln(d.Err, note)
		}
	}
}

func (d *devStubs) close() {
	if d.server != nil {
		d.server.Close()
		d.server = nil
	}
}

// services adds the addresses of stub services to given ones, which take precedence.
func (d *devStubs) services(given map[string]string) map[string]string {
	all := maps.Clone(d.urls)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, given)
	return all
}

// banner prints the addresses of the stub services.
func (d *devStubs) banner(w io.Writer) {
	for _, id := range slices.Sorted(maps.Keys(d.urls)) {
		fmt.Fprintf(w, "Stub       %s at %s\n", id, d.urls[id])
	}
}
