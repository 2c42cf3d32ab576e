// Package serve assembles nodes and runs them, and runs single events without one.
package serve

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/serve/observe"
	"procaas/cmd/procaas/internal/serve/playground"
	"procaas/cmd/procaas/internal/serve/secret"
	"procaas/cmd/procaas/internal/serve/stores"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/alert"
	"procaas/engine/api"
	"procaas/engine/api/cli"
	"procaas/engine/api/transport"
	"procaas/engine/api/ui"
	"procaas/engine/api/web"
	"procaas/engine/budget"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/pgkit"
	"procaas/engine/replay"
	"procaas/engine/stats"
	"procaas/engine/store"
	"procaas/handlers"
)

// Flags are the flags of every command that runs a node.
type Flags struct {
	Store, Listen, Name string
	Migrate             bool
	MaxInFlight         int // 0: as many as the memory of the node is for
	Lease, Drain        time.Duration
	Retention, Audit    time.Duration
	Record              string
	MaxBody, Memory     string
	Access              AccessFlags
	LogFormat, LogLevel string
	SecretsDir          string
	Targets             []string
	Alerts              AlertFlags
	Services            map[string]string
	Pipelines           []string
	Named               bool // somebody has said where the pipelines are
	Overrule            bool // these pipelines replace those in the store
	Patient             bool // wait for an unreachable store
	TraceURL            string
	Config              string // file of the flags; empty: none
	Certificate, Key    string // files of the certificate for TLS; empty: none
	Admin, Metrics      string // addresses of their own; empty: Listen
	Profile             bool   // admins may profile the process
	Issuers             string // file of the issuers of client certificates; empty: none
	Keys                string // file of key-encryption keys; empty: the store is not encrypted

	// Unread is why the files of Pipelines cannot run, if the bundle is the store's current one instead.
	Unread error

	read   func(name string) ([]byte, error) // reads files that pipelines name; nil for the default
	loader *dsl.Loader                       // of the pipelines; nil loads all of them each time

	addons []*addon.Process // see processes
	own    *pflag.FlagSet   // flags of add-ons that the command does not declare
}

// Add declares the flags. open lists calls that need no token.
func (f *Flags) Add(c *cobra.Command, store string, open ...string) {
	o := engine.DefaultOptions()
	flags := c.Flags()
	flags.StringVar(&f.Store, "store", store, "database for runs: postgres://… or sqlite:FILE")
	flags.StringVar(&f.Listen, "listen", "127.0.0.1:8080", "address of the API, the console and the metrics")
	flags.StringVar(&f.Name, "name", "", "name of this node for people (default: host and process number)")
	flags.BoolVar(&f.Migrate, "migrate", true, "update the schema of the store at start")
	flags.IntVar(&f.MaxInFlight, "max-in-flight", 0, fmt.Sprintf("runs that the node works on at the same time (default: one for each MiB "+
		"of --memory, from %d to %d)", fewestRuns, mostRuns))
	flags.DurationVar(&f.Lease, "lease", o.Lease, "after this silence other nodes take over this node's runs, if they do not see "+
		"sooner that it has ended")
	flags.DurationVar(&f.Drain, "drain", o.Drain, "how long a stopping node waits for calls in flight")
	flags.DurationVar(&f.Retention, "retention", o.Retention, "how long to keep ended runs and tasks, and the ids of events that "+
		"detect duplicates; 0 for ever")
	flags.DurationVar(&f.Audit, "audit-retention", o.AuditRetention, "how long to keep the audit; 0 for ever")
	flags.StringVar(&f.Record, "record", "", "share of runs to record for procaas replay, with the replies of services: such as 5%")
	flags.StringVar(&f.MaxBody, "max-body", "1MiB", "largest body of an event")
	flags.StringVar(&f.Memory, "memory", "", "memory that the node may use, such as 512MiB (default: the limit of its container, "+
		"or half of the machine)")
	f.declare(flags)
	if len(open) == 0 {
		open = []string{"none"}
	}
	f.Access.add(c, open)
	flags.StringVar(&f.LogFormat, "log-format", "auto", "auto, text or json; auto is text on a terminal")
	flags.StringVar(&f.LogLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.SecretsDir, "secrets-dir", "", "directory with a file NAME for each !secret NAME, or SERVICE/NAME for a "+
		"secret of only this service (default: the variables PROCAAS_SECRET_NAME)")
	flags.StringArrayVar(&f.Targets, "allow-target", nil, "limits where flows may connect to: host, host:port, "+
		"or addresses such as 10.1.0.0/16 (repeatable; default: every declared service)")
	f.Alerts.add(flags)
	flags.StringVar(&f.TraceURL, "trace-url", "", "address of a trace for people, with {trace_id} in it; the console links runs to it")
	flags.StringToStringVar(&f.Services, "service", nil, "other address for a declared service: ID=URL (repeatable)")
}

