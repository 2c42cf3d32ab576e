//go:build !without_signon

package addons

import (
	"procaas/engine/addon"
	signon "procaas/handlers/signon/addon"
)

func signedOn() []addon.Addon { return []addon.Addon{signon.New()} }
