// Package problem has the API's refusals: problems in the form of RFC 9457, the table of their
// codes, and the conversion of engine errors.
package problem

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/clock"
	"procaas/engine/intake"
	"procaas/engine/store"
)

// A Problem is an error of the API, in the form of RFC 9457. Programs test its
// Code. Codes are stable.
type Problem struct {
	Type   string  `json:"type" doc:"A name of the kind of problem, made from the code." example:"urn:procaas:problem:unknown_event_type"`
	Title  string  `json:"title" doc:"The kind of problem, for people."`
	Status int     `json:"status" doc:"The HTTP status."`
	Detail string  `json:"detail" doc:"The found and expected values and the remedy, for people."`
	Code   string  `json:"code" doc:"The kind of problem, for programs. Codes are stable." example:"unknown_event_type"`
	Errors []Fault `json:"errors,omitempty" doc:"The errors with their locations, if known."`

	Diagnostics []Finding `json:"diagnostics,omitempty" doc:"The findings in refused pipelines."`

	Header http.Header `json:"-"` // for the reply, such as Retry-After; may be nil
	Token  string      `json:"-"` // name of the token whose call was refused, for the audit; may be empty
}

// A Fault is one fault of a request.
type Fault struct {
	Location string `json:"location" doc:"The location: a JSON pointer into the body, or query/NAME, path/NAME or header/NAME." example:"/payload/order-id"`
	Message  string `json:"message" doc:"What is wrong, for people."`
	Code     string `json:"code,omitempty" doc:"In a refused array of events: the reason for the event at this location."`
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// With adds a header to the reply.
func (p *Problem) With(name, value string) *Problem {
	if p.Header == nil {
		p.Header = http.Header{}
	}
	p.Header.Set(name, value)
	return p
}

// At adds the places of faults.
func (p *Problem) At(faults ...Fault) *Problem {
	p.Errors = append(p.Errors, faults...)
	return p
}

// These are the codes of problems.
const (
	MalformedJSON    = "malformed_json"
	InvalidBody      = "invalid_body"
	InvalidParameter = "invalid_parameter"
	Unauthorized     = "unauthorized"
	Forbidden        = "forbidden"
	TooManyFailures  = "too_many_failures"
	QuotaExceeded    = "quota_exceeded"
	UnknownHost      = "unknown_host"
	InvalidToken     = "invalid_token"
	TokenExists      = "token_exists"
	TokenNotFound    = "token_not_found"
	FirstToken       = "first_token"
	LastAdmin        = "last_admin"
	CrossOrigin      = "cross_origin"
	UnknownPath      = "unknown_path"
	RunNotFound      = "run_not_found"
	HandlerNotFound  = "handler_not_found"
	FlowNotFound     = "flow_not_found"
	PipelineNotFound = "pipeline_not_found"
	TriggerNotFound  = "trigger_not_found"
	InvalidBackfill  = "invalid_backfill"
	UnknownConfig    = "unknown_config"
	InvalidConfig    = "invalid_config"
	UnknownMethod    = "method_not_allowed"
	IDConflict       = "id_conflict"
	EventRejected    = "event_rejected"
	BufferFull       = "buffer_full"
	RunNotFailed     = "run_not_failed"
	RunFinished      = "run_already_finished"
	RerunRefused     = "rerun_refused"
	RunUndoing       = "run_undoing"
	LengthRequired   = "length_required"
	ConfigChanged    = "config_changed"
	BodyTooLarge     = "body_too_large"
	UnsupportedMedia = "unsupported_media_type"
	UnknownEventType = "unknown_event_type"
	MissingKey       = "missing_key"
	InvalidEvent     = "invalid_event"
	InvalidPayload   = "invalid_payload"
	BatchRefused     = "batch_refused"
	BodyTooSlow      = "body_too_slow"
	ClientLeft       = "client_left"
	Internal         = "internal_error"
	StoreUnavailable = "store_unavailable"
	Overloaded       = "overloaded"
	TooLong          = "too_long"
	TooManyWait      = "too_many_waiters"
	NotReady         = "not_ready"
	InvalidPipelines = "invalid_pipelines"
	NotReloadable    = "not_reloadable"
	EventsWait       = "events_wait"
	UnknownVersion   = "unknown_version"
	CanaryRefused    = "canary_refused"
	ControlPath      = "unknown_control_path"
	ControlNotFound  = "control_not_found"
	InvalidControl   = "invalid_control"
	CriticalHandler  = "critical_handler"
	HandlerOff       = "handler_off"
	RunOfTask        = "run_of_task"
	ControlChanged   = "control_changed"
	RunPinned        = "run_pinned"
	RunNotMovable    = "run_not_movable"
	KeyUnfinished    = "key_unfinished"
	KeyMoving        = "key_moving"
	CellAway         = "cell_away"
)

// A Meaning is the meaning of a code over HTTP.
type Meaning struct {
	Status int
	Title  string // one line, for people
}

// Table has the meaning of all codes, except those of a [Kind].
var Table = map[string]Meaning{
	MalformedJSON:    {http.StatusBadRequest, "The body is not acceptable JSON"},
	InvalidBody:      {http.StatusBadRequest, "The body is not what the call takes"},
	InvalidParameter: {http.StatusBadRequest, "A parameter is not what the call takes"},
	Unauthorized:     {http.StatusUnauthorized, "The call needs a token"},
	Forbidden:        {http.StatusForbidden, "The token does not allow the call"},
	TooManyFailures:  {http.StatusTooManyRequests, "Too many wrong tokens or signatures"},
	QuotaExceeded:    {http.StatusTooManyRequests, "The quota of the token is used up"},
	UnknownHost:      {http.StatusMisdirectedRequest, "The server has another name"},
	InvalidToken:     {http.StatusUnprocessableEntity, "The token makes no sense"},
	TokenExists:      {http.StatusConflict, "There is such a token already"},
	TokenNotFound:    {http.StatusNotFound, "There is no such token"},
	FirstToken:       {http.StatusConflict, "The first token must be one of an admin"},
	LastAdmin:        {http.StatusConflict, "The last token of an admin stays"},
	CrossOrigin:      {http.StatusForbidden, "Another site may not write here"},
	UnknownPath:      {http.StatusNotFound, "There is no such call"},
	RunNotFound:      {http.StatusNotFound, "There is no such run"},
	HandlerNotFound:  {http.StatusNotFound, "The run has no such handler"},
	FlowNotFound:     {http.StatusNotFound, "There is no such flow"},
	PipelineNotFound: {http.StatusNotFound, "There is no such pipeline"},
	TriggerNotFound:  {http.StatusNotFound, "There is no such trigger"},
	InvalidBackfill:  {http.StatusUnprocessableEntity, "The window cannot be fired like this"},
	UnknownConfig:    {http.StatusNotFound, "There is no such setting"},
	UnknownMethod:    {http.StatusMethodNotAllowed, "The call does not take this method"},
	IDConflict:       {http.StatusConflict, "The event's id was used before for another event"},
	EventRejected:    {http.StatusConflict, "The entity's state does not allow the event"},
	BufferFull:       {http.StatusConflict, "The key keeps as many events as it may, and no run has taken them"},
	RunNotFailed:     {http.StatusConflict, "Only a run that has failed or waits for an operator can be retried"},
	RunFinished:      {http.StatusConflict, "The run has already finished"},
	RerunRefused:     {http.StatusConflict, "The run cannot be run again like this"},
	RunUndoing:       {http.StatusConflict, "The run is cancelled already, and undoes what it has done"},
	LengthRequired:   {http.StatusLengthRequired, "The length of the body must be announced"},
	ConfigChanged:    {http.StatusPreconditionFailed, "The setting has changed meanwhile"},
	BodyTooLarge:     {http.StatusRequestEntityTooLarge, "The body is too large"},
	UnsupportedMedia: {http.StatusUnsupportedMediaType, "The form of the body is not understood"},
	UnknownEventType: {http.StatusUnprocessableEntity, "No pipeline serves this type of event"},
	MissingKey:       {http.StatusUnprocessableEntity, "The event has no key"},
	InvalidPayload:   {http.StatusUnprocessableEntity, "The payload is not what the schema of its event type says"},
	InvalidEvent:     {http.StatusUnprocessableEntity, "The event cannot be accepted"},
	InvalidConfig:    {http.StatusUnprocessableEntity, "The setting cannot have this value"},
	BatchRefused:     {http.StatusUnprocessableEntity, "None of the events was accepted"},
	BodyTooSlow:      {http.StatusRequestTimeout, "The body came too slowly"},
	ClientLeft:       {http.StatusServiceUnavailable, "The caller hung up before the answer"},
	Internal:         {http.StatusInternalServerError, "The program has a defect"},
	StoreUnavailable: {http.StatusServiceUnavailable, "The store cannot be reached"},
	Overloaded:       {http.StatusServiceUnavailable, "Events come too fast"},
	TooLong:          {http.StatusServiceUnavailable, "The answer takes too long"},
	TooManyWait:      {http.StatusServiceUnavailable, "Too many wait for runs on this node"},
	InvalidPipelines: {http.StatusUnprocessableEntity, "The pipelines have errors"},
	EventsWait:       {http.StatusConflict, "Accepted events wait for pipelines that are gone"},
	UnknownVersion:   {http.StatusNotFound, "There is no such version"},
	CanaryRefused:    {http.StatusConflict, "The canary cannot do that now"},
	NotReloadable:    {http.StatusConflict, "The server has no pipelines to read again"},
	ControlPath:      {http.StatusNotFound, "There is no such pipeline, stage or handler"},
	ControlNotFound:  {http.StatusNotFound, "There is no such control"},
	CriticalHandler:  {http.StatusConflict, "A critical handler is left out by force only"},
	HandlerOff:       {http.StatusConflict, "The handler is still left out"},
	RunOfTask:        {http.StatusConflict, "The run is an attempt of a task, and only the queue retries it"},
	ControlChanged:   {http.StatusPreconditionFailed, "The control has changed meanwhile"},
	InvalidControl:   {http.StatusUnprocessableEntity, "The control makes no sense"},
	RunPinned:        {http.StatusConflict, "The run does not fit the present definition"},
	RunNotMovable:    {http.StatusConflict, "Only a run that has begun and not ended can be moved"},
	KeyUnfinished:    {http.StatusConflict, "The key has unfinished runs or tasks"},
	KeyMoving:        {http.StatusServiceUnavailable, "The key moves to another database"},
	CellAway:         {http.StatusServiceUnavailable, "The database of the key cannot be reached"},
	NotReady:         {http.StatusServiceUnavailable, "The node cannot work at present"},
}

// A Kind is a problem that the table does not have, because it is one of a product.
type Kind struct {
	Code   string
	Status int
	Title  string // one line, for people
}

// New makes a problem of this kind.
func (k Kind) New(format string, args ...any) *Problem {
	return &Problem{
		Type: "urn:procaas:problem:" + k.Code, Title: k.Title, Status: k.Status,
		Detail: fmt.Sprintf(format, args...), Code: k.Code,
	}
}

// KindOf returns the kind of a code of the table.
func KindOf(code string) Kind { return Kind{code, Table[code].Status, Table[code].Title} }

// New makes a problem with a code of the table.
func New(code, format string, args ...any) *Problem {
	return KindOf(code).New(format, args...)
}

// Meant suggests a known name that the caller may have meant, as the end of a sentence. It is empty
// if no name is similar.
func Meant(name string, known []string) string {
	near := diag.Suggest(name, known)
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// Of converts an error of the engine to a problem. The handlers report callers' faults, so what is
// left are errors of the store.
func Of(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if over, ok := errors.AsType[*intake.OverloadError](err); ok {
		return overloaded(over)
	}
	if refused, ok := errors.AsType[*intake.Error](err); ok {
		return New(KnownCode(refused.Code, InvalidEvent), "%s", refused.Message)
	}
	switch {
	case errors.Is(err, store.ErrSealed):
		return New(InvalidParameter, "%s; search by key, label, handler, class of error or time", store.ErrSealed)
	case errors.Is(err, store.ErrLost):
		return New(StoreUnavailable, "%s, /readyz says what is missing"+unknownEffect, store.ErrLost).With("Retry-After", "5")
	case store.IsOutOfRoom(err):
		return New(StoreUnavailable, "the disk of the store is full: make room there"+unknownEffect).With("Retry-After", "5")
	case errors.Is(err, store.ErrMoving):
		return New(KeyMoving, "the key is on its way to another database of the inbox; nothing was changed, so send it again in a moment").
			With("Retry-After", "1")
	case errors.Is(err, clock.ErrTooLong):
		return New(TooLong, "%s; nothing was changed, so ask again in a moment", err).With("Retry-After", "2")
	case errors.Is(err, store.ErrAway):
		return New(CellAway, "the database of the inbox that has the key cannot be reached"+unknownEffect).With("Retry-After", "2")
	}
	return New(StoreUnavailable, "the store could not be reached in time"+unknownEffect).With("Retry-After", "1")
}

// unknownEffect ends the detail of a problem after which a change may or may not have been made.
const unknownEffect = "; it is unknown whether the call took effect, so repeat it with the same ids"

// OfRead converts an error of a call that changes nothing to a problem: such a call has no effect to be unsure of.
func OfRead(err error) *Problem {
	p := *Of(err)
	p.Detail = strings.Replace(p.Detail, unknownEffect, "; ask again in a moment", 1)
	return &p
}

// KnownCode returns a code of the engine if the table has it, or otherwise the other one.
func KnownCode(code, otherwise string) string {
	if _, known := Table[code]; known {
		return code
	}
	return otherwise
}

// Parameter reports all faults of a query, a path or headers in one problem, or nil.
func Parameter(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	return New(InvalidParameter, "%s: %s", faults[0].Location, faults[0].Message).At(faults...)
}

// Body reports all faults of a body in one problem, or nil.
func Body(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	first := faults[0]
	detail := first.Message
	if first.Location != "" {
		detail = first.Location + ": " + detail
	}
	if more := len(faults) - 1; more > 0 {
		detail += fmt.Sprintf(" (and %d more)", more)
	}
	const shownFaults = 20 // enough to read; the detail has the total
	return New(InvalidBody, "%s", detail).At(faults[:min(len(faults), shownFaults)]...)
}

// RetryAfter returns how long to wait before a retry, or 0 if the server does not say.
func (p *Problem) RetryAfter() time.Duration {
	s, _ := strconv.Atoi(p.Header.Get("Retry-After"))
	return time.Duration(max(s, 0)) * time.Second
}

// overloaded returns the problem of events that cannot be accepted now.
func overloaded(over *intake.OverloadError) *Problem {
	return New(Overloaded, "%s; nothing of this request was accepted, so send it again later", over).
		With("Retry-After", strconv.Itoa(max(1, int(math.Ceil(float64(over.After)/float64(time.Second))))))
}
