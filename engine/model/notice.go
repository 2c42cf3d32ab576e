package model

import "time"

// A Notice tells that something has become of a path that its owner may have to
// know of. Each is told once, by the node on which it happened; but for
// fallbacks it says nothing about how often such things happen, nor when they are
// over: who alerts people has to make that out.
type Notice struct {
	Kind     NoticeKind
	Path     string    // of the handler; of the pipeline when no handler is to blame
	Owner    string    // of the path; empty when nobody is named
	Critical bool      // its runs cannot succeed without the handler
	Time     time.Time // by the store's clock

	Run, Flow, Key string // of the run that it happened to; empty when it is about none
	Error          string // or why a fallback is on

	// The following is of fallbacks.
	Service  string    // that is out as a whole; then Path is empty
	Handlers []string  // that are out with it
	Ratio    float64   // of the calls that sent the handler out, how many succeeded
	Until    time.Time // as of a change of the fallback
}

// A NoticeKind says what has happened.
type NoticeKind string

// The kinds of notices.
const (
	// NoticeGivenUp: a handler that is not critical has failed for good, and its
	// run went on without it. One that is critical fails its run.
	NoticeGivenUp NoticeKind = "handler-given-up"

	// NoticeRunFailed: a run has failed.
	NoticeRunFailed NoticeKind = "run-failed"

	// NoticeRunParked: a run stands still until an operator decides about it.
	NoticeRunParked NoticeKind = "run-parked"

	// NoticeKeyBlocked: the later events of a key wait for a run that has failed
	// or stands still. It follows the notice of the run.
	NoticeKeyBlocked NoticeKind = "key-blocked"

	// NoticeFallbackOn and NoticeFallbackOff: a handler, or all handlers of a
	// service, went out of the flow by themselves, and are back.
	NoticeFallbackOn  NoticeKind = "fallback-on"
	NoticeFallbackOff NoticeKind = "fallback-off"

	// NoticeFrozen and NoticeThawed: half of all services fail at once, so that
	// nothing goes out of the flow; and that is over.
	NoticeFrozen NoticeKind = "fallbacks-frozen"
	NoticeThawed NoticeKind = "fallbacks-thawed"
)
