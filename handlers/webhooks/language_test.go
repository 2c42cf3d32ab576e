package webhooks_test

import (
	"fmt"
	"strings"
	"testing"
)

func printed(v any) string { return fmt.Sprint(v) }

func TestWebhooksThatCannotWork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{id: a, scheme: gitlab, secrets: [s], type: push}`:                                                                      `want github, stripe, slack, standard or hmac`,
		`{id: a, scheme: github, type: push}`:                                                                                    `"secrets"`,
		`{id: a, scheme: github, secrets: [], type: push}`:                                                                       `webhook "a" has no secrets`,
		`{id: a, scheme: github, secrets: ["a b"], type: push}`:                                                                  `secret 1 of webhook "a" is no name: "a b"`,
		`{id: a, scheme: github, secrets: [s], type: pull}`:                                                                      `no pipeline serves events of the type "pull" of webhook "a"`,
		`{id: a, scheme: github, secrets: [s], type: push, key: !$ event.key}`:                                                   `event cannot be read here`,
		`{id: a, scheme: github, secrets: [s], type: push, payload: {t: !secret s}}`:                                             `secret`,
		`{id: a, scheme: github, secrets: [s], type: push, signature: {header: X-S}}`:                                            `scheme github says how it is signed`,
		`{id: a, scheme: hmac, secrets: [s], type: push, event-id: !$ body.id}`:                                                  `does not say how it signs`,
		`{id: a, scheme: hmac, secrets: [s], type: push, signature: {header: X-S}}`:                                              `has no event-id: a repeated delivery would become a second event`,
		`{id: a, scheme: hmac, secrets: [s], type: push, event-id: !$ body.id, signature: {header: X-S, signed: "{timestamp}"}}`: `does not cover {body}`,
		`{id: a, scheme: hmac, secrets: [s], type: push, event-id: !$ body.id, signature: {header: X-S, timestamp: X-T}}`:        `has a time that is not signed`,
		`{id: a, scheme: hmac, secrets: [s], type: push, event-id: !$ body.id, signature: {header: "X S"}}`:                      `"X S" is no name of a header`,
		"{id: a, scheme: github, secrets: [s], type: push}\n  - {id: a, scheme: slack, secrets: [s], type: push}":                `declared twice`,
	} {
		_, found := load(t, "webhooks:\n  - "+text+flow)
		var said []string
		for _, d := range found {
			said = append(said, d.Message+" "+d.Hint)
		}
		if all := strings.Join(said, "\n"); !strings.Contains(all, want) {
			t.Errorf("%s:\nwant %q, have\n%s", text, want, all)
		}
	}
}
