package tree

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
)

// The structs of this file are the language. Their comments are its reference, their tags its constraints and
// defaults, and the types of their fields the types of values. JSON Schema, decoding, checks and "procaas
// explain" come from them.
// "procaas explain" come from them.
//
// Tags: yaml names the field; required, enum, default, min, max and pattern
// constrain it, or the elements of a list; kind says what a Value must be, and
// expr:"no" forbids expressions in it. One of the words may stand in place of a
// mapping; it fills the struct's Word.

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
	Clusters  []*Cluster
	Events    []*EventType
	ShardMaps []*ShardMap
	Detached  []*Handler // top-level handlers without a stage

	Index Index
}

// An Index finds the parts of a bundle. Of duplicates it has the first.
type Index struct {
	Flows     map[string]*Flow
	Events    map[string]*EventType
	Pipelines map[string]*Pipeline
	Services  map[string]*Service
	Clusters  map[string]*Cluster
	Handlers  map[string]*Handler // by path

	Serving  map[string][]*Pipeline // by event type
	Awaiting map[string][]*Pipeline // by event type, pipelines with handlers that wait for it
}

// NewIndex returns an empty index.
func NewIndex() Index {
	return Index{
		make(map[string]*Flow), make(map[string]*EventType), make(map[string]*Pipeline), make(map[string]*Service),
		make(map[string]*Cluster), make(map[string]*Handler), make(map[string][]*Pipeline), make(map[string][]*Pipeline),
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

// Cluster returns a cluster by its id, or nil.
func (b *Bundle) Cluster(id string) *Cluster { return b.Index.Clusters[id] }

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

	// ShardMaps say which shard has the data of a key.
	ShardMaps []*ShardMap `yaml:"shard-maps"`

	// Clusters are sets of workers that share partitions. One worker serves a partition at a time.
	Clusters []*Cluster `yaml:"clusters"`
}

// places has the positions of a struct's fields. It is unexported, so comparing and printing structs ignore it.
type places = spec.Places

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
	// handle, up to max-in-flight or 200. It lowers its limit, down to 1, when hardly any call succeeds or when calls
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

	// Owner is the team that looks after the service.
	Owner string `yaml:"owner"`

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

// A Flow is a kind of entity, such as an order. A key names one entity. Its events run one at a time, in the order in
// which the server accepted them.
type Flow struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the flow.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Key computes the entity that an event belongs to. It may only read event. Without it, the event itself must have a key.
	Key *expr.Value `yaml:"key"`

	// SharedState declares the values that an entity keeps between its events, with their initial values.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// StateSchemas has a schema for each name of the shared state. An initial value of null does not have to fit.
	StateSchemas *expr.Value `yaml:"state-schemas" kind:"map" expr:"no"`

	// States is a finite automaton of the entity. Only the engine changes the state, at the end of a run that succeeds.
	States *Automaton `yaml:"states"`

	// OnFailure decides about later events of an entity after a failed run. With block they wait until somebody retries
	// or cancels the run. With skip they run without it.
	OnFailure string `yaml:"on-failure" enum:"block,skip" default:"block"`

	// Owner is the team that looks after the flow.
	Owner string `yaml:"owner"`

	Contracts map[string]*contracts.Contract `yaml:"-"` // of names of the shared state
}

// An Automaton says which events an entity accepts in which state.
type Automaton struct {
	Span diag.Span `yaml:"-"`

	places

	// Initial is the state of an entity before its first event.
	Initial string `yaml:"initial" required:"true" pattern:"id"`

	// Final lists the states that have no way out.
	Final []string `yaml:"final" pattern:"id"`

	// Transitions lists the moves between states.
	Transitions []*Transition `yaml:"transitions" required:"true"`

	// Otherwise decides about an event without a transition. reject refuses it, ignore ends its run at once, and defer
	// makes it wait until the state changes.
	Otherwise string `yaml:"otherwise" enum:"reject,ignore,defer" default:"reject"`
}

// A Transition is one move of an automaton. It takes effect in the transaction that ends the run.
type Transition struct {
	Span diag.Span `yaml:"-"`

	places

	// From lists the states in which the entity accepts the event.
	From spec.Names `yaml:"from" required:"true"`

	// On lists the event types that cause the move.
	On spec.Names `yaml:"on" required:"true"`

	// To is the state after the run succeeded.
	To string `yaml:"to" required:"true" pattern:"id"`
}

