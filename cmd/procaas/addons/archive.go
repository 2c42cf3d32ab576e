//go:build !without_archive

package addons

import (
	"procaas/engine/addon"
	archive "procaas/handlers/archive/addon"
)

func archived() []addon.Addon { return []addon.Addon{archive.New()} }
