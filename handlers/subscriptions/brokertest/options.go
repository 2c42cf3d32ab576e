package brokertest

import (
	"fmt"
	"net"

	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// Options are those of a node that has secrets.
func Options(s *language.Subscription, secrets map[string]string) broker.Options {
	return broker.Options{Subscription: s, Connection: &broker.Connection{
		Connection: s.Connection(), Client: "procaas-" + s.ID, Dial: (&net.Dialer{}).DialContext,
		Secret: func(name string) (string, error) {
			if text, ok := secrets[name]; ok {
				return text, nil
			}
			return "", fmt.Errorf("there is no secret %s", name)
		},
	}}
}