// A Pipeline says what happens when an event arrives: its stages run in order.
type Pipeline struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the pipeline. It is the first part of the paths of its handlers.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Flow is the kind of entity that the pipeline serves. Without it, events are ordered only by the key that they
	// have themselves, if any.
	Flow string `yaml:"flow"`

	// On lists the event types that start the pipeline. Its default is the id of the pipeline.
	On spec.Names `yaml:"on"`

	// When must be true for the pipeline to serve an event. The first pipeline that serves an event gets it. The
	// expression may read event, configs and flow.
	When *expr.Value `yaml:"when" kind:"bool"`

	// SharedState declares the values that handlers pass to each other during one run, with their initial values.
	// Expressions read them as shared-state.NAME.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// StateSchemas has a schema for each name of the shared state. An initial value of null does not have to fit. A
	// handler that sets a value that does not fit fails.
	StateSchemas *expr.Value `yaml:"state-schemas" kind:"map" expr:"no"`

	// MaxState is the largest size of the shared state of a run, as JSON, and of each response that another handler
	// reads. A handler whose result would exceed it fails.
	MaxState datum.Bytes `yaml:"max-state" default:"256KiB" min:"1KiB" max:"64MiB"`

	// Inputs makes it a pipeline that other pipelines call, and that no event starts. It has a schema for each input,
	// which expressions read as inputs.NAME instead of event. An input whose schema has a default is optional.
	Inputs *expr.Value `yaml:"inputs" kind:"map" expr:"no"`

	// Outputs is the result of a run. The engine computes it after the last stage. Callers that wait for the run get
	// it, and GET /v1/runs/{id} shows it. If another pipeline calls this one, it is the response of the call. If it
	// cannot be computed, the run fails.
	Outputs *expr.Value `yaml:"outputs" kind:"map"`

	// OutputSchemas has a schema for each output. A run or a call whose outputs do not fit fails.
	OutputSchemas *expr.Value `yaml:"output-schemas" kind:"map" expr:"no"`

	// Deadline is the longest time that a run of the pipeline may take, with all its attempts and waits. Then no
	// other attempt starts: a critical handler that is not done fails with an error of the class deadline, and the run
	// continues without the others. If other pipelines call this one, the deadline applies to each call.
	Deadline time.Duration `yaml:"deadline" min:"1ms"`

	// Weight is the pipeline's part of the nodes, against 1 of others, while more runs wait than the nodes can do at once.
	// Pipelines of one owner share one part. The sources of a pipeline's events have equal parts of it.
	Weight int `yaml:"weight" default:"1" min:"1" max:"100"`

	// Queue makes the pipeline a type of tasks with a queue of their own.
	Queue *Queue `yaml:"queue"`

	// Stages run in order. Each starts when the one before it is complete.
	Stages []*Stage `yaml:"stages"`

	// Keep is how many of the latest ended runs the server keeps. Use it for pipelines that run by the clock, whose
	// runs nobody looks at later. The server deletes older ones about once a minute. Without it, the server keeps all
	// runs for its retention.
	Keep int `yaml:"keep" min:"1" max:"1000000"`

	// KeepFailed is how many of the latest failed runs wait for people. Use it for pipelines that run by the clock,
	// where the next run repeats what a failed one missed. About once a minute the server cancels older ones, so that a
	// pipeline that fails each second does not fill the store. keep then limits the cancelled runs. Without it, each
	// failed run waits until somebody retries or cancels it.
	KeepFailed int `yaml:"keep-failed" min:"1" max:"1000000"`

	// Owner is the team that looks after the pipeline. Other owners may then add handlers
	// only as contributions says.
	Owner string `yaml:"owner"`

	// Contributions says which other owners may add handlers to the pipeline, where,
	// and what these handlers may do. A pipeline that has an owner takes no others. An
	// empty list closes a pipeline without an owner, too.
	Contributions []*Contribution `yaml:"contributions"`

	// What the checks make of the above.
	Contracts       map[string]*contracts.Contract `yaml:"-"` // of names of the shared state, those of the flow included
	InputContracts  map[string]*contracts.Contract `yaml:"-"`
	OutputContracts map[string]*contracts.Contract `yaml:"-"`
	Response        *typing.Outline                `yaml:"-"` // what is known of the outputs
	Level           int                            `yaml:"-"` // of calls below it
	Called          bool                           `yaml:"-"` // by a handler of the bundle
}

// FlowID returns the flow of a pipeline. A pipeline without a flow is its own flow.
func (p *Pipeline) FlowID() string { return cmp.Or(p.Flow, p.ID) }

