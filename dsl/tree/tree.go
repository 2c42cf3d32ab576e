package tree

import (
	"cmp"
	"time"

	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Bundle is a complete definition, merged and checked. It is immutable.
type Bundle struct {
	Hash  string      // hex SHA-256 of the names and contents of Files
	Files []diag.File // sorted by name

	Flows     []*Flow
	Pipelines []*Pipeline // contributions are already in their stages
	Services  []*Service
	Configs   []*Config
	Triggers  []*Trigger
	Templates []*Template
	Events    []*EventType
	Detached  []*Handler // top-level handlers without a stage

	added // sections of add-ons, see In

	Language *Language

	Index Index
}

// An Index finds the parts of a bundle. Of duplicates it has the first.
type Index struct {
	Flows     map[string]*Flow
	Events    map[string]*EventType
	Pipelines map[string]*Pipeline
	Services  map[string]*Service
	Handlers  map[string]*Handler // by path

	Serving  map[string][]*Pipeline   // by event type
	Awaiting map[string][]*Pipeline   // by event type, pipelines with handlers that wait for it
	Kept     map[string]time.Duration // by event type, the longest max-age of handlers that take it from the buffer
}

// NewIndex returns an empty index.
func NewIndex() Index {
	return Index{
		make(map[string]*Flow), make(map[string]*EventType), make(map[string]*Pipeline), make(map[string]*Service),
		make(map[string]*Handler), make(map[string][]*Pipeline), make(map[string][]*Pipeline),
		make(map[string]time.Duration),
	}
}

// Flow returns a flow by its id, or nil.
func (b *Bundle) Flow(id string) *Flow { return b.Index.Flows[id] }

// Event returns the declaration of an event type, or nil.
func (b *Bundle) Event(eventType string) *EventType { return b.Index.Events[eventType] }

// Pipeline returns a pipeline by its id, or nil.
func (b *Bundle) Pipeline(id string) *Pipeline { return b.Index.Pipelines[id] }

// Service returns a service by its id, or nil.
func (b *Bundle) Service(id string) *Service { return b.Index.Services[id] }

// Handler returns a handler by its path, pipeline/stage/handler, or nil.
func (b *Bundle) Handler(path string) *Handler { return b.Index.Handlers[path] }

// On lists the pipelines that an event type may start, in the order of their declaration. All belong to one
// flow.
func (b *Bundle) On(eventType string) []*Pipeline { return b.Index.Serving[eventType] }

// A Document is the top level of one file.
type Document struct {
	// Owner is the team that looks after everything in the file that names no owner itself. Without it, it is the
	// first owner of the file in CODEOWNERS.
	Owner string `yaml:"owner"`

	// Services lists whom handlers may call. When any are declared, requests
	// reach no other hosts.
	Services []*Service `yaml:"services"`

	// Configs are live settings that expressions read as configs.NAME; they
	// are changed at run time, and these are their first values.
	Configs *expr.Value `yaml:"configs" kind:"map" expr:"no"`

	// ConfigSchemas says what configs must be: a schema by the name of each.
	ConfigSchemas *expr.Value `yaml:"config-schemas" kind:"map" expr:"no"`

	// Schemas are JSON Schemas by name. Wherever a schema is wanted, one of these
	// names may stand, or a file such as order.schema.json, or a part of a file
	// such as orders.yaml#/components/schemas/Order, or the schema itself. Files
	// are found relative to the one that names them. A $ref means the same.
	//
	// Expressions are checked against schemas before anything runs, and data when
	// it comes. What has no schema may be anything.
	Schemas *expr.Value `yaml:"schemas" kind:"map" expr:"no"`

	// Events says what events carry.
	Events []*EventType `yaml:"events"`

	// Flows lists the kinds of entities, such as an order.
	Flows []*Flow `yaml:"flows"`

	// Pipelines lists what to do when an event comes.
	Pipelines []*Pipeline `yaml:"pipelines"`

	// Handlers are contributions to the stages of other teams' pipelines.
	Handlers []*Handler `yaml:"handlers"`

	// Templates are handlers that you write once and use in several places.
	Templates []*Template `yaml:"templates"`

	// Triggers send events by the clock.
	Triggers []*Trigger `yaml:"triggers"`

	added

	Language *Language `yaml:"-"` // of the file
}

// A Service is a system that handlers may call. After a reply 429 or 503 with Retry-After, no handler calls it for that
// time, up to a minute. Then a single call tries whether it works again.
type Service struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the service in requests.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// URL is the address of the service: scheme, host, port and an optional path. The path of a request is appended to it.
	URL string `yaml:"url" required:"true"`

	// Timeout is the longest time of one attempt, unless the request sets its own timeout.
	Timeout time.Duration `yaml:"timeout" default:"5s" min:"1ms"`

	// MaxInFlight is the highest number of calls to the service in flight, on all nodes together. 0 is no limit. Each
	// node gets an equal part of it, but at least 1.
	MaxInFlight int `yaml:"max-in-flight" min:"1" max:"1000000"`

	// Concurrency limits calls in flight further. With adaptive, each node finds out how many calls the service can
	// handle, up to max-in-flight, or as many as the node works on. It lowers its limit, down to 1, when hardly any call succeeds or when calls
	// get much slower. It raises the limit while all is well. Calls over the limit wait, the oldest first. A call of a
	// handler that is not critical waits at most as long as its attempts would take. While the service is down, attempts of critical handlers do not count. fixed
	// turns all this off: only max-in-flight limits calls, and every attempt counts.
	Concurrency string `yaml:"concurrency" enum:"adaptive,fixed" default:"adaptive"`

	// RetryBudget is the share of the calls of the last 10 seconds that may be retries. Retries over it wait. Ten
	// retries per second are always allowed, on all nodes together. 1 is no limit.
	RetryBudget float64 `yaml:"retry-budget" default:"0.2" min:"0" max:"1"`

	// KeepAlive lets calls reuse connections to the service. Set it to false for a service that may send two responses
	// to one request. The second one would count as the response to the next request, perhaps of another run.
	KeepAlive bool `yaml:"keep-alive" default:"true"`

	// FreezeFallbacks keeps the handlers of the service in the flow while half of all services fail at once, since the
	// cause may be on your side. With false, they go out of the flow even then.
	FreezeFallbacks bool `yaml:"freeze-fallbacks" default:"true"`

	// Shadow lets a version in the shadow call the service for real, although the calls are no GET. Set it
	// for a service that changes nothing, or that heeds the header X-Procaas-Shadow.
	Shadow bool `yaml:"shadow" default:"false"`

	// OpenAPI is the file of the service's OpenAPI document, version 3.0 or 3.1, relative to this file. The requests of
	// handlers must fit it, and their responses have the types that it declares.
	OpenAPI string `yaml:"openapi"`

	// CheckResponses makes a response that does not fit the document an error of the class schema. false accepts every response.
	CheckResponses bool `yaml:"check-responses" default:"true"`

	// Auth is how calls prove to the service who they are. Requests that name the service get it, those with a url do not.
	Auth *Auth `yaml:"auth"`

	// TLS is which certificate the node shows to the service, and which issuers it trusts. Requests that name the service use it,
	// those with a url do not.
	TLS *Certificates `yaml:"tls"`

	// Owner is the team that looks after the service.
	Owner string `yaml:"owner"`

	// OfNode is the highest number of calls of a node in flight, instead of a part of MaxInFlight. 0 is no limit of its own.
	OfNode int `yaml:"-"`

	Instead string `yaml:"-"` // of URL, where the files serve in another place
}

// Address returns the URL of the service, or its replacement.
func (s *Service) Address() string { return cmp.Or(s.Instead, s.URL) }

// A Config is a live setting with its first value.
type Config struct {
	Span  diag.Span
	Name  string
	Value any

	Contract *contracts.Contract // nil if the setting may be anything
}
