package definitions

import (
	"fmt"
	"maps"
	"slices"

	"procaas/dsl/datum"
	"procaas/engine/model"
)

// A ConfigError says why a live setting is refused.
type ConfigError struct {
	Code    string // stable: unknown_config, invalid_config
	Message string
}

// Error implements error.
func (e *ConfigError) Error() string { return e.Message }

// liveConfigs are the declared configs of a definition with the settings of one revision. They
// never change.
type liveConfigs struct {
	revision int64          // of the settings
	values   map[string]any // by name; has every declared config
}

// Configs returns the declared configs with the settings of a revision. It is called often, so it
// caches the result until a setting changes.
func (d *Definition) Configs(revision int64, set map[string]any) map[string]any {
	if live := d.live.Load(); live != nil && live.revision == revision {
		return live.values
	}
	values := maps.Clone(d.Declared)
	for name := range values {
		// A value from the time of an earlier definition with another type would break expressions.
		if v, ok := set[name]; ok && d.CheckConfig(name, v) == nil {
			values[name] = v
		}
	}
	d.live.Store(&liveConfigs{revision, values})
	return values
}

// CheckConfig refuses a value that does not match the schema of the setting. Without a schema, the
// value must be of the same kind as the declared one. A setting that is declared as null takes any
// value. Where a deadline or timeout depends on it, it must lead to a duration.
func (d *Definition) CheckConfig(name string, value any) error {
	if err := model.CheckData(value); err != nil {
		return &ConfigError{"invalid_config", fmt.Sprintf("config %s: %v", name, err)}
	}
	if contract := d.contracts[name]; contract != nil {
		if err := contract.Check(value); err != nil {
			return &ConfigError{"invalid_config", err.Error()}
		}
	} else if at, want, have := otherKind(name, d.Declared[name], value); want != have {
		return &ConfigError{"invalid_config", fmt.Sprintf("config %s: want %s as declared, have %s", at, want, have)}
	}
	return d.checkTimes(name, value)
}

// checkTimes refuses a value that leads to no duration where one is needed.
func (d *Definition) checkTimes(name string, value any) error {
	var configs map[string]any
	for i := range d.times {
		t := &d.times[i]
		if !slices.ContainsFunc(t.Value.Reads(), func(r datum.Read) bool { return r.Path.Overlaps(datum.Path{"configs", name}) }) {
			continue
		}
		if configs == nil {
			configs = maps.Clone(d.Declared)
			configs[name] = value
		}
		if err := t.Check(configs); err != nil {
			return &ConfigError{"invalid_config", fmt.Sprintf("config %s: %s at %s: %v", name, t.Of, t.Value.Span, err)}
		}
	}
	return nil
}

// otherKind returns the first place, by name, where a value has another kind than the declared one.
// Members that only one of the two has are ignored, and so are elements of lists, because such
// settings grow and shrink. If there is no such place, want and have are equal.
func otherKind(at string, declared, value any) (where, want, have string) {
	if declared == nil {
		return at, "", ""
	}
	want, have = datum.JSONKind(declared), datum.JSONKind(value)
	if want != have {
		return at, want, have
	}
	members, _ := declared.(map[string]any)
	set, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		member, ok := set[name]
		if !ok {
			continue
		}
		where, want, have = otherKind(at+"."+name, members[name], member)
		if want != have {
			return where, want, have
		}
	}
	return at, "", ""
}
