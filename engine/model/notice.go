package model

import "time"

// A Notice reports something about a path that its owner may need to know. The node where it
// happens sends it once. Except for fallbacks, a notice does not say how often this happens or when
// it is over. A program that alerts people must find that out.
type Notice struct {
	Kind     NoticeKind
	Path     string    // of the handler; of the pipeline if no handler caused it
	Owner    string    // of the path; empty if it has none
	Critical bool      // runs cannot succeed without the handler
	Time     time.Time // by the store's clock

	Run, Flow, Key string // of the run that it is about; empty for none
	Error          string // or the reason of a fallback

	// The following fields are for fallbacks.
	Service  string    // the service that is off as a whole; Path is empty then
	Handlers []string  // that are off with the service
	Ratio    float64   // share of successful calls that turned the handler off
	Until    time.Time // until when the fallback is planned
}

// A NoticeKind says what happened.
type NoticeKind string

// These are the kinds of notices.
const (
	// NoticeGivenUp: a non-critical handler has failed for good, and its run continued without it.
	// A critical one fails its run.
	NoticeGivenUp NoticeKind = "handler-given-up"

	// NoticeRunFailed: a run has failed.
	NoticeRunFailed NoticeKind = "run-failed"

	// NoticeRunParked: a run waits until an operator decides.
	NoticeRunParked NoticeKind = "run-parked"

	// NoticeKeyBlocked: the later events of a key wait for a run that has failed or waits for an
	// operator. It follows the notice of the run.
	NoticeKeyBlocked NoticeKind = "key-blocked"

	// NoticeUntaken: an event was kept for a run that awaits it, or was to be kept, and no run will take it. The path is
	// the flow.
	NoticeUntaken NoticeKind = "event-untaken"

	// NoticeFallbackOn and NoticeFallbackOff: fallback turned a handler, or all handlers of a
	// service, off or on again.
	NoticeFallbackOn  NoticeKind = "fallback-on"
	NoticeFallbackOff NoticeKind = "fallback-off"

	// NoticeFrozen and NoticeThawed: half of all services fail at once, so fallback turns nothing
	// off, and the end of this.
	NoticeFrozen NoticeKind = "fallbacks-frozen"
	NoticeThawed NoticeKind = "fallbacks-thawed"
)
