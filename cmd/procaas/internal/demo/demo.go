// Package demo shows a taxi company at work on one machine, and what the add-ons show.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/serve"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/addon"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/rest"
	"procaas/engine/clock"
	"procaas/engine/stub"
	"procaas/pipelines"
)

const demoHelp = `demo runs a taxi company on this machine: its pipelines, stub services for all that
they call, and steady traffic of orders. After 30 seconds a service breaks that orders
can do without. Within seconds its handlers leave the flow by themselves, and come
back when the service works again. Every order is completed. Ctrl-C ends the demo.

--incident chooses what breaks. Orders can do without statistics-down, bonus-down and
push-down. payments-slow hangs now and then. With orders-down a service is down that
every order needs: orders wait for it and resume afterwards. A few orders use up their
attempts before the service counts as down. They fail, and procaas runs retry resumes
them. With bad-version, every fifth order first uses a new version of the pipelines, which calls a
wrong address. The version is rolled back by itself. With slow-service nothing fails, and
a service takes 3 s instead of 20 ms. The demo finds the slow handler and bounds its time
as an operator would, and prints each command with its second.

With --orders N --exit the demo runs N orders, prints a summary and exits. The exit
code is 0 only when every run is accounted for.`

// Limits of --rate: an order per quarter of an hour, and more than any machine can take.
const (
	minDemoRate = 0.001
	maxDemoRate = 1e6
)

// demoOptions are the flags of the demo. Their help describes them.
type demoOptions struct {
	node          serve.Flags
	orders        int
	exit          bool
	rate          float64 // 0 means the default, see pace
	incident      string
	incidentAfter time.Duration // from the start of the traffic; 0 means none
	incidentFor   time.Duration
	elsewhere     bool // the default address was taken by another program
	format        string
}

// Command returns the command with the demos. It shows the taxi company itself.
func Command() *cobra.Command {
	demo := taxiCommand("demo", "statistics-down")
	demo.AddCommand(taxiCommand("taxi", "statistics-down"), canaryCommand())
	for _, a := range addons.All() {
		if a.Demo != nil {
			demo.AddCommand(ofAddon(a.Demo()))
		}
	}
	return demo
}

func canaryCommand() *cobra.Command {
	c := taxiCommand("canary", badVersion)
	c.Short = "See a bad version of pipelines leave by itself"
	c.Long = `demo canary runs the taxi company of procaas demo. After 30 seconds every fifth order first
uses a new version of the pipelines, which calls a wrong address. The version is rolled back by
itself. Its orders continue with the version before, and every order is completed.`
	c.Example = "  procaas demo canary\n  procaas demo canary --incident-after 5s"
	return c
}

// ofAddon completes the demo of an add-on.
func ofAddon(d addon.Demo) *cobra.Command {
	var f serve.Flags
	f.Add(d.Command, "", rest.OpenGroups()...)
	d.RunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("listen") && !free(f.Listen) {
			f.Listen = "127.0.0.1:0"
		}
		if !c.Flags().Changed("log-level") {
			f.LogLevel = "error"
		}
		forget, err := scratchStore(&f)
		if err != nil {
			return err
		}
		defer forget()
		s := cli.Of(c)
		return d.Run(c.Context(), s, func(ctx context.Context, n addon.DemoNode) (addon.Node, error) { return openNode(ctx, s, f, n) })
	}
	return d.Command
}

// openNode opens the node of an add-on's demo.
func openNode(ctx context.Context, s cli.Streams, f serve.Flags, n addon.DemoNode) (addon.Node, error) {
	shipped, err := fs.Sub(pipelines.Files, n.Shipped)
	if err != nil {
		return nil, err
	}
	files, err := source.FS(shipped, func(name string) bool {
		own := slices.ContainsFunc(n.Files, func(f diag.File) bool { return f.Name == filepath.Base(name) })
		return source.IsPipeline(name) && !own
	})
	if err != nil {
		return nil, err
	}
	bundle, err := source.Check(s, append(files, n.Files...), dsl.Options{})
	if err != nil {
		return nil, err
	}
	f.Store = cmp.Or(n.Store, f.Store)
	for name, value := range n.Flags {
		if err := f.Set(name, value); err != nil {
			return nil, err
		}
	}
	return serve.Open(ctx, s, f, bundle)
}

