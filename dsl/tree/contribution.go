package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

// A Contribution says what handlers of other owners may do in a pipeline. Of several
// that name an owner and a stage, the first one counts.
type Contribution struct {
	Span diag.Span `yaml:"-"`

	places

	// Owners lists who may add handlers; without it, everybody who says who they are.
	Owners spec.Names `yaml:"owners"`

	// Stages lists the stages that handlers may be added to; without it, all stages.
	Stages spec.Names `yaml:"stages"`

	// Writes lists the names of the shared state that the handlers may set. They may
	// always set names of their own, which they declare beside into.
	Writes spec.Names `yaml:"writes"`

	// Critical says whether runs may fail because of the handlers or of what compensates them.
	Critical bool `yaml:"critical" default:"false"`

	// Handlers is the highest number of handlers that may be added, by all owners and to all stages of the entry together.
	Handlers int `yaml:"handlers" min:"1" max:"1000"`

	// Deadline is the longest deadline that each of the handlers may have. Handlers that only set the shared state
	// need none.
	Deadline time.Duration `yaml:"deadline" min:"1ms"`
}

// Invitation returns what the pipeline allows handlers of an owner to do in a stage, or nil if it allows none.
func (p *Pipeline) Invitation(owner, stage string) *Contribution {
	for _, c := range p.Contributions {
		if (len(c.Owners) == 0 || slices.Contains(c.Owners, owner)) && (len(c.Stages) == 0 || slices.Contains(c.Stages, stage)) {
			return c
		}
	}
	return nil
}

// Closed reports whether other owners may add only what Contributions allow.
func (p *Pipeline) Closed() bool { return p.Owner != "" || p.Contributions != nil }

// InvitationWanted returns the entry that the owner of a pipeline must add for handlers of another owner, with
// further fields that they need.
func InvitationWanted(owner, stage string, more ...string) string {
	fields := append([]string{"owners: [" + owner + "]", "stages: [" + stage + "]"}, more...)
	return "contributions: [{" + strings.Join(fields, ", ") + "}]"
}

// OwnName returns how a contribution declares a name of its own.
func (h *Handler) OwnName(name string) string {
	return fmt.Sprintf("declare it as your own beside into: shared-state: {%s: null}; others read it as shared-state.%s.%s", name, h.ID, name)
}

// Sets lists the names of the shared state that the handler may set. setsState means that the body of its type
// sets names too.
func (h *Handler) Sets(setsState bool) []expr.Key {
	keys := slices.Clone(h.Result.Keys())
	if setsState {
		keys = append(keys, h.Body.Keys()...)
	}
	if h.Fallback != nil {
		keys = append(keys, h.Fallback.Result.Keys()...)
	}
	for _, rule := range h.OnError {
		keys = append(keys, rule.Result.Keys()...)
	}
	return keys
}

// Join adds a contribution's own names to a shared state. They become entries of one name, the handler's id.
func (h *Handler) Join(state **expr.Value, setsState bool) {
	if len(h.SharedState.Keys()) == 0 {
		return
	}
	*state = (*state).With(expr.Key{Name: h.ID, Span: h.SharedState.Span}, h.SharedState)
	h.Result = h.inOwnName(h.Result)
	if setsState {
		h.Body = h.inOwnName(h.Body)
	}
	if h.Fallback != nil {
		h.Fallback.Result = h.inOwnName(h.Fallback.Result)
	}
	for _, rule := range h.OnError {
		rule.Result = h.inOwnName(rule.Result)
	}
}

// inOwnName moves the handler's own names in a result below its id. Omitted ones get their initial values.
func (h *Handler) inOwnName(result *expr.Value) *expr.Value {
	own, others := h.SharedState, result.Without(h.SharedState.KeyNames())
	if len(others.Keys()) == len(result.Keys()) {
		return result
	}
	for _, k := range own.Keys() {
		if v := result.Get(k.Name); v != nil {
			own = own.With(k, v)
		}
	}
	return others.With(expr.Key{Name: h.ID, Span: result.Span}, own)
}

// OwnAll sets the owner of all declarations without an owner to that of the document.
func (d *Document) OwnAll() {
	d.EachOwner(func(owner *string, _ diag.Span) { *owner = cmp.Or(*owner, d.Owner) })
}

// EachOwner visits the owners of all declarations, with their positions.
func (d *Document) EachOwner(visit func(owner *string, at diag.Span)) {
	for _, e := range d.Events {
		visit(&e.Owner, e.PlaceOf("owner", e.Span))
	}
	for _, s := range d.Services {
		visit(&s.Owner, s.PlaceOf("owner", s.Span))
	}
	for _, f := range d.Flows {
		visit(&f.Owner, f.PlaceOf("owner", f.Span))
	}
	for _, p := range d.Pipelines {
		visit(&p.Owner, p.PlaceOf("owner", p.Span))
	}
	for _, h := range d.Handlers {
		visit(&h.Owner, h.PlaceOf("owner", h.Span))
	}
	d.EachDeclaration(func(x Declaration) { visit(x.Owner, x.OwnerAt) })
}
