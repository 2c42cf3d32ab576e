package outbox

import (
	"time"

	"procaas/handlers/subscriptions/broker"
)

// WaitLong lets an idle reader look again only after an hour, unless a service notifies it.
func WaitLong(s broker.Source) { s.(*source).pause = time.Hour }
