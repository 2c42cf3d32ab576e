package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"procaas/engine"
)

// listHandlers tells what this node has seen: counters of calls are kept by each node.
func (s *server) listHandlers(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, pageOf(s.engine.Handlers(), ""))
}

func (s *server) listServices(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, pageOf(s.engine.Services(), ""))
}

func (s *server) getBacklog(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, s.engine.Backlog())
}

func (s *server) listConfigs(w http.ResponseWriter, r *http.Request) error {
	configs, err := s.engine.Configs(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, pageOf(configs, ""))
}

// A ConfigChange is the body that changes a live setting.
type ConfigChange struct {
	Value  any    `json:"value" doc:"The new value: any JSON value."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

func (s *server) putConfig(w http.ResponseWriter, r *http.Request) error {
	name, err := pathValue(r, "name")
	if err != nil {
		return err
	}
	revision, err := ifRevision(r.Header)
	if err != nil {
		return err
	}
	change, err := s.readChange(w, r)
	if err != nil {
		return err
	}
	config, err := s.engine.SetConfig(r.Context(), name, change.Value, revision, actor(r, change.Reason))
	if errors.Is(err, engine.ErrConflict) {
		return refuse(codeConfigChanged, "the setting %q has another revision than the one in If-Match; read it again", name)
	}
	var wrong *engine.ConfigError
	if errors.As(err, &wrong) {
		return refuse(knownCode(wrong.Code, codeInvalidConfig), "%s", wrong.Message)
	}
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag(config.Revision))
	return writeJSON(w, http.StatusOK, config)
}

// readChange reads a [ConfigChange]. The value may be null, so it has to be there.
func (s *server) readChange(w http.ResponseWriter, r *http.Request) (ConfigChange, error) {
	v, err := s.readJSON(w, r)
	if err != nil {
		return ConfigChange{}, err
	}
	f, fault := objectAt("", v)
	if fault != nil {
		fault.Message += `; wrap the setting: {"value": …, "reason": …}`
		return ConfigChange{}, faulty([]Fault{*fault})
	}
	change := ConfigChange{Value: f.get("value"), Reason: f.label("reason", maxReason)}
	if _, there := f.values["value"]; !there {
		f.fault("value", `want the new value; a setting is sent as {"value": …, "reason": …}`)
	}
	f.refuseUnknown()
	return change, faulty(f.faults)
}

// ifRevision reads the preconditions of a change: the revision that may be
// replaced, 0 for none, -1 for any.
func ifRevision(h http.Header) (int64, error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	switch {
	case match == "" && none == "":
		return -1, nil
	case match == "" && none == "*":
		return 0, nil
	case match == "":
		return 0, badParameter([]Fault{{Location: "header/if-none-match", Message: "want *, which changes only a setting that was never changed"}})
	case match == "*":
		return -1, nil
	}
	digits := strings.TrimSuffix(strings.TrimPrefix(match, `"`), `"`)
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || match != etag(n) {
		return 0, badParameter([]Fault{{Location: "header/if-match", Message: `want one revision such as "3", the revision of the setting in quotes`}})
	}
	return n, nil
}
