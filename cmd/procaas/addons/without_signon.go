//go:build without_signon

package addons

import "procaas/engine/addon"

func signedOn() []addon.Addon { return nil }
