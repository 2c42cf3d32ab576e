// Package addon is where a product is plugged into procaas: the queue, the balancer, the shards, the inbox over
// several databases. The core knows only the types of this package. The list of add-ons is in cmd/procaas/addons.
//
// Three values describe an add-on. An [Addon] is what commands know without a node: the handler types that validate,
// explain and the schema need. A [Process] is what a command that runs a node has of it, from its flags on. A [Part]
// is what a node runs, once its store is open.
package addon

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/alert"
	"procaas/engine/api"
	"procaas/engine/api/access"
	"procaas/engine/api/cli"
	"procaas/engine/api/problem"
	"procaas/engine/api/ui"
	"procaas/engine/budget"
	"procaas/engine/checkpoint"
	"procaas/engine/diff"
	"procaas/engine/outbound"
	"procaas/engine/records"
	"procaas/engine/secrets"
	"procaas/engine/store"
)

// An Addon is all that a product adds. Fields are nil for what it does not add.
type Addon struct {
	Name string // one word, for messages

	// Sections are what it adds to the language of files.
	Sections []tree.Section

	// Compare finds differences of two definitions in these sections, for people.
	Compare diff.Comparer

	// Problems are why its calls are refused. [Process.Calls] has the calls.
	Problems []problem.Kind

	// Types returns its handler types as the language sees them. Those of [Part.Types] replace them on a node. To describe
	// them takes milliseconds, which most commands can do without.
	Types func() []engine.HandlerType

	// Tables are the migrations of its tables, in a sequence of its own behind that of the store. Its Name is that of the add-on.
	Tables store.Tables

	// Alerts returns its alerting rules, whose commands name a server.
	Alerts func(server string) []alert.Rule

	// Examine asks a server how the add-on is there, for procaas doctor. A server without the add-on has no findings.
	Examine func(*cli.Call) ([]store.Check, error)

	// Commands returns its commands, new ones for each call.
	Commands func(Tools) []Command

	// ServeHelp is a paragraph of the help of procaas serve about the add-on's flags.
	ServeHelp string

	// Demo makes the command that shows the add-on at work, a new one for each call.
	Demo func() Demo

	// New makes the add-on's part in one command that runs a node. Nil adds nothing to nodes.
	New func() *Process
}

// Tools are what commands of an add-on use of the program.
type Tools struct {
	// Bundle reads and checks pipelines, and prints findings. Without paths it reads the working directory.
	Bundle func(s cli.Streams, paths []string) (*tree.Bundle, error)

	// Secret returns a secret from the environment of the command.
	Secret func(secrets.Use) (string, error)
}

// A Command is a command of an add-on, with its own below it.
type Command struct {
	*cobra.Command

	// Under is the name of the command that this one is below. Empty is the program itself, whose help lists it
	// among those that operate a server, unless it has another GroupID.
	Under string
}

// A Demo is a command that runs a node of its own on this machine. The program adds the flags of nodes to it. It uses a
// temporary store and a free address, unless these flags say otherwise.
type Demo struct {
	*cobra.Command // without RunE

	// Run runs the demo until ctx ends.
	Run func(ctx context.Context, s cli.Streams, open OpenDemo) error
}

// An OpenDemo opens the node of a demo. Nothing runs before Run.
type OpenDemo func(ctx context.Context, n DemoNode) (Node, error)

// A DemoNode says what the node of a demo has beyond others.
type DemoNode struct {
	Shipped string            // folder of pipelines that come with the program
	Files   []diag.File       // files beside those, or instead of those with the same name
	Flags   map[string]string // of the add-on, such as proxy
	Store   string            // address of a store of the demo's own; empty for that of the flags
}

// A Node is a node of the program.
type Node interface {
	Run(ctx context.Context) error // works until ctx ends, and closes the node
	URL() string                   // of the API
	Listening() []string           // addresses of the add-ons, see [Process.Addresses]
	Engine() *engine.Engine
	Store() store.Store
}

