package fallback

import (
	"context"
	"errors"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// forgetTries is how often ForgetValues begins anew because another decision came first.
const forgetTries = 5

// ForgetValues removes the values that a version in the shadow has shown to differ in a run that is gone. It returns of how many
// differences, and writes the record if there is one.
func (d *Live) ForgetValues(ctx context.Context, gone func(run string) (bool, error), record store.Audited) (n int, err error) {
	for range forgetTries {
		err = d.Steer(ctx, func(s *State, _ time.Time) (audits []store.Audited, err error) {
			n, err = s.Canary.ForgetValues(gone)
			if err != nil || n == 0 {
				return nil, err
			}
			record.After = model.EncodeJSON(map[string]int{"shadow_values": n})
			return []store.Audited{record}, nil
		})
		if !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return n, err
}
