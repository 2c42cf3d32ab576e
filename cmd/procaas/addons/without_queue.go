//go:build without_queue

package addons

import "procaas/engine/addon"

func queued() []addon.Addon { return nil }
