package taskrun

import "procaas/engine/store"

// RetryInParts retries the failed tasks of a filter in parts of at most atOnce, in the order of their numbers. do
// retries those with a number over after. The limit of the filter is for tasks that were retried. Tasks that others
// block are passed over, so they never hold up those behind them.
func RetryInParts(
	f store.TaskFilter, atOnce int, do func(part store.TaskFilter, after int64) ([]store.TaskRetry, error),
) (all []store.TaskRetry, err error) {
	left := f.Limit
	if left <= 0 {
		left = 1 << 30
	}
	for after := int64(0); left > 0; {
		part := f
		part.Limit = min(left, atOnce)
		some, err := do(part, after)
		all = append(all, some...)
		if err != nil || len(some) < part.Limit {
			return all, err
		}
		done, _ := store.Retried(some)
		left -= len(done)
		after = some[len(some)-1].Task
	}
	return all, nil
}
