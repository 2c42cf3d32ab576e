//go:build without_webhooks

package addons

import "procaas/engine/addon"

func hooked() []addon.Addon { return nil }