// Commands returns the commands that run events: on a server, and for authors.
func Commands() (server, author []*cobra.Command) {
	return append(stores.Commands(), serveCommand(), playground.Command()), []*cobra.Command{runCommand(), devCommand()}
}

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API and run events; several nodes can share a store",
		Long: `serve accepts events over HTTP and runs them. Any number of nodes can share one
PostgreSQL: pass them the same --store and --pipelines. SIGHUP reads the pipelines
again for all nodes, like procaas release reload. A set with errors or without
pipelines never replaces a good one. A node that starts with older pipelines than the
others uses theirs, and so does one that starts with errors in its files. Without
--pipelines and without files here, a node serves what procaas release deploy has
sent. SIGTERM drains the node.

The node waits for a store that is down. Meanwhile /healthz answers and /readyz
returns 503. The address of PostgreSQL may name several hosts: with
target_session_attrs=read-write the nodes find the primary, also after a failover.

` + ofAddons() + `The node sends traces over OTLP/HTTP when OTEL_EXPORTER_OTLP_ENDPOINT names a
collector. It also sends metrics with OTEL_METRICS_EXPORTER=otlp, and its log with
OTEL_LOGS_EXPORTER=otlp. The other OTEL_ variables work too.`,
		Example: "  procaas serve --store postgres://procaas@db/procaas --pipelines flows/ --listen 127.0.0.1:8080\n" +
			"  procaas serve --store 'postgres://procaas@db1,db2/procaas?target_session_attrs=read-write' --pipelines flows/",
		Args: cobra.NoArgs,
	}
	var f Flags
	f.Add(c, "sqlite:.procaas/procaas.db")
	c.Flags().StringSliceVarP(&f.Pipelines, "pipelines", "p", []string{"."}, "directories or files with pipelines")
	f.declareServed(c.Flags())
	c.Flags().StringVar(&f.Certificate, "tls-cert", "", "serve over TLS with this certificate, a PEM file with those of its issuers behind "+
		"it; read again when it changes")
	c.Flags().StringVar(&f.Key, "tls-key", "", "PEM file with the private key of --tls-cert")
	c.Flags().StringVar(&f.Admin, "listen-admin", "", "address of the console and of all calls; --listen has only those of submitters and "+
		"workers then")
	c.Flags().StringVar(&f.Metrics, "listen-metrics", "", "one more address, of the metrics and the health, without TLS")
	c.Flags().BoolVar(&f.Profile, "pprof", false, "let admins profile the process, at /debug/pprof/ where the console is")
	c.Flags().StringVar(&f.Issuers, "tls-client-ca", "", "PEM file with the issuers of client certificates, which stand for tokens: see "+
		"procaas token new --certificate")
	c.Flags().StringVar(&f.Keys, "encryption-keys", "", "encrypt payloads in the store, with the key-encryption keys of this file: see procaas "+
		"store keys")
	cli.ConfigFlag(c)
	check := c.Flags().Bool("check", false, "say what would keep the node from serving, and change nothing")
	cli.OnlyFlag(c, "check")
	c.RunE = func(c *cobra.Command, _ []string) error {
		f.Named, f.Config = c.Flags().Changed("pipelines"), c.Flag("config").Value.String()
		if *check {
			return checkServe(c.Context(), cli.Of(c), f)
		}
		return serve(c.Context(), cli.Of(c), f)
	}
	return c
}

// ofAddons is what the help of serve says about the flags of add-ons.
func ofAddons() string {
	var text strings.Builder
	for _, a := range addons.All() {
		if a.ServeHelp != "" {
			text.WriteString(a.ServeHelp + "\n\n")
		}
	}
	return text.String()
}