// A Process is an add-on in a process that may run a node. Its functions share the values of its flags. They
// are called in the order of the fields, each at most once but for Attach. All may be nil.
type Process struct {
	// Flags declares flags of all commands that run a node. ServeFlags declares those that only procaas serve has.
	Flags      func(*pflag.FlagSet)
	ServeFlags func(*pflag.FlagSet)

	// Addresses lists the addresses that Listen will bind or has bound. A node that other machines reach needs tokens.
	Addresses func() []string

	// Check returns what is wrong with the flags. It is called before any address is bound and before the store
	// is opened, so that a mistyped flag is reported first.
	Check func(*tree.Bundle) error

	// Identifier recognises callers without a token of the server. It returns nil if the flags name none, and what is wrong
	// with them. It is called before Check. A node with one needs no token to be reached from other machines.
	Identifier func() (access.Identifier, error)

	// Spread returns how to open a store that consists of several databases, if the flags name more than dsn, which is
	// that of the node. It is called with Check, and returns what is wrong with the flags. Nil opens one database.
	Spread func(dsn string) (Spread, error)

	// Listen binds addresses of its own. Nothing answers there before [Part.Run].
	Listen func(context.Context, *slog.Logger) error

	// Attach adds ports of the add-on to a database of the store that has been opened in PostgreSQL. It is called for
	// each database, and again when a database that was away is opened. Closing the cell closes what Attach opened. After an
	// error, both are closed.
	Attach func(ctx context.Context, c *store.Cell, dsn string, log *slog.Logger) error

	// Open makes the part of a node whose store is open. The engine exists only when [Part.Run] is called, because
	// it needs the part's handler types.
	Open func(context.Context, *Host) (*Part, error)

	// Calls returns its calls of the API. They answer also if the add-on does not work on this node, and say why.
	Calls func(*engine.Engine) api.Group

	// Pages returns its pages of the console. They are there also if the add-on does not work on this node, and say why.
	Pages func(*engine.Engine) []ui.Page

	// Close undoes Listen and Open, also if one of them failed or was not called. It is called last, when nothing
	// of the node runs.
	Close func() error
}

// A Spread opens a store of several databases. One opens each of them, in PostgreSQL. A node whose store is away calls it again.
type Spread func(ctx context.Context, one func(ctx context.Context, dsn string) (*store.Cell, error), log *slog.Logger) (store.Store, error)

// A Host is what a node offers to its add-ons.
type Host struct {
	Name string // of the node, for people
	// DSN is the address of the store, for add-ons that open connections of their own. Postgres says that it is
	// one of PostgreSQL.
	DSN      string
	Postgres bool
	Store    store.Store

	Bundle  func() *tree.Bundle // the definition that serves new events
	Now     func() time.Time    // by the store's clock
	Secrets func(secrets.Use) (string, error)
	Targets *outbound.Targets
	// HTTP returns a client for requests of the node itself, to what name says. After failures it makes none for
	// a pause.
	HTTP    func(name string, pause time.Duration) *http.Client
	Memory  *budget.Memory
	Metrics prometheus.Registerer
	Log     *slog.Logger

	Lease, Retention time.Duration // see [engine.Options]
}

// A Part is what an add-on runs on one node. All fields may be nil.
type Part struct {
	// Types are handler types that use what Open has opened. Each replaces the type of its name.
	Types []engine.HandlerType

	// Accept returns why a definition cannot become current on all nodes, as far as this add-on knows. The error is
	// a [*definitions.LoadError] if the definition is wrong. Others may pass.
	Accept func(context.Context, *tree.Bundle) error

	// Adopt follows a definition that has become current. After an error it is tried again each second, also with
	// a later definition.
	Adopt func(context.Context, *tree.Bundle) error

	// Degraded returns what of the add-on does not work although the node does, for people, or nil. The node stays ready.
	Degraded func() error

	// Free closes connections that nobody needs now.
	Free func()

	// Erase removes what the add-on has stored of a key.
	Erase store.EraseFunc

	// Origin says in words where an event came from, if the add-on has submitted it, and "" for others.
	Origin func(context.Context, checkpoint.EventView) string

	// Archive says where ended runs go before they leave the store. Only one add-on may have one.
	Archive records.ArchiveOptions

	// Run works until ctx ends.
	Run func(context.Context, Running) error
}

// A Running is a node while it runs.
type Running struct {
	Engine *engine.Engine

	// Access are the rules for callers of the API. An add-on with an address of its own sets Local for it.
	Access access.Options

	// Free closes connections that nobody needs, when the process has too many open files.
	Free func()
}
