package taskrun

import (
	"context"
	"errors"
	"fmt"

	"procaas/engine/clock"
	"procaas/engine/store"
)

// SetMode sets the mode of a task type with set, and audits it. The queue may be in another
// store, so one transaction cannot have both. The record comes first, and without it nothing
// changes. If the change fails, a second record says so.
func SetMode(
	ctx context.Context, documents store.Documents, taskType string, mode store.TaskMode, by store.Actor, set func() error,
) error {
	record := func(ctx context.Context, after string) error {
		_, err := documents.WriteDocuments(ctx, 0, nil,
			[]store.Audited{{Kind: store.AuditQueue, Name: taskType, By: by, After: store.AuditText(after)}})
		return err
	}
	if err := record(ctx, string(mode)); err != nil {
		return fmt.Errorf("%s is not made %s, for the audit cannot be written: %w", taskType, mode, err)
	}
	failed := set()
	if failed == nil {
		return nil
	}
	// The caller may be gone by now, which often is why it failed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clock.StoreTimeout)
	defer cancel()
	return errors.Join(failed, record(ctx, fmt.Sprintf("%s failed: %v", mode, failed)))
}
