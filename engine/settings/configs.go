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

// Settings are operators' run-time settings, as this node knows them.
type Settings struct {
	Kept    store.Settings
	Keys    store.Tokens
	Library *definitions.Library // its current definition declares configs
	Log     *slog.Logger

	mu       sync.Mutex               // guards the following
	known    bool                     // they were read at least once
	revision int64                    // of all settings together
	set      map[string]store.Setting // live configs that were set, including undeclared ones
	values   map[string]any           // of set, decoded

	live   atomic.Pointer[guard.Controls]     // nil before they are known; changed under mu
	access atomic.Pointer[credentials.Tokens] // the same
}

// Controls returns the controls that this node knows.
func (s *Settings) Controls() *guard.Controls { return s.live.Load() }

// Tokens returns the tokens that this node knows, or nil.
func (s *Settings) Tokens() *credentials.Tokens { return s.access.Load() }

// Learn reads a change that was made here at once. The other nodes, and this one after an error,
// learn it with their next beat.
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

// Refresh reads the settings from the store. If it fails, all of them stay as they are, because
// half of a change is worse than a late one.
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
	// A change may have happened between the two reads. Then the first revision is certain, and the
	// next beat reports the rest.
	if s.known && revision < s.revision {
		return nil // a later answer came first
	}
	if before := s.live.Swap(live); before != nil {
		close(before.Superseded)
	}
	s.access.Store(&access)
	s.known = true
	s.revision = revision
	s.set = set
	s.values = values
	return nil
}

// ValuesFor returns the root configs for expressions of a definition.
func (s *Settings) ValuesFor(d *definitions.Definition) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.Configs(s.revision, s.values)
}

// view returns one setting. ok is false if it is neither declared nor set.
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

// names lists the declared and the set ones, sorted.
func (s *Settings) names(d *definitions.Definition) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(d.Declared)
	maps.Copy(all, s.values)
	return slices.Sorted(maps.Keys(all))
}

// Configs lists the declared live settings and those that are set, by name.
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

// SetConfig changes a live setting on all nodes. ifRevision is as in [store.Settings]. The error is
// a [*definitions.ConfigError] if the setting is not declared, or if its value has the wrong type.
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
	data, err := datum.FormatKinds(value)
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
	Default  any        `json:"default" doc:"The value in the files; null if they do not declare the setting."`
	Revision int64      `json:"revision" doc:"Grows with every change. 0 if nobody has changed the setting at run time."`
	Changed  *time.Time `json:"changed"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}
