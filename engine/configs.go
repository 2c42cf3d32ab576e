package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A ConfigError says why a live setting is refused.
type ConfigError struct {
	Code    string // stable: unknown_config, invalid_config
	Message string
}

// Error implements error.
func (e *ConfigError) Error() string { return e.Message }

// liveConfigs are the declared configs of a definition under settings of one
// revision. They are never changed.
type liveConfigs struct {
	revision int64          // of the settings
	values   map[string]any // by name; of every declared config
}

// settings are what operators have set at run time, as this node knows it.
type settings struct {
	kept store.Settings
	keys store.Tokens

	mu       sync.Mutex               // guards the following
	known    bool                     // they were read at least once
	revision int64                    // of all settings together
	set      map[string]store.Setting // live configs that were set, also such as nothing declares any more
	values   map[string]any           // of set, decoded

	live   atomic.Pointer[guard.Controls] // nil before they are known; changed under mu
	tokens atomic.Pointer[tokens]         // likewise
}

// controls gives the controls as this node knows them.
func (s *settings) controls() *guard.Controls { return s.live.Load() }

// isCurrent tells whether the settings of a revision are known.
func (s *settings) isCurrent(revision int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known && s.revision == revision
}

// refresh reads the settings from the store. What cannot be read leaves all of them as they
// are: half of a change is worse than a late one.
func (s *settings) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	set, revision, err := s.kept.Configs(ctx)
	if err != nil {
		return fmt.Errorf("read configs: %w", err)
	}
	values := make(map[string]any, len(set))
	for name, setting := range set {
		if values[name], err = datum.ParseJSON(setting.Value); err != nil {
			return fmt.Errorf("read config %s: %w", name, err)
		}
	}
	paths, _, err := s.kept.Controls(ctx)
	if err != nil {
		return fmt.Errorf("read controls: %w", err)
	}
	live, err := guard.NewControls(paths)
	if err != nil {
		return err
	}
	keys, _, err := s.keys.AllTokens(ctx)
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	access, err := newTokens(keys)
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
	s.tokens.Store(&access)
	s.known, s.revision, s.set, s.values = true, revision, set, values
	return nil
}

// configs gives what expressions of a definition read as configs. It is asked often, so the answer is kept with the definition until a setting changes.
func (s *settings) configs(d *definition) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if live := d.live.Load(); live != nil && live.revision == s.revision {
		return live.values
	}
	values := maps.Clone(d.declared)
	for name := range values {
		// A value that was set for an earlier definition, which declared another
		// kind, would break the expressions of this one.
		if v, ok := s.values[name]; ok && d.checkConfig(name, v) == nil {
			values[name] = v
		}
	}
	d.live.Store(&liveConfigs{s.revision, values})
	return values
}

// view shows one setting; ok is false when it is neither declared nor set.
func (s *settings) view(d *definition, name string) (v ConfigView, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, declared := d.declared[name]
	setting, set := s.set[name]
	v = ConfigView{Name: name, Value: first, Default: first}
	if set {
		v.Value, v.Revision, v.Changed = s.values[name], setting.Revision, &setting.Changed
		v.By, v.Reason = setting.By.Name, setting.By.Reason
	}
	return v, declared || set
}

// names lists what is declared or set, in order.
func (s *settings) names(d *definition) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(d.declared)
	maps.Copy(all, s.values)
	return slices.Sorted(maps.Keys(all))
}

// checkConfig refuses a value that does not fit the schema of the setting, or
// without a schema one of another kind than the declared one. One that is declared
// as null takes any.
func (d *definition) checkConfig(name string, value any) error {
	if err := model.CheckData(value); err != nil {
		return &ConfigError{"invalid_config", fmt.Sprintf("config %s: %v", name, err)}
	}
	if contract := d.contracts[name]; contract != nil {
		if err := contract.Check(value); err != nil {
			return &ConfigError{"invalid_config", err.Error()}
		}
		return nil
	}
	if at, want, have := otherKind(name, d.declared[name], value); want != have {
		return &ConfigError{"invalid_config", fmt.Sprintf("config %s: want %s as declared, have %s", at, want, have)}
	}
	return nil
}

// otherKind finds the first place, by name, where a value is of another kind than
// the declared one. Members that only one of the two has may come and go, and elements
// of lists are not looked at: settings such as lists of cities grow and shrink. want and
// have are equal when there is none.
func otherKind(at string, declared, value any) (where, want, have string) {
	if declared == nil {
		return at, "", ""
	}
	if want, have = datum.JSONKind(declared), datum.JSONKind(value); want != have {
		return at, want, have
	}
	members, _ := declared.(map[string]any)
	set, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		member, ok := set[name]
		if !ok {
			continue
		}
		if where, want, have = otherKind(at+"."+name, members[name], member); want != have {
			return where, want, have
		}
	}
	return at, "", ""
}

// Configs lists the live settings, declared ones and set ones, by name.
func (e *Engine) Configs(ctx context.Context) ([]ConfigView, error) {
	if err := e.settings.refresh(ctx); err != nil {
		return nil, err
	}
	d := e.library.current.Load()
	out := []ConfigView{}
	for _, name := range e.settings.names(d) {
		if v, ok := e.settings.view(d, name); ok {
			out = append(out, v)
		}
	}
	return out, nil
}

// SetConfig changes a live setting on all nodes. ifRevision as in [store.Settings]. The
// error is a [*ConfigError] when nothing declares the setting, or as another kind
// of value.
func (e *Engine) SetConfig(ctx context.Context, name string, value any, ifRevision int64, by store.Actor) (ConfigView, error) {
	d := e.library.current.Load()
	if _, ok := d.declared[name]; !ok {
		message := fmt.Sprintf("config %s is not declared", name)
		if near := diag.Suggest(name, slices.Collect(maps.Keys(d.declared))); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		return ConfigView{}, &ConfigError{"unknown_config", message}
	}
	if err := d.checkConfig(name, value); err != nil {
		return ConfigView{}, err
	}
	data, err := datum.FormatJSON(value)
	if err != nil {
		return ConfigView{}, &ConfigError{"invalid_config", fmt.Sprintf("config %s: %v", name, err)}
	}
	if _, err := e.o.Store.Settings.SetConfig(ctx, name, data, ifRevision, by); err != nil {
		return ConfigView{}, fmt.Errorf("set config %s: %w", name, err)
	}
	if err := e.settings.refresh(ctx); err != nil {
		return ConfigView{}, err
	}
	v, _ := e.settings.view(d, name)
	return v, nil
}
