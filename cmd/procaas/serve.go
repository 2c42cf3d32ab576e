package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/render"
	"procaas/engine"
	"procaas/engine/alert"
	"procaas/engine/api"
	"procaas/engine/api/transport"
	"procaas/engine/api/ui"
	"procaas/engine/outbound"
	"procaas/engine/store"
	"procaas/handlers/sharding/shardmap"
)

// nodeFlags are the flags of every command that runs a node.
type nodeFlags struct {
	store, listen, name string
	cells               []string
	migrate             bool
	maxInFlight         int
	lease, drain        time.Duration
	retention, audit    time.Duration
	maxBody             string
	access              accessFlags
	logFormat, logLevel string
	secretsDir          string
	targets             []string
	alerts              alertFlags
	services            map[string]string
	proxy               proxyFlags
	pipelines           []string
	overrule            bool // these pipelines replace those that the store has
	patient             bool // wait for a store that is away
	strictQueues        bool // no tasks of types that nobody does
}

// add declares the flags. The calls of open need no token.
func (f *nodeFlags) add(c *cobra.Command, store string, open ...string) {
	o := engine.DefaultOptions()
	flags := c.Flags()
	flags.StringVar(&f.store, "store", store, "where runs are kept: postgres://… or sqlite:FILE")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the API, the console and the metrics")
	flags.StringVar(&f.name, "name", "", "name of this node for people (default: host and process number)")
	flags.BoolVar(&f.migrate, "migrate", true, "bring the schema of the store up to date at start")
	flags.IntVar(&f.maxInFlight, "max-in-flight", o.MaxInFlight, "runs that the node works on at once")
	flags.DurationVar(&f.lease, "lease", o.Lease, "silence after which other nodes take this node's runs over, when they cannot see that "+
		"it has ended")
	flags.DurationVar(&f.drain, "drain", o.Drain, "time that calls under way get when the node stops")
	flags.DurationVar(&f.retention, "retention", o.Retention, "how long ended runs and tasks, and the ids by which repeated events are "+
		"known, are kept; 0 keeps them for ever")
	flags.DurationVar(&f.audit, "audit-retention", o.AuditRetention, "how long it is kept who changed what; 0 keeps it for ever")
	flags.StringVar(&f.maxBody, "max-body", "1MiB", "largest body of an event")
	flags.BoolVar(&f.strictQueues, "strict-queues", false, "refuse tasks of a type that no pipeline declares and no worker has asked for, "+
		"instead of a warning")
	if len(open) == 0 {
		open = []string{"none"}
	}
	f.access.add(c, open)
	flags.StringVar(&f.logFormat, "log-format", "auto", "auto, text or json; auto is text on a terminal")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.secretsDir, "secrets-dir", "", "directory with a file NAME for each !secret NAME, or SERVICE/NAME for one that "+
		"only this service gets; without it PROCAAS_SECRET_NAME")
	flags.StringArrayVar(&f.targets, "allow-target", nil, "where connections of flows may lead, whatever authors declare: host, "+
		"host:port, or addresses such as 10.1.0.0/16 (repeatable; anywhere that is declared without it)")
	f.alerts.add(flags)
	flags.StringToStringVar(&f.services, "service", nil, "another address for a declared service: ID=URL (repeatable)")
}

func serveCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API and run events, with other nodes on the same store",
		Long: `serve takes events in over HTTP and runs them. Any number of nodes may share one
PostgreSQL: give them the same --store and --pipelines. SIGHUP reads the
pipelines again, as procaas reload does, and makes them those of all nodes; a set
with errors, or without pipelines, never replaces a good one. A node that starts
with older pipelines than the others takes theirs over. SIGTERM drains.

A store that is away is waited for: /healthz answers, and /readyz says 503. The
address of PostgreSQL may name several hosts: with target_session_attrs=read-write
the nodes find the primary, also after a failover.

With --proxy the node passes requests on to the worker of a cluster that serves
their key, and sends those again that meet a partition on its way to another
worker. As soon as there are tokens, such requests need one of a submitter in the
header Proxy-Authorization.

With --cell the keys of events are spread over several PostgreSQL servers, of which
--store is the home: procaas inbox tells which has what, and moves keys. The keys of
a server that is away wait, and /readyz says so; those of the others work.

Traces are sent over OTLP/HTTP when OTEL_EXPORTER_OTLP_ENDPOINT names a
collector; the other OTEL_ variables count, too.`,
		Example: "  procaas serve --store postgres://procaas@db/procaas --pipelines flows/ --listen 127.0.0.1:8080\n" +
			"  procaas serve --store 'postgres://procaas@db1,db2/procaas?target_session_attrs=read-write' --pipelines flows/",
		Args: cobra.NoArgs,
	}
	var f nodeFlags
	f.add(c, "sqlite:.procaas/procaas.db")
	c.Flags().StringSliceVarP(&f.pipelines, "pipelines", "p", []string{"."}, "directories or files with pipelines")
	f.proxy.add(c.Flags())
	c.Flags().StringArrayVar(&f.cells, "cell", nil, "one more PostgreSQL for the inbox, beside --store: NAME=postgres://… (repeatable; "+
		"the same on all nodes)")
	c.RunE = func(c *cobra.Command, _ []string) error { return serve(c.Context(), s, f) }
	return c
}

func serve(ctx context.Context, s streams, f nodeFlags) error {
	bundle, err := loadBundle(s, f.pipelines, dsl.Options{ServiceURLs: f.services})
	if err != nil {
		return err
	}
	f.patient = true
	n, err := openNode(ctx, s, f, bundle)
	if err != nil && ctx.Err() != nil {
		return nil // it was told to stop before it had a store
	}
	if err != nil {
		return err
	}
	n.log.Info("serving", "address", n.url(), "store", redact(f.store), "pipelines", len(bundle.Pipelines))
	go n.reloadOnHangup(ctx)
	return n.run(ctx)
}

// A node is an engine on its store with its API: what serve, dev, demo and run
// have in common.
type node struct {
	engine  *engine.Engine
	store   store.Store
	tasks   *taskStore
	closing chan struct{} // closed when run is told to end
	web     *httpServer
	proxies *proxies
	access  api.Options
	api     http.Handler
	console *ui.Console
	metrics *prometheus.Registry
	traces  *telemetry
	alerts  *alert.Alerter
	shards  *shardmap.Service // nil when the store is not PostgreSQL
	secrets secretStore
	targets *outbound.Targets

	breakers outbound.Breakers
	kept     keptMaps
	log      *slog.Logger
	streams  streams
	flags    nodeFlags
}