func serve(ctx context.Context, s cli.Streams, f Flags) error {
	hangups := catchHangups()
	survivePipes()
	f.loader = new(dsl.Loader)
	if _, err := cli.NewLogger(s, f.LogFormat, f.LogLevel); err != nil { // findings must not wait for their reader either
		return err
	}
	bundle, without, err := f.choose(ctx, s)
	if ctx.Err() != nil {
		return nil // it was stopped before it had pipelines
	}
	if _, refused := errors.AsType[*definitions.LoadError](err); refused {
		bundle, f.Unread = f.insteadOfFiles(ctx, s), err
		if bundle == nil {
			return err
		}
	} else if err != nil {
		return err
	}
	f.Patient = true
	n, err := Open(ctx, s, f, bundle)
	if err != nil && ctx.Err() != nil {
		return nil // it was stopped before it had a store
	}
	if err != nil {
		return err
	}
	if f.Unread != nil {
		n.log.Error("the pipelines of this node have errors, so it serves those that are current in the store; mend them, then procaas release reload",
			"current", bundle.Hash, "error", f.Unread)
	}
	if without && len(bundle.Pipelines) == 0 {
		n.log.Warn("there are no pipelines, neither here nor in the store; send some with procaas release deploy flows/ --server " + n.URL())
	}
	n.log.Info("serving", "address", n.URL(), "store", pgkit.Redact(f.Store), "pipelines", len(bundle.Pipelines))
	go n.reloadOnHangup(ctx, hangups)
	return n.Run(ctx)
}

// choose reads the pipelines from the files, or without any from the store.
func (f *Flags) choose(ctx context.Context, s cli.Streams) (b *tree.Bundle, without bool, err error) {
	if dir := f.configAmongPipelines(); dir != "" {
		return nil, false, cli.Usagef("--config %s lies in %s, where every YAML file is one of pipelines: keep it elsewhere, or name the "+
			"directory of the pipelines with pipelines: [DIR]", f.Config, dir)
	}
	b, err = f.load(ctx, s)
	if !errors.Is(err, source.ErrNoFiles) || f.Named && len(f.Pipelines) > 0 {
		return b, false, err
	}
	b, err = f.deployed(ctx)
	return b, true, err
}

// configAmongPipelines returns a directory of pipelines in which the file of the flags would be read as one of them, or "".
func (f *Flags) configAmongPipelines() string {
	config, err := filepath.Abs(f.Config)
	if err != nil || !source.IsPipeline(f.Config) {
		return ""
	}
	for _, dir := range source.Dirs(f.Pipelines) {
		from, err := filepath.Abs(dir)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(from, config)
		if err == nil && filepath.IsLocal(rel) && !strings.HasPrefix(rel, ".") && !strings.Contains(rel, string(filepath.Separator)+".") {
			return dir
		}
	}
	return ""
}

