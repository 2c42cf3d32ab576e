//go:build !without_queue

package addons

import (
	"procaas/engine/addon"
	queue "procaas/handlers/queue/addon"
)

func queued() []addon.Addon { return []addon.Addon{queue.New()} }