// OnPlace returns the position of the i-th event type of the pipeline, or that of its id if it names none.
func (p *Pipeline) OnPlace(i int) diag.Span {
	return p.PlaceOf(fmt.Sprintf("on[%d]", i), p.PlaceOf("on", p.PlaceOf("id", p.Span)))
}

// StageIDs returns the ids of the stages, in order.
func (p *Pipeline) StageIDs() []string {
	ids := make([]string, 0, len(p.Stages))
	for _, s := range p.Stages {
		ids = append(ids, s.ID)
	}
	return ids
}

// StateContract returns the contract of a name of the shared state, or nil if it may be anything.
func (p *Pipeline) StateContract(name string) *contracts.Contract { return p.Contracts[name] }

// A Stage is a group of handlers. They run in parallel when the engine can prove that this is safe.
type Stage struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the stage. It is the second part of the paths of its handlers.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Enabled says whether the run includes the stage. It is computed once, before any of its handlers starts.
	Enabled *expr.Value `yaml:"enabled" kind:"bool"`

	// Deadline is the longest time that the stage may take. It ends like the deadline of a pipeline.
	Deadline time.Duration `yaml:"deadline" min:"1ms"`

	// ForEach repeats the whole stage for each element of a list. Expressions in the stage may read item, the element,
	// and index, its place from 0. Each element runs through the stage by itself, with its own checkpoints. Outside,
	// the stage looks like one handler with its id. Its response, sources.STAGE.response, is the list of the final
	// shared states of the elements, in order.
	ForEach *ForEach `yaml:"for-each"`

	// SharedState declares the shared state of one element of for-each, with initial values. Handlers of the stage set
	// these names, and may read them and those of the run.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// StateSchemas has a schema for each name of the shared state of one element. An initial value of null does not have to fit.
	StateSchemas *expr.Value `yaml:"state-schemas" kind:"map" expr:"no"`

	// Result sets the shared state of the run when all elements of for-each are done. It may read sources.STAGE.response.
	Result *expr.Value `yaml:"result" kind:"map"`

	// Handlers are the steps of the stage.
	Handlers []*Handler `yaml:"handlers"` // those of the branches follow, once the bundle is made

	// Choose lists alternative branches. The stage runs the first branch whose when is true.
	Choose []*Branch `yaml:"choose"`

	loop *Handler  // the handler that a repeated stage is from outside
	once *Pipeline // the pipeline of one element
}

