package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"procaas/dsl/diag"
	"procaas/engine"
)

// A Problem is an error of the API, in the form of RFC 9457. Programs test its
// Code; codes are stable.
type Problem struct {
	Type   string  `json:"type" doc:"A name of the kind of problem, made from the code." example:"urn:procaas:problem:unknown_event_type"`
	Title  string  `json:"title" doc:"The kind of problem, for people."`
	Status int     `json:"status" doc:"The HTTP status."`
	Detail string  `json:"detail" doc:"What was found, what was expected and what to do, for people."`
	Code   string  `json:"code" doc:"The kind of problem, for programs. Codes are stable." example:"unknown_event_type"`
	Errors []Fault `json:"errors,omitempty" doc:"What is wrong where, when places are known."`

	Diagnostics []Finding `json:"diagnostics,omitempty" doc:"What is wrong with pipelines that are refused."`

	header http.Header // to reply with, such as Retry-After; nil for none
	token  string      // whose bearer is refused what it may not; the audit is told. Empty for none
}

// A Fault is one thing that is wrong with a request.
type Fault struct {
	Location string `json:"location" doc:"Where it is: a JSON pointer into the body, or query/NAME, path/NAME, header/NAME." example:"/payload/order-id"`
	Message  string `json:"message" doc:"What is wrong, for people."`
	Code     string `json:"code,omitempty" doc:"In a refused array of events: why the event at this place is refused."`
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Detail
}

// with adds a header to the reply.
func (p *Problem) with(name, value string) *Problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// at adds the places of what is wrong.
func (p *Problem) at(faults ...Fault) *Problem {
	p.Errors = append(p.Errors, faults...)
	return p
}

// The codes of problems.
const (
	codeMalformedJSON    = "malformed_json"
	codeInvalidBody      = "invalid_body"
	codeInvalidParameter = "invalid_parameter"
	codeUnauthorized     = "unauthorized"
	codeForbidden        = "forbidden"
	codeTooManyFailures  = "too_many_failures"
	codeUnknownHost      = "unknown_host"
	codeInvalidToken     = "invalid_token"
	codeTokenExists      = "token_exists"
	codeTokenNotFound    = "token_not_found"
	codeFirstToken       = "first_token"
	codeLastAdmin        = "last_admin"
	codeCrossOrigin      = "cross_origin"
	codeUnknownPath      = "unknown_path"
	codeRunNotFound      = "run_not_found"
	codeHandlerNotFound  = "handler_not_found"
	codeFlowNotFound     = "flow_not_found"
	codeClusterNotFound  = "cluster_not_found"
	codeNoWorker         = "no_worker"
	codeInvalidLever     = "invalid_lever"
	codeLeverNotFound    = "lever_not_found"
	codePipelineNotFound = "pipeline_not_found"
	codeUnknownConfig    = "unknown_config"
	codeInvalidConfig    = "invalid_config"
	codeUnknownMethod    = "method_not_allowed"
	codeIDConflict       = "id_conflict"
	codeEventRejected    = "event_rejected"
	codeRunNotFailed     = "run_not_failed"
	codeRunFinished      = "run_already_finished"
	codeRunUndoing       = "run_undoing"
	codeLengthRequired   = "length_required"
	codeConfigChanged    = "config_changed"
	codeBodyTooLarge     = "body_too_large"
	codeUnsupportedMedia = "unsupported_media_type"
	codeUnknownEventType = "unknown_event_type"
	codeMissingKey       = "missing_key"
	codeInvalidEvent     = "invalid_event"
	codeInvalidPayload   = "invalid_payload"
	codeBatchRefused     = "batch_refused"
	codeBodyTooSlow      = "body_too_slow"
	codeClientLeft       = "client_left"
	codeInternal         = "internal_error"
	codeStoreUnavailable = "store_unavailable"
	codeOverloaded       = "overloaded"
	codeTooLong          = "too_long"
	codeNotReady         = "not_ready"
	codeInvalidPipelines = "invalid_pipelines"
	codeNotReloadable    = "not_reloadable"
	codeEventsWait       = "events_wait"
	codeControlPath      = "unknown_control_path"
	codeControlNotFound  = "control_not_found"
	codeInvalidControl   = "invalid_control"
	codeCriticalHandler  = "critical_handler"
	codeControlChanged   = "control_changed"
	codeRunPinned        = "run_pinned"
	codeRunNotMovable    = "run_not_movable"
	codeUnknownShardMap  = "unknown_shard_map"
	codeUnknownShard     = "unknown_shard"
	codeInvalidShardKey  = "invalid_shard_key"
	codeKeyNotPlaced     = "key_not_placed"
	codeNoFitHost        = "no_fit_host"
	codeShardBusy        = "shard_busy"
	codeUnknownTransfer  = "unknown_transfer"
	codeTransferState    = "transfer_state"
	codeNoTasks          = "no_task_queue"
	codeInvalidTask      = "invalid_task"
	codeQueueDraining    = "queue_draining"
	codeUnknownTaskType  = "unknown_task_type"
	codeKeyMoving        = "key_moving"
	codeCellAway         = "cell_away"
	codeNoCells          = "no_cells"
	codeInvalidMove      = "invalid_move"
	codeCellInUse        = "cell_in_use"
)

