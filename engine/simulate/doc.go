// Package simulate shows in virtual time what policies do, before they are deployed.
//
// [Backoff] is the experiment of the article on exponential backoff. A crowd of clients retries
// calls to a service that has stopped. Does the service recover? The delays come from
// [core.NextDelay], so the simulation uses the real code.
//
// [Degradation] runs a fallback through the troubles that it has to distinguish, with the decisions
// of [fallback.Rules].
//
// Nothing here reads a clock or waits, except [Real]. The same scenario and seed give exactly the
// same result. [Real] runs the scenario of [Backoff] over real connections, to compare both.
package simulate
