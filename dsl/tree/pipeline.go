package tree

import (
	"cmp"
	"fmt"
	"time"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
)

// A Pipeline says what happens when an event arrives: its stages run in order.
type Pipeline struct {
	Span diag.Span `yaml:"-"`

	places
	added

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
	// continues without the others. If other pipelines call this one, the deadline applies to each call. It may be an
	// expression over configs whose result is text such as 30s.
	Deadline time.Duration `yaml:"deadline" min:"1ms" live:"true"`

	// Live has the expression of deadline.
	Live Times `yaml:"-"`

	// Target is how long a run should take, from the acceptance of its event. It changes no run. In 99 of 100 runs it should be
	// kept: the server counts the others against an error budget of seven days, and alerts when the p99 of ten minutes is over it.
	Target time.Duration `yaml:"target" min:"1ms"`

	// Weight is the pipeline's part of the nodes, against 1 of others, while more runs wait than the nodes can do at once.
	// Pipelines of one owner share one part. The sources of a pipeline's events have equal parts of it.
	Weight int `yaml:"weight" default:"1" min:"1" max:"100"`

	// Stages run in order. Each starts when the one before it is complete.
	Stages []*Stage `yaml:"stages"`

	// Finally lists handlers that run after everything else, whether the run succeeded, failed or was cancelled, and
	// after its compensations. They may read run.status and run.error. Each of them is tried, also after another one has
	// failed. If a critical one fails for good, the run fails, and a retry repeats only that. Their paths begin with the
	// pipeline and the word finally.
	Finally []*Handler `yaml:"finally"`

	// Notify lists the services that hear how runs of the pipeline end. They hear of it after the run, each by a delivery of its own.
	Notify []*Notification `yaml:"notify"`

	// Retention is how long the server keeps ended runs of the pipeline. It may be shorter or longer than the server's own
	// retention, which holds for other pipelines. The ids of events stay known for the longer of the two. A failed run stays until
	// somebody retries or cancels it.
	Retention time.Duration `yaml:"retention" min:"1h" max:"87600h"`

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
	Sends           *Notification                  `yaml:"-"` // what it sends; nil for a pipeline of a file
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

	// Deadline is the longest time that the stage may take. It ends like the deadline of a pipeline, and may be an expression
	// like it.
	Deadline time.Duration `yaml:"deadline" min:"1ms" live:"true"`

	// Live has the expression of deadline.
	Live Times `yaml:"-"`

	// Target is how long the stage should take, from the end of the stage before it. It changes no run. It counts like the target of
	// a pipeline.
	Target time.Duration `yaml:"target" min:"1ms"`

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

	// Final says that it is the stage of finally, the last one.
	Final bool `yaml:"-"`

	loop *Handler  // the handler that a repeated stage is from outside
	once *Pipeline // the pipeline of one element
}

// FinalStage is the id of the stage of finally.
const FinalStage = "finally"

// AddFinally adds the stage of finally behind the others.
func (p *Pipeline) AddFinally() {
	if len(p.Finally) > 0 {
		at := p.PlaceOf("finally", p.Span)
		p.Stages = append(p.Stages, &Stage{Span: at, ID: FinalStage, Handlers: p.Finally, Final: true})
	}
}