func taxiCommand(name, incident string) *cobra.Command {
	c := &cobra.Command{
		Use:   name,
		Short: "See a taxi company at work, with stub services and an incident",
		Long:  demoHelp,
		Example: "  procaas demo\n  procaas demo --incident orders-down --incident-after 10s\n  procaas demo --orders 200 --exit " +
			"--format json",
		Args: cobra.NoArgs,
	}
	var o demoOptions
	o.node.Add(c, "", rest.OpenGroups()...)
	flags := c.Flags()
	flags.IntVar(&o.orders, "orders", 0, "stop the traffic after this many orders; 0 continues until Ctrl-C")
	flags.BoolVar(&o.exit, "exit", false, "print a summary and exit when all orders are done")
	flags.Float64Var(&o.rate, "rate", 0, "orders per second (default 10, or as fast as possible with --exit)")
	flags.StringVar(&o.incident, "incident", incident, "what breaks")
	flags.DurationVar(&o.incidentAfter, "incident-after", 30*time.Second, "when the incident begins; 0 for never")
	flags.DurationVar(&o.incidentFor, "incident-for", 45*time.Second, "how long the incident lasts")
	format := cli.Format(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.format = *format
		if o.exit && o.orders <= 0 {
			return cli.Usagef("--exit needs --orders N")
		}
		if o.orders < 0 || o.rate < 0 {
			return cli.Usagef("--orders and --rate cannot be negative")
		}
		// The interval of a ticker must be between a nanosecond and some centuries.
		if o.rate != 0 && !(o.rate >= minDemoRate && o.rate <= maxDemoRate) {
			return cli.Usagef("--rate %g: want %g to %g orders per second, or 0", o.rate, minDemoRate, maxDemoRate)
		}
		if o.incidentAfter < 0 || o.incidentFor <= 0 {
			return cli.Usagef("--incident-after cannot be negative, and --incident-for must be more than 0s")
		}
		// Port 8080 is the default. If it is taken, any free port is fine.
		if !c.Flags().Changed("listen") && (o.exit || !free(o.node.Listen)) {
			o.elsewhere = !o.exit
			o.node.Listen = "127.0.0.1:0"
		}
		if !c.Flags().Changed("log-level") {
			o.node.LogLevel = "error"
		}
		return demo(c.Context(), cli.Of(c), o)
	}
	return c
}

func demo(ctx context.Context, s cli.Streams, o demoOptions) error {
	forget, err := scratchStore(&o.node)
	if err != nil {
		return err
	}
	defer forget()
	d, err := openDemo(ctx, s, o)
	if err != nil {
		return err
	}
	defer d.stubs.Close()
	return d.run(ctx)
}

// scratchStore creates a temporary store for a node without one. forget removes it.
func scratchStore(f *serve.Flags) (forget func(), err error) {
	if f.Store != "" {
		return func() {}, nil
	}
	dir, forget, err := cli.Scratch("procaas-demo-")
	if err != nil {
		return nil, err
	}
	f.Store = "sqlite:" + filepath.Join(dir, "demo.db")
	return forget, nil
}

// free reports whether it is possible to listen on an address.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// A taxiDemo is a running taxi company.
type taxiDemo struct {
	cli.Streams
	demoOptions

	node    *serve.Node
	stubs   *stub.Server
	files   []diag.File // the pipelines
	traffic *traffic
	bundle  *tree.Bundle
}

