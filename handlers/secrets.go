package handlers

import (
	"errors"
	"fmt"

	"procaas/dsl/datum"
)

// secrets puts the secrets of one call into what is sent. The engine takes them out
// of the result and the error; hide does so before something is cut short.
type secrets struct {
	resolve func(datum.Secret) (string, error)
	hide    func(text string) string

	to     string // the declared service that gets them; empty when the request goes to none
	given  bool   // one was looked up
	inBody bool   // the body holds one
}

// reveal returns a copy of v with the values of secrets in their places; v itself
// where there are none.
func (s *secrets) reveal(v any) (any, error) {
	switch v := v.(type) {
	case datum.Secret:
		return s.value(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			open, err := s.reveal(item)
			if err != nil {
				return nil, err
			}
			out[i] = open
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			open, err := s.reveal(item)
			if err != nil {
				return nil, err
			}
			out[name] = open
		}
		return out, nil
	}
	return v, nil
}

// value looks a secret up at the time of the call, so that a new one counts without a
// restart. A name that is unknown is the pipeline's or the operator's fault.
func (s *secrets) value(secret datum.Secret) (any, error) {
	if s.resolve == nil {
		return nil, errors.New("there is no store of secrets")
	}
	if s.to == "" {
		return nil, fmt.Errorf("secret %s: a secret is sent to a declared service only; declare the host below services, "+
			"and write service and path instead of url", secret.Name)
	}
	secret.To, s.given = s.to, true
	text, err := s.resolve(secret)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", secret.Name, err)
	}
	return text, nil
}
