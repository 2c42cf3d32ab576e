//go:build without_archive

package addons

import "procaas/engine/addon"

func archived() []addon.Addon { return nil }