func openDemo(ctx context.Context, s cli.Streams, o demoOptions) (*taxiDemo, error) {
	taxi, err := fs.Sub(pipelines.Files, "taxi")
	if err != nil {
		return nil, err
	}
	stubFiles, err := source.FS(taxi, source.IsStub)
	if err != nil {
		return nil, err
	}
	d := &taxiDemo{Streams: s, demoOptions: o}
	if d.files, err = source.FS(taxi, source.IsPipeline); err != nil {
		return nil, err
	}
	if d.stubs, err = source.Stubs(ctx, s, stubFiles); err != nil {
		return nil, err
	}
	d.demoOptions.node.Services = d.stubs.URLs()
	// A mistyped incident must fail at once, not after half a minute.
	if err = d.checkIncident(); err == nil {
		d.bundle, err = source.Check(s, d.files, dsl.Options{ServiceURLs: d.stubs.URLs()})
	}
	if err == nil {
		d.node, err = serve.Open(ctx, s, d.demoOptions.node, d.bundle)
	}
	if err != nil {
		return nil, errors.Join(err, d.stubs.Close())
	}
	d.traffic = newTraffic(client.New(d.node.URL(), o.node.Access.Plain()), o.orders, d.pace())
	return d, nil
}

// checkIncident refuses an unknown incident.
func (d *taxiDemo) checkIncident() error {
	known := append(d.stubs.Incidents(), badVersion)
	if d.incident == "" || slices.Contains(known, d.incident) {
		return nil
	}
	return cli.Usagef("--incident %q: want one of %s", d.incident, strings.Join(known, ", "))
}

// next describes what to look at, and how.
func (d *taxiDemo) next() string {
	at := ""
	if d.elsewhere {
		at = " --server " + d.node.URL()
	}
	text := "Watch      the console, or: procaas top" + at + "; Ctrl-C ends the demo"
	if d.incidentAfter > 0 && d.incident != "" {
		end := "for " + d.incidentFor.String()
		if d.incident == badVersion {
			end = "until it is rolled back"
		}
		text += fmt.Sprintf("\nSoon       after %s: %s, %s", d.incidentAfter, d.incident, end)
	}
	return text
}

// pace returns the rate of orders. 0 means as fast as the engine accepts them.
func (d *taxiDemo) pace() float64 {
	if d.rate == 0 && !d.exit {
		return 10
	}
	return d.rate
}

func (d *taxiDemo) run(ctx context.Context) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	g, working := errgroup.WithContext(working)
	g.Go(func() error { return d.node.Run(working) })
	if d.format == "text" {
		d.node.Banner(d.Out, d.bundle)
		if !d.exit {
			fmt.Fprintln(d.Out, d.next())
		}
	}
	g.Go(func() error { return d.incidents(working) })
	g.Go(func() error { return d.liveLine(working) })
	var total summary
	g.Go(func() error {
		if err := d.traffic.run(working); err != nil || !d.exit {
			return err
		}
		var err error
		total, err = d.traffic.settle(working)
		stop() // the node may drain now
		return err
	})
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if err != nil || !d.exit {
		return err
	}
	if err := total.print(d.Streams, d.format); err != nil {
		return err
	}
	return cli.FindingsIf(!total.complete())
}

// incidents breaks a service after a while and repairs it.
func (d *taxiDemo) incidents(ctx context.Context) error {
	if d.incidentAfter <= 0 || d.incident == "" {
		return nil
	}
	if d.incident == badVersion {
		return d.tryBadVersion(ctx)
	}
	if d.incident == slowService {
		return d.playSlowService(ctx)
	}
	for _, step := range []struct {
		after time.Duration
		on    bool
	}{{d.incidentAfter, true}, {d.incidentFor, false}} {
		if !clock.Pause(ctx, step.after) {
			return nil
		}
		if err := d.stubs.SetIncident(d.incident, step.on); err != nil {
			return err
		}
		d.traffic.setIncident(d.incident, step.on)
	}
	return nil
}