// load reads the pipelines until ctx ends. Reading has no end of its own where a disk or standard input hangs.
func (f *Flags) load(ctx context.Context, s cli.Streams) (*tree.Bundle, error) {
	type loaded struct {
		bundle *tree.Bundle
		err    error
	}
	done := make(chan loaded, 1)
	go func() {
		bundle, err := source.BundleBy(f.loader, s, f.Pipelines, dsl.Options{ServiceURLs: f.Services, Read: f.read})
		done <- loaded{bundle, err}
	}()
	select {
	case l := <-done:
		return l.bundle, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A Node is an engine with its store and its API, as in serve, dev, demo and run.
type Node struct {
	engine    *engine.Engine
	first     atomic.Pointer[tree.Bundle] // the definition before there is an engine; nil when there is one
	store     store.Store
	parts     []*plugged
	closing   chan struct{} // closed when Run begins to stop
	web       *web.Server
	apart     []apart // other addresses
	shadow    *replay.Shadow
	access    api.Options
	api       func(api.Part) http.Handler
	console   *ui.Console
	metrics   *prometheus.Registry
	telemetry *observe.Telemetry
	alerts    *alert.Alerter
	secrets   secret.Store
	targets   *outbound.Targets
	record    float64 // percentage of runs
	memory    *budget.Memory

	breakers outbound.Breakers
	log      *slog.Logger
	streams  cli.Streams
	flags    Flags
}

// Open checks the flags, binds the addresses, opens the store and creates the engine. Nothing runs before Run.
// It checks flags first, so that a mistyped flag is reported before an address in use.
func Open(ctx context.Context, s cli.Streams, f Flags, b *tree.Bundle) (node *Node, err error) {
	log, err := cli.NewLogger(s, f.LogFormat, f.LogLevel)
	if err != nil {
		return nil, err
	}
	access, err := f.Access.options(f.Listen)
	if err != nil {
		return nil, err
	}
	if access.Others, err = f.others(); err != nil {
		return nil, err
	}
	if beyond := f.beyond(access); beyond != "" && access.Token == "" && access.Others == nil && !stores.Exists(f.Store) {
		return nil, errNoToken(beyond)
	}
	maxBody, err := datum.ParseBytes(f.MaxBody)
	if err != nil {
		return nil, cli.Usagef("--max-body %q: %w", f.MaxBody, err)
	}
	access.MaxBody = int64(maxBody)
	limit, err := memoryLimit(f.Memory)
	if err != nil {
		return nil, err
	}
	access.Memory = budget.New(limit)
	if f.MaxInFlight == 0 {
		f.MaxInFlight = runsOf(limit, outbound.MostFiles())
	}
	if _, err := f.Stores(); err != nil {
		return nil, err
	}
	if err := f.check(b); err != nil {
		return nil, err
	}
	n := &Node{
		metrics: prometheus.NewRegistry(), log: log, streams: s, flags: f,
		shadow: replay.NewShadow(), closing: make(chan struct{}), memory: access.Memory,
	}
	if n.secrets, err = secret.New(f.SecretsDir, f.Access.File, access.Token); err != nil {
		return nil, err
	}
	if n.targets, err = outbound.ParseTargets(f.Targets); err != nil {
		return nil, cli.Usagef("--allow-target %w", err)
	}
	if f.Record != "" {
		if n.record, err = cli.Share(f.Record); err != nil {
			return nil, cli.Usagef("--record %w", err)
		}
	}
	if files, want := outbound.MostFiles(), filesOf(f.MaxInFlight); files > 0 && files < want {
		log.Warn("the process may have few open files, so it may refuse connections under load; raise the limit, for example by ulimit -n",
			"limit", files, "want", want)
	}
	n.metrics.MustRegister(observe.NewLostLines(s.Lost), &n.breakers, &observe.Memory{Of: n.memory}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if n.telemetry, n.log, err = observe.OpenTelemetry(ctx, nodeName(f.Name), log, n.metrics); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.telemetry.Close(log)
		}
	}()
	log = n.log
	certificate, issuers, err := f.certificate(log)
	if err != nil {
		return nil, err
	}
	if n.web, err = web.Listen(ctx, f.Listen, log, transport.Server); err != nil {
		return nil, cli.ListenError("listen", f.Listen, err)
	}
	err = n.listenApart(ctx)
	if certificate != nil {
		for _, a := range append(n.apart, apart{api.Whole, n.web}) {
			if a.part != api.Metrics {
				a.web.Encrypt(certificate, issuers)
			}
		}
	}
	n.access = access
	if err == nil {
		err = n.listen(ctx)
	}
	if err == nil {
		err = n.open(ctx, b, access)
	}
	if err != nil {
		return nil, errors.Join(err, n.closeWeb(), n.closeParts())
	}
	return n, nil
}

// Stores returns the options of the node's store. An error says what is wrong with the flags.
func (f *Flags) Stores() (stores.Options, error) {
	o := stores.Options{DSN: f.Store, Migrate: f.Migrate, Keys: f.Keys}
	err := o.Check()
	if err != nil {
		return o, err
	}
	for _, p := range f.processes() {
		if p.Attach != nil {
			o.Attach = append(o.Attach, p.Attach)
		}
	}
	o.Spread, err = f.spread()
	return o, err
}

// certificate reads that for TLS, and the issuers of those of clients; nil for none.
func (f *Flags) certificate(log *slog.Logger) (c *web.Certificate, issuers *x509.CertPool, err error) {
	if (f.Certificate == "") != (f.Key == "") {
		return nil, nil, cli.Usagef("--tls-cert and --tls-key need each other: a certificate and its private key")
	}
	if f.Certificate == "" {
		if f.Issuers != "" {
			return nil, nil, cli.Usagef("--tls-client-ca needs --tls-cert and --tls-key: clients show certificates over TLS only")
		}
		return nil, nil, nil
	}
	if f.Issuers != "" {
		if issuers, err = web.ReadIssuers(f.Issuers); err != nil {
			return nil, nil, cli.Usagef("--tls-client-ca: %w", err)
		}
	}
	c, err = web.ReadCertificate(f.Certificate, f.Key, log)
	return c, issuers, err
}

// open opens the store and creates the engine.
func (n *Node) open(ctx context.Context, b *tree.Bundle, access api.Options) (err error) {
	o, err := n.flags.Stores()
	if err != nil {
		return err
	}
	if n.flags.Patient {
		n.store, err = o.Await(ctx, n.log, func() {
			n.startWeb(func(api.Part) http.Handler { return transport.Unready(cli.Version()) })
			tell(n.log, waitsForStore)
		})
	} else {
		n.store, err = o.Open(ctx, n.log)
	}
	if err != nil {
		return fmt.Errorf("open store %s: %w", pgkit.Redact(n.flags.Store), err)
	}
	err = n.openParts(ctx, b)
	if err == nil {
		err = n.build(ctx, n.flags, b, access)
	}
	if err != nil {
		return errors.Join(err, n.store.Close())
	}
	return nil
}

func (n *Node) build(ctx context.Context, f Flags, b *tree.Bundle, served api.Options) error {
	o := engine.DefaultOptions()
	o.Store = n.store
	o.Types = n.types()
	o.Bundle, o.Compare = b, addons.Compare()
	o.Log = n.log
	o.Name = nodeName(f.Name)
	o.MaxInFlight = f.MaxInFlight
	o.Lease = f.Lease
	o.Drain = f.Drain
	o.Retention, o.AuditRetention, o.Record = f.Retention, f.Audit, n.record
	o.Metrics, o.Tracer = stats.NewMetrics(n.metrics), n.telemetry.Tracer()
	o.Secrets, o.ServiceURLs, o.Overrule = n.secrets.Value, f.Services, f.Overrule
	o.Targets = n.targets
	o.Erasers = n.erasers()
	o.Origin = n.origin
	o.Archive = n.archive()
	o.Shadow = n.shadow.Ended
	o.Memory = n.memory
	o.Unread = f.Unread
	if f.Alerts.wanted() {
		// There are no notices before Run, and the alerter exists then.
		o.Notify = func(x model.Notice) { n.alerts.Notice(x) }
	}
	e, err := engine.New(o)
	if err != nil {
		return err
	}
	n.engine = e
	n.first.Store(nil) // the engine has it as long as it is needed, and add-ons would keep it for ever
	n.shadow.ShadowParts = replay.ShadowParts{
		Env:     replay.Env{Types: o.Types, Alone: handlers.Alone(), Live: true},
		Library: e.Follower.Library, Runs: e.Runs, Tally: e.Degrader.Tally, Now: e.Clock.Now, Metrics: o.Metrics, Log: n.log,
	}
	beyond := f.beyond(served)
	if beyond != "" && served.Token == "" && served.Others == nil {
		guarded, err := e.Guarded(ctx)
		if err != nil {
			return err
		}
		if !guarded {
			return errNoToken(beyond)
		}
	}
	whole := wholeNode{e, n.parts}
	n.metrics.MustRegister(observe.NewDegraded(whole))
	if n.alerts, err = n.newAlerts(f, o.Name); err != nil {
		return err
	}
	served.Closing = n.closing
	for _, p := range f.processes() {
		if p.Calls != nil {
			served.Groups = append(served.Groups, p.Calls(e))
		}
		if p.Pages != nil {
			served.Pages = append(served.Pages, p.Pages(e)...)
		}
	}
	served.Engine = api.Of(e)
	served.Engine.Health, served.Engine.Console.Node = whole, whole
	served.Log = n.log
	served.Registry = n.metrics
	served.Version = cli.Version()
	served.Play, served.Files = playground.Play, linked{}
	served.Dev, served.Documents, served.TraceURL = f.read != nil, n.store.Documents, f.TraceURL
	if !goodTraceURL(f.TraceURL) {
		return cli.Usagef("--trace-url: want an address with {trace_id}, such as https://jaeger.example/trace/{trace_id}, have %q", f.TraceURL)
	}
	if !served.Local && len(served.Open) > 0 {
		n.log.Warn("some calls need no token, though others may reach this server; --open none closes them", "open", served.Open)
	}
	served.Reload, served.Profile = n.reload, f.Profile
	n.api, n.console = api.NewInParts(served)
	return nil
}

// Run works until ctx ends. Then it drains and closes everything.
func (n *Node) Run(ctx context.Context) error {
	floor := tuneCollector(int64(n.memory.Limit()))
	defer runtime.KeepAlive(floor)
	g, ctx := errgroup.WithContext(ctx)
	// Notices while the node drains are sent too.
	alerting, quiet := context.WithCancel(context.WithoutCancel(ctx))
	defer quiet()
	g.Go(func() error { n.alerts.Run(alerting, ctx.Done(), n.engine); return nil })
	g.Go(func() error {
		defer quiet()
		return n.engine.Run(ctx)
	})
	n.web.MakeRoom(n.free)
	n.startWeb(n.api)
	g.Go(func() error { n.reportUntil(ctx); return nil })
	g.Go(func() error { n.shadow.Run(ctx); return nil })
	g.Go(func() error { n.tellFlags(ctx); return nil })
	g.Go(func() error { n.follow(ctx); return nil })
	g.Go(func() error { freeUnused(ctx, n.engine.Reloaded); return nil })
	g.Go(func() error { return n.console.Run(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		close(n.closing)
		return nil
	})
	g.Go(func() error { return n.web.Run(ctx) })
	for _, a := range n.apart {
		g.Go(func() error { return a.web.Run(ctx) })
	}
	for _, p := range n.parts {
		if p.Run != nil {
			g.Go(func() error { return p.Run(ctx, n.running()) })
		}
	}
	err := g.Wait()
	err = errors.Join(err, n.closeParts())
	n.telemetry.Close(n.log)
	return errors.Join(err, n.store.Close())
}

// URL returns the address of the API.
func (n *Node) URL() string { return n.web.Scheme() + "://" + n.web.Addr() }

// reload reads the pipelines again, or a version from the store, and activates them on all nodes. It prints
// findings. If they are refused, the error is an [*definitions.LoadError], an [*definitions.DropError] or an
// [*definitions.VersionError].
func (n *Node) reload(ctx context.Context, how definitions.Change, by store.Actor) (diff.Diff, error) {
	bundle, err := n.wanted(ctx, how)
	if err != nil {
		return diff.Diff{}, err
	}
	if how.Try != nil && !how.Dry {
		return n.engine.TryVersion(ctx, bundle, *how.Try, by)
	}
	if err := n.accept(ctx, bundle); err != nil {
		return diff.Diff{}, err
	}
	if how.Dry {
		return n.engine.PreviewLoad(ctx, bundle, how)
	}
	diff, err := n.engine.LoadAs(ctx, bundle, how, by)
	if err != nil {
		return diff, err
	}
	// From the answer on, callers meet what the add-ons made of it.
	return diff, n.adopt(ctx)
}

// wanted returns a version from the store, a set from outside, or the files of this node.
func (n *Node) wanted(ctx context.Context, how definitions.Change) (*tree.Bundle, error) {
	s, f := n.streams, n.flags
	if how.To != "" {
		bundle, err := n.engine.Restore(ctx, how.To)
		return bundle, err
	}
	if how.Files != nil {
		bundle, found := dsl.Load(how.Files, dsl.Options{Language: addons.Language(), Types: addons.Types(), ServiceURLs: f.Services})
		if bundle == nil {
			return nil, &definitions.LoadError{Found: found}
		}
		return bundle, nil
	}
	if len(f.Pipelines) == 0 {
		return nil, definitions.ErrNoFiles
	}
	files, err := source.Pipelines(f.Pipelines, s.In)
	if err != nil {
		return nil, &definitions.LoadError{Err: err}
	}
	read := f.read
	if read == nil {
		read = source.TreesOf(f.Pipelines).Read
	}
	bundle, found := f.loader.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types(), Read: read, ServiceURLs: f.Services})
	if err := s.Findings(files, found); err != nil {
		n.log.Warn("findings cannot be shown", "error", err)
	}
	if bundle == nil {
		return nil, &definitions.LoadError{Found: found, Err: cli.ErrFindings}
	}
	return bundle, nil
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

// Engine returns the node's engine.
func (n *Node) Engine() *engine.Engine { return n.engine }

// Store returns the node's store.
func (n *Node) Store() store.Store { return n.store }

// Metrics returns the node's metrics.
func (n *Node) Metrics() prometheus.Gatherer { return n.metrics }
