package settings

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/clock"
	"procaas/engine/credentials"
	"procaas/engine/definitions"
	"procaas/engine/guard"
	"procaas/engine/store"
)

// Settings are what operators have set at run time, as this node knows it.
type Settings struct {
	Kept    store.Settings
	Keys    store.Tokens
	Library *definitions.Library // whose present definition declares configs
	Log     *slog.Logger

	mu       sync.Mutex               // guards the following
	known    bool                     // they were read at least once
	revision int64                    // of all settings together
	set      map[string]store.Setting // live configs that were set, also such as nothing declares any more
	values   map[string]any           // of set, decoded

	live   atomic.Pointer[guard.Controls]     // nil before they are known; changed under mu
	access atomic.Pointer[credentials.Tokens] // likewise
}

// Controls returns the controls as this node knows them.
func (s *Settings) Controls() *guard.Controls { return s.live.Load() }

// Tokens returns the tokens as this node knows them; nil before it does.
func (s *Settings) Tokens() *credentials.Tokens { return s.access.Load() }

// Learn makes this node know at once what was changed here. The others, and this
// one when it does not work now, learn by their next beat.
func (s *Settings) Learn(ctx context.Context) {
	if err := s.Refresh(ctx); err != nil {
		s.Log.Warn("settings cannot be read, the next beat tries again", "error", err)
	}
}

// IsCurrent reports whether the settings of a revision are known.
func (s *Settings) IsCurrent(revision int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known && s.revision == revision
}

// Refresh reads the settings from the store. What cannot be read leaves all of them as they
// are: half of a change is worse than a late one.
func (s *Settings) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	set, revision, err := s.Kept.Configs(ctx)
	if err != nil {
		return fmt.Errorf("read configs: %w", err)
	}
	values := make(map[string]any, len(set))
	for name, setting := range set {
		if values[name], err = datum.ParseJSON(setting.Value); err != nil {
			return fmt.Errorf("read config %s: %w", name, err)
		}
	}
	paths, _, err := s.Kept.Controls(ctx)
	if err != nil {
		return fmt.Errorf("read controls: %w", err)
	}
	live, err := guard.NewControls(paths)
	if err != nil {
		return err
	}
	keys, _, err := s.Keys.AllTokens(ctx)
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	access, err := credentials.ReadTokens(keys)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Between the two readings something may have changed: then what was read
	// first is known for sure, and the next beat tells of the rest.
	if s.known && revision < s.revision {
		return nil // a later answer has come first
	}
	if before := s.live.Swap(live); before != nil {
		close(before.Superseded)
	}
	s.access.Store(&access)
	s.known, s.revision, s.set, s.values = true, revision, set, values
	return nil
}

// ValuesFor returns what expressions of a definition read as configs.
func (s *Settings) ValuesFor(d *definitions.Definition) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.Configs(s.revision, s.values)
}

// view shows one setting; ok is false when it is neither declared nor set.
func (s *Settings) view(d *definitions.Definition, name string) (v ConfigView, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, declared := d.Declared[name]
	setting, set := s.set[name]
	v = ConfigView{Name: name, Value: first, Default: first}
	if set {
		v.Value, v.Revision, v.Changed = s.values[name], setting.Revision, &setting.Changed
		v.By, v.Reason = setting.By.Name, setting.By.Reason
	}
	return v, declared || set
}

// names lists what is declared or set, in order.
func (s *Settings) names(d *definitions.Definition) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(d.Declared)
	maps.Copy(all, s.values)
	return slices.Sorted(maps.Keys(all))
}

// Configs lists the live settings, declared ones and set ones, by name.
func (s *Settings) Configs(ctx context.Context) ([]ConfigView, error) {
	if err := s.Refresh(ctx); err != nil {
		return nil, err
	}
	d := s.Library.Present()
	out := []ConfigView{}
	for _, name := range s.names(d) {
		if v, ok := s.view(d, name); ok {
			out = append(out, v)
		}
	}
	return out, nil
}

// SetConfig changes a live setting on all nodes. ifRevision as in [store.Settings]. The
// error is a [*ConfigError] when nothing declares the setting, or as another kind
// of value.
func (s *Settings) SetConfig(ctx context.Context, name string, value any, ifRevision int64, by store.Actor) (ConfigView, error) {
	d := s.Library.Present()
	if _, ok := d.Declared[name]; !ok {
		message := fmt.Sprintf("config %s is not declared", name)
		if near := diag.Suggest(name, slices.Collect(maps.Keys(d.Declared))); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		return ConfigView{}, &definitions.ConfigError{Code: "unknown_config", Message: message}
	}
	if err := d.CheckConfig(name, value); err != nil {
		return ConfigView{}, err
	}
	data, err := datum.FormatJSON(value)
	if err != nil {
		return ConfigView{}, &definitions.ConfigError{Code: "invalid_config", Message: fmt.Sprintf("config %s: %v", name, err)}
	}
	if _, err := s.Kept.SetConfig(ctx, name, data, ifRevision, by); err != nil {
		return ConfigView{}, fmt.Errorf("set config %s: %w", name, err)
	}
	if err := s.Refresh(ctx); err != nil {
		return ConfigView{}, err
	}
	v, _ := s.view(d, name)
	return v, nil
}

// A ConfigView is a live setting.
type ConfigView struct {
	Name     string     `json:"name"`
	Value    any        `json:"value"`
	Default  any        `json:"default"`  // from the files; null when it is not declared there
	Revision int64      `json:"revision"` // 0: never changed at run time
	Changed  *time.Time `json:"changed"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}
