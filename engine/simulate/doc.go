// Package simulate shows what policies do in virtual time, before they are
// deployed.
//
// [Backoff] is the experiment of the article on exponential backoff: a crowd of
// clients repeats calls to a service that has stopped, and the question is
// whether the service gets up again. The delays come from [core.NextDelay], so
// what is tried here is what runs.
//
// [Degradation] lets a fallback go through the troubles that it has to tell apart,
// with the decisions of [fallback.Rules].
//
// Nothing here reads a clock or waits: the same scenario and seed give the same
// result, bit by bit.
package simulate