// A Handler is one step: a call of a service or a computation. The key that names its type, such as request, has the fields of that type.
type Handler struct {
	Span diag.Span `yaml:"-"`

	places

	// Path is pipeline/stage/handler; empty for a detached handler.
	Path string `yaml:"-"`

	// Branch is the branch of its stage that the handler belongs to; nil for none.
	Branch *Branch `yaml:"-"`

	// ID names the handler. It is the last part of its path.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Into names the stage of another team's pipeline to add the handler to: pipeline/stage.
	Into string `yaml:"into"`

	// Owner is the team that looks after the handler and gets its alerts.
	Owner string `yaml:"owner"`

	// SharedState declares names of a contribution's own, with the first values. The
	// handler sets them like any others. Everybody reads them as shared-state.HANDLER.NAME.
	// Only for handlers with into.
	SharedState *expr.Value `yaml:"shared-state" kind:"map" expr:"no"`

	// Critical says that the run cannot succeed without the handler. A contribution must set it.
	Critical *bool `yaml:"critical" default:"true"`

	// Detached lets later stages begin before the handler is done. The run still ends after it. It is only for handlers
	// that are not critical and have nothing in common with what comes after them.
	Detached bool `yaml:"detached"`

	// Enabled says whether the run includes the handler.
	Enabled *expr.Value `yaml:"enabled" kind:"bool"`

	// Use inserts the handler of a template. Fields next to it replace those of the template.
	Use *Use `yaml:"use"`

	// Await makes the handler wait for an event of the same key, instead of a call.
	Await *Await `yaml:"await"`

	// Call runs another pipeline, instead of a call of a service.
	Call *Call `yaml:"call"`

	// ForEach repeats the call for each element of a list.
	ForEach *ForEach `yaml:"for-each"`

	// Type is the name of the handler type; empty for a placeholder that does
	// nothing.
	Type string `yaml:"-"`

	// Body holds the fields of the type, checked against its Spec.
	Body *expr.Value `yaml:"-"`

	// ResponseSchema is the schema of the handler's response. It is needed if no OpenAPI document of the service
	// declares the response. A response that does not fit is an error of the class schema. The node does not retry it
	// unless retry lists that class.
	ResponseSchema *expr.Value `yaml:"response-schema" kind:"schema" expr:"no"`

	// Result sets the shared state after the handler succeeded: names and their values, in order.
	Result *expr.Value `yaml:"result" kind:"map"`

	// Touches names effects outside the shared state. Handlers of a stage that touch the same thing run in order.
	Touches spec.Names `yaml:"touches"`

	// Timeout bounds one attempt.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`

	// Deadline is the longest time that all attempts of the handler may take together, with the waits before and
	// between them. The header X-Procaas-Time-Left tells the service how many milliseconds are left. An attempt in
	// flight ends at the deadline, and none starts later. Then the handler fails with an error of the class deadline. The
	// default is 2s for a request that is not critical and has no deadline, timeout, retry, rate-limit or max-in-flight.
	Deadline time.Duration `yaml:"deadline" min:"1ms"`

	// Retry says how the node retries failed attempts.
	Retry *Retry `yaml:"retry"`

	// OnUnknown decides about a call that was in flight when its node died, so that its result is unknown. retry, the
	// default, repeats it with the same Idempotency-Key. park makes the run wait until an operator retries or cancels
	// it. verify asks the service.
	OnUnknown *OnUnknown `yaml:"on-unknown" words:"retry,park"`

	// Compensate is a call that undoes the handler when the run fails for good.
	Compensate *Compensation `yaml:"compensate"`

	// OnError lists rules for a call that failed for good. The first rule that matches applies.
	OnError []*OnError `yaml:"on-error"`

	// Rollout runs the handler only in a share of the runs. It is only for handlers that are not critical.
	Rollout *Rollout `yaml:"rollout"`

	// RateLimit limits how often the handler is called, on all nodes together.
	RateLimit *RateLimit `yaml:"rate-limit"`

	// MaxInFlight is the highest number of calls of the handler in flight, on all nodes together. 0 is no limit. Each
	// node gets an equal part of it, but at least 1.
	MaxInFlight int `yaml:"max-in-flight" min:"1" max:"1000000"`

	// Fallback says when the engine takes the handler out of the flow, and which result replaces its own meanwhile. It
	// is only for handlers that are not critical.
	Fallback *Fallback `yaml:"fallback"`

	// What the checks make of the above.
	ResponseContract *contracts.Contract `yaml:"-"` // of ResponseSchema; nil for anything
	Calls            *contracts.Call     `yaml:"-"` // of a service with an OpenAPI document; nil when that is not known
	Expected         *typing.Outline     `yaml:"-"` // what the responses of calls are

	// LeadsBack says that the handler emits an event, or puts a task, that may lead back
	// to its pipeline, by way of others or not.
	LeadsBack bool `yaml:"-"`

	undo *Handler // the compensation as a handler
	loop *Stage   // the repeated stage that this handler is from outside
}

// Place sets the path of the handler and of its compensation.
func (h *Handler) Place(path string) {
	h.Path = path
	if h.Compensate != nil {
		h.undo = h.undoBy(h.Compensate)
	}
}

// CheckResponse checks the response of the handler against its schema, or against the service's OpenAPI
// document for the status. status is 0 for responses without one. The error is a [*contracts.Error], or that of
// ctx.
func (h *Handler) CheckResponse(ctx context.Context, status int, data any) error {
	if h.ResponseContract != nil {
		return h.ResponseContract.CheckContext(ctx, data)
	}
	if h.Expected == nil || status < 100 {
		return nil
	}
	return h.Calls.Check(ctx, status, data)
}

// ConditionReads lists what enabled and rollout read.
func (h *Handler) ConditionReads() []datum.Read {
	if h.Rollout == nil {
		return h.Enabled.Reads()
	}
	return slices.Concat(h.Enabled.Reads(), h.Rollout.By.Reads())
}

// Reads lists everything that the handler reads, including its verification, its fallback and the rules of
// on-error.
func (h *Handler) Reads() []datum.Read {
	out := slices.Concat(h.ConditionReads(), h.ItemReads(), h.AwaitReads(), h.BodyReads(), h.Result.Reads(), h.VerifyReads(), h.ErrorReads(),
		h.CompensateReads())
	if h.Fallback != nil {
		out = append(out, h.Fallback.Result.Reads()...)
	}
	return out
}

// IsCritical reports whether the run cannot succeed without the handler.
func (h *Handler) IsCritical() bool { return h.Critical == nil || *h.Critical }

