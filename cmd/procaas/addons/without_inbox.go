//go:build without_inbox

package addons

import "procaas/engine/addon"

func divided() []addon.Addon { return nil }