// problems is the one table of what a code means over HTTP.
var problems = map[string]struct {
	status int
	title  string
}{
	codeMalformedJSON:    {http.StatusBadRequest, "The body is not acceptable JSON"},
	codeInvalidBody:      {http.StatusBadRequest, "The body is not what the call takes"},
	codeInvalidParameter: {http.StatusBadRequest, "A parameter is not what the call takes"},
	codeUnauthorized:     {http.StatusUnauthorized, "The call needs a token"},
	codeForbidden:        {http.StatusForbidden, "The token does not allow the call"},
	codeTooManyFailures:  {http.StatusTooManyRequests, "Too many wrong tokens"},
	codeUnknownHost:      {http.StatusMisdirectedRequest, "The server has another name"},
	codeInvalidToken:     {http.StatusUnprocessableEntity, "The token makes no sense"},
	codeTokenExists:      {http.StatusConflict, "There is such a token already"},
	codeTokenNotFound:    {http.StatusNotFound, "There is no such token"},
	codeFirstToken:       {http.StatusConflict, "The first token must be one of an admin"},
	codeLastAdmin:        {http.StatusConflict, "The last token of an admin stays"},
	codeCrossOrigin:      {http.StatusForbidden, "Another site may not write here"},
	codeUnknownPath:      {http.StatusNotFound, "There is no such call"},
	codeRunNotFound:      {http.StatusNotFound, "There is no such run"},
	codeHandlerNotFound:  {http.StatusNotFound, "The run has no such handler"},
	codeFlowNotFound:     {http.StatusNotFound, "There is no such flow"},
	codeClusterNotFound:  {http.StatusNotFound, "There is no such cluster"},
	codeInvalidLever:     {http.StatusUnprocessableEntity, "The lever cannot be pulled like this"},
	codeLeverNotFound:    {http.StatusNotFound, "Nobody has pulled this lever"},
	codeNoWorker:         {http.StatusServiceUnavailable, "No worker serves the partition"},
	codePipelineNotFound: {http.StatusNotFound, "There is no such pipeline"},
	codeUnknownConfig:    {http.StatusNotFound, "There is no such setting"},
	codeUnknownMethod:    {http.StatusMethodNotAllowed, "The call does not take this method"},
	codeNoTasks:          {http.StatusNotImplemented, "The server keeps no tasks"},
	codeInvalidTask:      {http.StatusUnprocessableEntity, "The task makes no sense"},
	codeQueueDraining:    {http.StatusConflict, "The queue takes no new tasks"},
	codeUnknownTaskType:  {http.StatusNotFound, "Nobody does tasks of this type"},
	codeIDConflict:       {http.StatusConflict, "The event's id was used before for another event"},
	codeEventRejected:    {http.StatusConflict, "The entity's state does not allow the event"},
	codeRunNotFailed:     {http.StatusConflict, "Only a run that has failed or waits for an operator can be retried"},
	codeRunFinished:      {http.StatusConflict, "The run has already finished"},
	codeRunUndoing:       {http.StatusConflict, "The run is cancelled already, and undoes what it has done"},
	codeLengthRequired:   {http.StatusLengthRequired, "The length of the body must be announced"},
	codeConfigChanged:    {http.StatusPreconditionFailed, "The setting has changed meanwhile"},
	codeBodyTooLarge:     {http.StatusRequestEntityTooLarge, "The body is too large"},
	codeUnsupportedMedia: {http.StatusUnsupportedMediaType, "The form of the body is not understood"},
	codeUnknownEventType: {http.StatusUnprocessableEntity, "No pipeline serves this type of event"},
	codeMissingKey:       {http.StatusUnprocessableEntity, "The event has no key"},
	codeInvalidPayload:   {http.StatusUnprocessableEntity, "The payload is not what the schema of its event type says"},
	codeInvalidEvent:     {http.StatusUnprocessableEntity, "The event cannot be accepted"},
	codeInvalidConfig:    {http.StatusUnprocessableEntity, "The setting cannot have this value"},
	codeBatchRefused:     {http.StatusUnprocessableEntity, "None of the events was accepted"},
	codeBodyTooSlow:      {http.StatusRequestTimeout, "The body came too slowly"},
	codeClientLeft:       {http.StatusServiceUnavailable, "The caller hung up before the answer"},
	codeInternal:         {http.StatusInternalServerError, "The program has a defect"},
	codeStoreUnavailable: {http.StatusServiceUnavailable, "The store cannot be reached"},
	codeOverloaded:       {http.StatusServiceUnavailable, "Events come too fast"},
	codeTooLong:          {http.StatusServiceUnavailable, "The answer takes too long"},
	codeInvalidPipelines: {http.StatusUnprocessableEntity, "The pipelines have errors"},
	codeEventsWait:       {http.StatusConflict, "Accepted events wait for pipelines that are gone"},
	codeNotReloadable:    {http.StatusConflict, "The server has no pipelines to read again"},
	codeControlPath:      {http.StatusNotFound, "There is no such pipeline, stage or handler"},
	codeControlNotFound:  {http.StatusNotFound, "There is no such control"},
	codeCriticalHandler:  {http.StatusConflict, "A critical handler is left out by force only"},
	codeControlChanged:   {http.StatusPreconditionFailed, "The control has changed meanwhile"},
	codeInvalidControl:   {http.StatusUnprocessableEntity, "The control makes no sense"},
	codeRunPinned:        {http.StatusConflict, "The run does not fit the present definition"},
	codeRunNotMovable:    {http.StatusConflict, "Only a run that has begun and not ended can be moved"},
	codeUnknownShardMap:  {http.StatusNotFound, "There is no such shard map"},
	codeUnknownShard:     {http.StatusNotFound, "The map has no such shard"},
	codeInvalidShardKey:  {http.StatusUnprocessableEntity, "The text is no key of the map"},
	codeKeyNotPlaced:     {http.StatusNotFound, "The key lives nowhere"},
	codeNoFitHost:        {http.StatusServiceUnavailable, "No host of the shard is fit"},
	codeShardBusy:        {http.StatusConflict, "The key or the shard is busy"},
	codeUnknownTransfer:  {http.StatusNotFound, "There is no such transfer"},
	codeTransferState:    {http.StatusConflict, "The transfer cannot do that now"},
	codeKeyMoving:        {http.StatusServiceUnavailable, "The key moves to another database"},
	codeCellAway:         {http.StatusServiceUnavailable, "The database of the key cannot be reached"},
	codeNoCells:          {http.StatusConflict, "The inbox has one database"},
	codeInvalidMove:      {http.StatusConflict, "The slots cannot move so"},
	codeCellInUse:        {http.StatusConflict, "The database cannot leave the inbox"},
	codeNotReady:         {http.StatusServiceUnavailable, "The node cannot work at present"},
}

