package secrets

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// A Use is a secret and its receiver.
type Use struct {
	Name  string
	To    string // id of a declared service, cluster or shard map; empty for no receiver
	Owner string // owner of To, as declared; may be empty
}

// UseOf returns the use of a secret by a step.
func UseOf(b *tree.Bundle, step *planner.Step, s datum.Secret) Use {
	use := Use{Name: s.Name, To: s.To}
	if use.To == "" && step.Service != nil {
		use.To = step.Service.ID
	}
	if service := b.Service(use.To); service != nil {
		use.Owner = service.Owner
		return use
	}
	b.EachDeclaration(func(x tree.Declaration) {
		if x.ID == use.To && x.Secret == use.Name && x.Secret != "" {
			use.Owner = *x.Owner
		}
	})
	return use
}

// A Set looks up the secrets of one call and remembers them, in order to remove them from its
// error, its response and its log records. Services echo what they are sent, above all in errors.
// It lives only as long as the call.
type Set struct {
	Source Source // of the secrets; set it before use

	mu    sync.Mutex // guards the following
	forms []string   // of the secrets that were looked up, longest first
	plain []string   // those of them to search for behind escapes
}

// A Source looks up secrets. The error of one that cannot be looked up ends the call.
type Source interface {
	Secret(s datum.Secret) (string, error)
}

// A SourceFunc is a [Source] of one function.
type SourceFunc func(datum.Secret) (string, error)

// Secret implements [Source].
func (f SourceFunc) Secret(s datum.Secret) (string, error) { return f(s) }

// New makes the Set of a call with a source of secrets.
func New(source SourceFunc) *Set { return &Set{Source: source} }

// Resolve is the field Resolve of a handler's call.
func (s *Set) Resolve(secret datum.Secret) (string, error) {
	text, err := s.Source.Secret(secret)
	if err == nil && text != "" {
		s.Conceal(text)
	}
	return text, err
}

// Conceal adds a text that must not come out, such as a token that was made from a secret.
func (s *Set) Conceal(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forms = longestFirst(append(s.forms, formsOf(text)...))
	s.plain = longestFirst(append(s.plain, plainForms(text)...))
}

// hidden replaces a secret.
const hidden = "***"

// Hide is the field Hide of a handler's call. It always finishes, since a text that is shown must not depend on a timeout.
func (s *Set) Hide(text string) string {
	out, _ := s.replace(context.Background(), text, 1) // without a deadline it has no error
	return out
}

// replace hides the forms of at least least bytes. Its time is linear in the text. The error is that of ctx, which
// it asks before each pass through the text.
func (s *Set) replace(ctx context.Context, text string, least int) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, form := range s.forms {
		if len(form) < least {
			break
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		text = strings.ReplaceAll(text, form, hidden)
	}
	if len(s.plain) == 0 {
		return text, nil
	}
	return hideEscaped(ctx, text, s.plain, max(least, leastHidden))
}

// longestFirst sorts forms and removes duplicates.
func longestFirst(forms []string) []string {
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(forms)
}

// any reports whether a secret was looked up.
func (s *Set) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.forms) > 0
}

// Result removes the secrets from the result of a call. If ctx ends before all are removed, it returns no result, and
// the error of ctx. An error of the call always comes out, because its text is short.
func (s *Set) Result(ctx context.Context, r model.Result, err error) (model.Result, error) {
	if !s.any() {
		return r, err
	}
	if err != nil {
		return s.results(context.WithoutCancel(ctx), r, s.error(err))
	}
	return s.results(ctx, r, nil)
}

// results removes the secrets from a result, and returns it with the error of its call.
func (s *Set) results(ctx context.Context, r model.Result, failed error) (model.Result, error) {
	var err error
	if r.Response, err = s.data(ctx, r.Response); err != nil {
		return model.Result{}, err
	}
	for i := range r.Emit {
		if r.Emit[i].Payload, err = s.data(ctx, r.Emit[i].Payload); err != nil {
			return model.Result{}, err
		}
	}
	return r, failed
}

// data removes the secrets from data in place. Very short ones stay, because they may occur by
// chance. The error is that of ctx. Then v may still contain secrets.
func (s *Set) data(ctx context.Context, v any) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		return s.replace(ctx, v, leastHidden)
	case int, float64:
		text := fmt.Sprint(v)
		if public, err := s.replace(ctx, text, leastHidden); err != nil || public != text {
			return hidden, err
		}
	case []any:
		for i := range v {
			if v[i], err = s.data(ctx, v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		return v, s.members(ctx, v)
	}
	return v, nil
}

// members removes the secrets from the names and the values of a mapping.
func (s *Set) members(ctx context.Context, m map[string]any) error {
	for _, name := range slices.Collect(maps.Keys(m)) { // a new name must not be visited
		value, err := s.data(ctx, m[name])
		if err != nil {
			return err
		}
		public, err := s.replace(ctx, name, leastHidden)
		if err != nil {
			return err
		}
		if public != name {
			delete(m, name)
		}
		m[public] = value
	}
	return nil
}

// error removes the secrets from the text of an error, and from the reply inside it.
func (s *Set) error(err error) error {
	if err == nil {
		return nil
	}
	if status, ok := errors.AsType[*model.StatusError](err); ok {
		status.Excerpt = s.Hide(status.Excerpt)
		status.Body, _ = s.data(context.Background(), status.Body) // at most 64 KiB were read; it has no error
	}
	text := err.Error()
	if public := s.Hide(text); public != text {
		return &hiddenError{err, public}
	}
	return err
}

// A hiddenError is an error whose text contained a secret.
type hiddenError struct {
	error
	text string
}

// Error implements error.
func (e *hiddenError) Error() string { return e.text }

// Unwrap returns the original error, for tests of its type.
func (e *hiddenError) Unwrap() error { return e.error }

// leastHidden is the shortest form of a secret that is hidden. Shorter ones occur in many texts by
// chance.
const leastHidden = 4

// formsOf returns the forms in which a text may come back: as it is, quoted, or escaped for a URL,
// and each of these in hexadecimal, escaped again, or in base64, alone or inside a longer text.
func formsOf(text string) []string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // every text can be encoded
	}
	texts := append(recoded(text),
		strings.TrimSpace(text), strings.Trim(string(quoted), `"`), strings.Trim(strconv.Quote(text), `"`),
		url.QueryEscape(text), url.PathEscape(text), html.EscapeString(text),
	)
	slices.Sort(texts)
	forms := []string{strings.ToLower(text)} // the form of host names
	for _, t := range slices.Compact(texts) {
		lower := hex.EncodeToString([]byte(t))
		forms = append(forms, t, url.QueryEscape(t), url.PathEscape(t), lower, strings.ToUpper(lower))
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			for before := range 3 {
				forms = append(forms, insideBase64(encoding, t, before))
			}
		}
	}
	return slices.DeleteFunc(forms, func(f string) bool { return len(f) < leastHidden && f != text })
}

// insideBase64 returns the part of a text's base64 that does not depend on its surroundings, if
// this many bytes, modulo 3, come before it.
func insideBase64(e *base64.Encoding, text string, before int) string {
	all := e.EncodeToString(append(make([]byte, before), text...))
	from := (before*8 + 5) / 6
	to := (before + len(text)) * 8 / 6
	if from >= to {
		return ""
	}
	return all[from:to]
}

// Shown returns data with three stars for each secret.
func Shown(v any) any {
	switch v := v.(type) {
	case datum.Secret:
		return hidden
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = Shown(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = Shown(item)
		}
		return out
	}
	return v
}
