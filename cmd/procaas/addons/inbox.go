//go:build !without_inbox

package addons

import (
	"procaas/engine/addon"
	inbox "procaas/handlers/inbox/addon"
)

func divided() []addon.Addon { return []addon.Addon{inbox.New()} }