// openNode checks the flags, binds the addresses, opens the store and makes the engine.
// Nothing runs before run. Flags come first: who mistypes one hears of that, and not
// that an address is taken.
func openNode(ctx context.Context, s streams, f nodeFlags, b *dsl.Bundle) (*node, error) {
	log, err := newLogger(s, f.logFormat, f.logLevel)
	if err != nil {
		return nil, err
	}
	access, err := f.access.options(f.listen)
	if err != nil {
		return nil, err
	}
	if beyond := f.beyond(access); beyond != "" && access.Token == "" && !storeExists(f.store) {
		return nil, errNoToken(beyond)
	}
	maxBody, err := datum.ParseBytes(f.maxBody)
	if err != nil {
		return nil, usagef("--max-body %q: %w", f.maxBody, err)
	}
	access.MaxBody = int64(maxBody)
	if err := f.checkStore(); err != nil {
		return nil, err
	}
	checked, err := newProxies(f.proxy, b)
	if err != nil {
		return nil, err
	}
	n := &node{metrics: prometheus.NewRegistry(), log: log, streams: s, flags: f, proxies: checked, closing: make(chan struct{})}
	if n.secrets, err = newSecretStore(f.secretsDir, f.access.file, access.Token); err != nil {
		return nil, err
	}
	if n.targets, err = outbound.ParseTargets(f.targets); err != nil {
		return nil, usagef("--allow-target %w", err)
	}
	n.metrics.MustRegister(&n.breakers, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if n.web, err = listenHTTP(ctx, f.listen, log, transport.Server); err != nil {
		return nil, err
	}
	if err := n.proxies.listen(ctx, log); err != nil {
		return nil, errors.Join(err, n.web.close(), n.proxies.close())
	}
	n.access = access
	if err := n.open(ctx, b, access); err != nil {
		return nil, errors.Join(err, n.web.close(), n.proxies.close())
	}
	return n, nil
}

// beyond gives an address of the node that others than this machine reach; empty when
// there is none.
func (f *nodeFlags) beyond(access api.Options) string {
	if !access.Local {
		return f.listen
	}
	return f.proxy.beyond()
}

// open opens the store and makes the engine.
func (n *node) open(ctx context.Context, b *dsl.Bundle, access api.Options) (err error) {
	if n.store, err = n.openStore(ctx); err != nil {
		return fmt.Errorf("open store %s: %w", redact(n.flags.store), err)
	}
	if n.tasks, err = openTasks(ctx, n.flags.store, n.store, n.log); err != nil {
		return errors.Join(fmt.Errorf("open store %s: %w", redact(n.flags.store), err), n.store.Close())
	}
	n.tasks.TaskStore = engine.MeasureTasks(n.tasks.TaskStore, n.metrics)
	if n.traces, err = openTelemetry(ctx, nodeName(n.flags.name), n.log); err != nil {
		return errors.Join(err, n.closeStores())
	}
	err = n.openShards(ctx, b)
	if err == nil {
		err = n.build(ctx, n.flags, b, access)
	}
	if err != nil {
		n.closeShards()
		n.traces.close(n.log)
		return errors.Join(err, n.closeStores())
	}
	return nil
}

func (n *node) build(ctx context.Context, f nodeFlags, b *dsl.Bundle, served api.Options) error {
	o := engine.DefaultOptions()
	o.Store, o.Types, o.Bundle, o.Log = n.store, n.types(), b, n.log
	o.Name, o.MaxInFlight, o.Lease, o.Drain = nodeName(f.name), f.maxInFlight, f.lease, f.drain
	o.Retention, o.AuditRetention = f.retention, f.audit
	o.Metrics, o.Tracer = engine.NewMetrics(n.metrics), n.traces.tracer()
	o.Secrets, o.ServiceURLs, o.Overrule = n.secrets.value, f.services, f.overrule
	o.Targets = n.targets
	if f.alerts.wanted() {
		// Nothing happens before run, which is after the alerter has been made.
		o.Notify = func(x engine.Notice) { n.alerts.Notice(x) }
	}
	e, err := engine.New(o)
	if err != nil {
		return err
	}
	n.engine = e
	beyond := f.beyond(served)
	if beyond != "" && served.Token == "" {
		guarded, err := e.Guarded(ctx)
		if err != nil {
			return err
		}
		if !guarded {
			return errNoToken(beyond)
		}
	}
	n.metrics.MustRegister(newClusterMetrics(e))
	if n.alerts, err = n.newAlerts(f, o.Name); err != nil {
		return err
	}
	served.Tasks, served.StrictTasks, served.Closing = n.tasks, f.strictQueues, n.closing
	served.Engine, served.Log, served.Registry, served.Version, served.Play = api.Of(e), n.log, n.metrics, version(), play
	if !served.Local && len(served.Open) > 0 {
		n.log.Warn("some calls need no token, though others may reach this server; --open none closes them", "open", served.Open)
	}
	if len(f.pipelines) > 0 {
		served.Reload = n.reload
	}
	if n.shards != nil {
		served.Shards = n.shards
	}
	if inbox, ok := n.store.(engine.InboxCells); ok {
		served.Inbox = inbox
		n.metrics.MustRegister(&inboxMetrics{inbox: inbox})
	}
	n.api, n.console = api.NewWithConsole(served)
	return nil
}

// heapGrowth is how much garbage may gather, in percent of what is alive. A node
// keeps little and makes much: at Go's default of 100 a sixth of its processor
// time went into collecting, for some ten megabytes.
const heapGrowth = 400

// run works until ctx ends, then drains and closes everything.
func (n *node) run(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	g, ctx := errgroup.WithContext(ctx)
	// What happens while the node drains is told, too.
	alerting, quiet := context.WithCancel(context.WithoutCancel(ctx))
	defer quiet()
	g.Go(func() error { n.alerts.Run(alerting, ctx.Done(), n.engine); return nil })
	g.Go(func() error {
		defer quiet()
		return n.engine.Run(ctx)
	})
	n.web.start(n.api)
	g.Go(func() error { n.followShards(ctx); return nil })
	g.Go(func() error { return n.console.Run(ctx) })
	g.Go(func() error { n.engine.ServeTasks(ctx, n.tasks); return nil })
	g.Go(func() error {
		defer close(n.closing)
		engine.TendTasks(ctx, n.tasks, n.flags.retention, n.log)
		return nil
	})
	g.Go(func() error { return n.web.run(ctx) })
	n.proxies.start(ctx, g, n, n.access)
	err := g.Wait()
	n.closeShards()
	n.traces.close(n.log)
	return errors.Join(err, n.closeStores())
}

// url is where the API answers.
func (n *node) url() string { return "http://" + n.web.listener.Addr().String() }

// reload reads the pipelines again and serves new events by them on all nodes.
// What is wrong with them is shown; the error is an [*engine.DefinitionError]
// or an [*engine.DropError] when they are refused. With drop, events that wait for pipelines
// that are gone are given up.
func (n *node) reload(ctx context.Context, drop bool, by store.Actor) (engine.Diff, error) {
	s, f := n.streams, n.flags
	files, err := readFiles(f.pipelines, s.in, isPipelineFile)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no pipeline files (*.yaml, *.yml) in %s", strings.Join(f.pipelines, ", "))
	}
	if err != nil {
		return engine.Diff{}, &engine.DefinitionError{Err: err}
	}
	bundle, found := dsl.Load(files, dsl.Options{Types: languageTypes(), Read: treesOf(f.pipelines).read, ServiceURLs: f.services})
	if len(found) > 0 {
		if err := render.Write(s.err, render.Text, files, found, colorful(s.err)); err != nil {
			n.log.Warn("findings cannot be shown", "error", err)
		}
	}
	if bundle == nil {
		return engine.Diff{}, &engine.DefinitionError{Found: found, Err: errFindings}
	}
	if err := n.checkMaps(ctx, bundle); err != nil {
		return engine.Diff{}, err
	}
	load := n.engine.Load
	if drop {
		load = n.engine.LoadAndDrop
	}
	diff, err := load(ctx, bundle, by)
	if err != nil {
		return diff, err
	}
	// Whoever is answered goes by the new maps from now on.
	return diff, n.keepMaps(ctx)
}

func nodeName(name string) string {
	if name != "" {
		return name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

func newLogger(s streams, format, level string) (*slog.Logger, error) {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: want debug, info, warn or error", level)
	}
	switch {
	case format == "json", format == "auto" && !terminal(s.err):
		return slog.New(slog.NewJSONHandler(s.err, &slog.HandlerOptions{Level: min})), nil
	case format == "text", format == "auto":
		return slog.New(tint.NewTextHandler(s.err, &tint.Options{Level: min, TimeFormat: time.TimeOnly, NoColor: !colorful(s.err)})), nil
	default:
		return nil, usagef("--log-format %q: want auto, text or json", format)
	}
}
