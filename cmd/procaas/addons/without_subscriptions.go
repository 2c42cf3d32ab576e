//go:build without_subscriptions

package addons

import "procaas/engine/addon"

func subscribed() []addon.Addon { return nil }
