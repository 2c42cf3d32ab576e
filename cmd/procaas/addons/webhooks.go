//go:build !without_webhooks

package addons

import (
	"procaas/engine/addon"
	webhooks "procaas/handlers/webhooks/addon"
)

func hooked() []addon.Addon { return []addon.Addon{webhooks.New()} }
