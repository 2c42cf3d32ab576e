//go:build !without_subscriptions

package addons

import (
	"procaas/engine/addon"
	subscriptions "procaas/handlers/subscriptions/addon"
)

func subscribed() []addon.Addon { return []addon.Addon{subscriptions.New()} }
