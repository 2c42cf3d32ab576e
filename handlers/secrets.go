package handlers

import (
	"errors"
	"fmt"
	"slices"

	"procaas/dsl/datum"
)

// secrets inserts the secrets of one call into its request. The engine removes them from the result
// and the error. hide removes them earlier, before a text is shortened.
type secrets struct {
	resolve func(datum.Secret) (string, error)
	hide    func(text string) string

	to     string // the declared service that gets them; empty if the request goes to no service
	given  bool   // one was looked up
	inBody bool   // the body has one

	authorizes bool // the request has the credentials of its service
}

// reveal returns a copy of v with the values of its secrets, or v itself if it has none.
func (s *secrets) reveal(v any) (any, error) {
	if !hasSecret(v) {
		return v, nil
	}
	return s.insert(v)
}

// hasSecret reports whether data has a secret at any depth.
func hasSecret(v any) bool {
	switch v := v.(type) {
	case datum.Secret:
		return true
	case []any:
		return slices.ContainsFunc(v, hasSecret)
	case map[string]any:
		for _, item := range v {
			if hasSecret(item) {
				return true
			}
		}
	}
	return false
}

// insert returns a copy of v with the values of its secrets.
func (s *secrets) insert(v any) (any, error) {
	switch v := v.(type) {
	case datum.Secret:
		return s.value(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			open, err := s.insert(item)
			if err != nil {
				return nil, err
			}
			out[i] = open
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			open, err := s.insert(item)
			if err != nil {
				return nil, err
			}
			out[name] = open
		}
		return out, nil
	}
	return v, nil
}

// value looks a secret up at the time of the call, so that a new value needs no restart. An unknown
// name is a mistake of the pipeline or the operator.
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