// A Retry is the policy for failed attempts. The delay before the first retry is min-delay, and each further delay is
// factor times as long, up to max-delay. Jitter spreads the retries of many callers over time.
//
// If a service asks for a longer delay with Retry-After, the node waits at least that long. Jitter is added to it.
type Retry struct {
	Span diag.Span `yaml:"-"`

	places

	// Attempts is the highest number of attempts, including the first. 0 is no limit. While a declared service is down,
	// one call at a time tries whether it is back. For critical handlers these calls do not count as attempts, unless
	// attempts is 1.
	Attempts int `yaml:"attempts" default:"3" min:"0" max:"1000000"`

	// MinDelay is the delay before the first retry.
	MinDelay time.Duration `yaml:"min-delay" default:"100ms" min:"1ms"`

	// MaxDelay is the longest delay. Jitter by a share may exceed it.
	MaxDelay time.Duration `yaml:"max-delay" default:"15m" min:"1ms"`

	// Factor multiplies the delay with each retry.
	Factor float64 `yaml:"factor" default:"2" min:"1" max:"100"`

	// Jitter varies the delay at random. A share from 0 to 1, such as 0.1, adds a normally distributed deviation of
	// this share of the delay, from the second retry on. full chooses a delay between 0 and the computed one.
	// decorrelated chooses between min-delay and three times the delay before, and ignores factor.
	Jitter datum.Jitter `yaml:"jitter" default:"0.1"`

	// On lists the classes of errors to retry: timeout, connection, 5xx, 4xx, a single status such as 429, schema for a
	// response that does not fit its schema, other, or any.
	On spec.Names `yaml:"on" default:"timeout,connection,5xx,408,425,429" pattern:"class"`
}

// An OnUnknown says how to find out whether a call took effect.
type OnUnknown struct {
	Span diag.Span `yaml:"-"`

	places

	// Word is retry or park; empty when there is a mapping.
	Word string `yaml:"-"`

	// Verify is a call that asks whether the other one took effect.
	Verify *Verify `yaml:"verify" required:"true"`
}

// Parks reports whether a call with an unknown outcome waits for an operator.
func (h *Handler) Parks() bool { return h.OnUnknown != nil && h.OnUnknown.Word == "park" }

// Verification returns the call that verifies the handler's own call, or nil.
func (h *Handler) Verification() *Verify {
	if h.OnUnknown == nil {
		return nil
	}
	return h.OnUnknown.Verify
}

// A Verify is a call that asks whether another one took effect. In addition to done it has one handler type, such as
// request, with its fields. It uses the retry and the timeout of the handler.
type Verify struct {
	Span diag.Span `yaml:"-"`

	places

	// Type is the name of the handler type; empty when there is none.
	Type string `yaml:"-"`

	// Body holds the fields of the type, checked against its Spec.
	Body *expr.Value `yaml:"-"`

	// Done reports whether the call took effect. Here sources.HANDLER.response and sources.HANDLER.status are those of
	// the verification. If it is true, the handler has succeeded with that response. If it is false, the node repeats
	// the call with the same Idempotency-Key.
	Done *expr.Value `yaml:"done" kind:"bool" required:"true"`
}

// A Trigger sends an event by the clock, once for all nodes.
type Trigger struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the trigger.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Every is the time between two events.
	Every time.Duration `yaml:"every" min:"100ms"`

	// Cron says when, in five fields: minute, hour, day, month, weekday.
	Cron string `yaml:"cron"`

	// TimeZone is the IANA name of the time zone of cron.
	TimeZone string `yaml:"time-zone" default:"UTC"`

	// Event is the type of the event.
	Event string `yaml:"event" required:"true"`

	// Key is the key of the event.
	Key string `yaml:"key"`

	// Payload is the payload of the event.
	Payload *expr.Value `yaml:"payload" expr:"no"`

	// CatchUp decides about events that were due while no node ran. skip drops them, once sends one for all of them, and all sends each.
	CatchUp string `yaml:"catch-up" enum:"skip,once,all" default:"skip"`
}

// IDPlace returns the position of the handler's id.
func (h *Handler) IDPlace() diag.Span { return h.PlaceOf("id", h.Span) }

// AlwaysSucceeds reports whether a run continues after the handler only if it succeeds.
func (h *Handler) AlwaysSucceeds() bool {
	goesOn := func(o *OnError) bool { return o.GoesOn() }
	return h.IsCritical() && h.Enabled.IsNull() && h.Rollout == nil && !slices.ContainsFunc(h.OnError, goesOn)
}