// refuse makes the problem of a code.
func refuse(code, format string, args ...any) *Problem {
	p := problems[code]
	return &Problem{
		Type: "urn:procaas:problem:" + code, Title: p.title, Status: p.status,
		Detail: fmt.Sprintf(format, args...), Code: code,
	}
}

// meant suggests what a caller may have meant by a name that is not known, as the end of
// a sentence; empty when nothing is near.
func meant(name string, known []string) string {
	near := diag.Suggest(name, known)
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// problemOf says over HTTP what an error of the engine means. What is known
// to be the caller's fault is told by the handlers; what is left is the store.
func problemOf(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var over *engine.OverloadError
	if errors.As(err, &over) {
		return overloaded(over)
	}
	switch {
	case errors.Is(err, engine.ErrStoreLost):
		return refuse(codeStoreUnavailable, "%s, /readyz says what is missing; it is unknown whether the call took effect, so repeat it with the same ids",
			engine.ErrStoreLost).with("Retry-After", "5")
	case errors.Is(err, engine.ErrMoving):
		return refuse(codeKeyMoving, "the key is on its way to another database of the inbox; nothing was changed, so send it again in a moment").
			with("Retry-After", "1")
	case errors.Is(err, engine.ErrTooLong):
		return refuse(codeTooLong, "%s; nothing was changed, so ask again in a moment", err).with("Retry-After", "2")
	case errors.Is(err, engine.ErrAway):
		return refuse(codeCellAway, "the database of the inbox that has the key cannot be reached; it is unknown whether the call took effect, so repeat it with the same ids").
			with("Retry-After", "2")
	}
	return refuse(codeStoreUnavailable, "the store could not be reached in time; it is unknown whether the call took effect, so repeat it with the same ids").
		with("Retry-After", "1")
}

// eventProblem says why one event was refused. field translates a name of the
// event to the place where its sender wrote it.
func eventProblem(err error, field func(string) string) *Problem {
	var refused *engine.IntakeError
	if !errors.As(err, &refused) {
		return problemOf(err)
	}
	p := refuse(knownCode(refused.Code, codeInvalidEvent), "%s", refused.Message)
	for _, f := range refused.Faults {
		p.at(Fault{Location: field(f.Path[0]) + pointerTo(f.Path[1:]), Message: f.Message})
	}
	if refused.Field != "" {
		p.at(Fault{Location: field(refused.Field), Message: refused.Message})
	}
	return p
}

// knownCode gives a code of the engine when the table has it.
func knownCode(code, otherwise string) string {
	if _, known := problems[code]; known {
		return code
	}
	return otherwise
}

// refuse writes a problem. An error that nobody expected is logged, with what
// the caller must not see. It is written also when the caller seems to have gone: one that
// has closed only its own half still reads, and net/http says 200 for who says nothing.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	switch {
	case errors.As(err, new(*Problem)), errors.Is(err, engine.ErrTooLong), p.Code == codeOverloaded: // which metrics count
	case errors.Is(r.Context().Err(), context.Canceled):
		p = refuse(codeClientLeft, "the caller closed the connection, or its half of it, before the answer; "+
			"it is unknown whether the call took effect, so repeat it with the same ids").with("Connection", "close")
	default:
		s.log.Error("request failed", "method", r.Method, "url_path", r.URL.Path, "code", p.Code, "error", err)
	}
	if p.token != "" {
		s.noteRefusal(r, p.token, p.Detail)
	}
	for name, values := range p.header {
		w.Header()[name] = values
	}
	writeAs(w, p.Status, mediaProblem, p)
}

// writeJSON replies with a value. Its error is always nil: handlers return it.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	writeAs(w, status, "application/json", v)
	return nil
}

// writeAs replies. A failure to write is the client's: it has gone. The reply is encoded before
// the status is sent, so that a value which cannot be encoded becomes an error of its own.
func writeAs(w http.ResponseWriter, status int, contentType string, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Errorf("encode a reply: %w", err))
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len())) // so that its end shows, also before what was sent is drained
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}
