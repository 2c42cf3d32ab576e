package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/store"
)

// Versions shows the stored definitions.
type Versions interface {
	Versions(ctx context.Context, limit int) ([]definitions.Version, error)
	Show(ctx context.Context, name string) (definitions.VersionDetail, error)
	Differ(ctx context.Context, old, now string) (diff.Diff, error)
	Previous(ctx context.Context) (definitions.Version, error)
	Find(ctx context.Context, name string) (definitions.Version, error)
	OwnedChange(ctx context.Context, owners []string, old, now string) error

	// Canary returns the last trial of a new version that the node knows, or nil. LastTrial reads it
	// from the store. ShareTrial changes its share of the keys, and EndTrial rolls it back, unless
	// it was promoted meanwhile.
	Canary() *canary.State
	LastTrial(ctx context.Context) (*canary.State, error)
	ShareTrial(ctx context.Context, percent float64, hold bool, by store.Actor) (*canary.State, error)
	EndTrial(ctx context.Context, by store.Actor) (*canary.State, error)
}

func (g *Group) versionOperations() []rest.Operation {
	refusals := []string{problem.UnknownVersion, problem.StoreUnavailable}
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/versions", ID: "list-versions", Need: rest.Follows, Tag: "admin",
			Summary: "List the versions of the pipelines, newest first",
			About: "A version is a set of pipelines that was current once. The store keeps all versions. `changes` names the first " +
				"difference to the version before.",
			Replies: rest.OK("The versions, the current one first."), Refusals: []string{problem.StoreUnavailable},
		}, func(c *rest.Call, in *versionsQuery) (wire.Page[definitions.Version], error) {
			return rest.Listed(g.Versions.Versions(c.Context(), in.Limit))
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/versions/{version}", ID: "get-version", Need: rest.Compares, Tag: "admin",
			Summary: "Read a version: its files, and what it changed", Replies: rest.OK("The version."), Refusals: refusals,
		}, func(c *rest.Call, in *versionPath) (definitions.VersionDetail, error) {
			d, err := g.Versions.Show(c.Context(), in.Version)
			return d, ofVersion(err)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/versions/{version}/diff/{other}", ID: "diff-versions", Need: rest.Compares, Tag: "admin",
			Summary: "Compare two versions", Replies: rest.OK("What the other version changes."), Refusals: refusals,
		}, func(c *rest.Call, in *versionsPath) (diff.Diff, error) {
			d, err := g.Versions.Differ(c.Context(), in.Version, in.Other)
			return d, ofVersion(err)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/canary", ID: "get-canary", Need: rest.Compares, Tag: "admin",
			Summary: "Read how the last canary or version in the shadow does",
			About: "A canary compares the new version with the old one over the same time. Counts begin anew at each share of keys. " +
				"`shadow` has what nodes found when they replayed ended runs with a version in the shadow.",
			Replies: rest.OK("The canary."),
		}, func(*rest.Call, *rest.Nothing) (canary.View, error) { return g.Versions.Canary().View(), nil }),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/promote", ID: "promote", Need: rest.Deploys, Tag: "admin",
			Summary: "Let more keys, or all, use the version of the canary or in the shadow",
			About:   "At 100 % the version becomes current on all nodes within a second. A version in the shadow becomes a canary.",
			Example: wire.Promotion{Reason: "looks good"}, Replies: rest.OK("The canary."),
			Refusals: []string{problem.CanaryRefused, problem.StoreUnavailable},
		}, g.promote),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/rollback", ID: "roll-back", Need: rest.Deploys, Tag: "admin",
			Summary: "End the canary or the shadow, or make an earlier version current on all nodes",
			About: "If a canary runs, new runs of all keys use the old version again. A version in the shadow is dropped. " +
				"Otherwise the server reads the version from its store and needs no files. The checks are those of a reload. Runs that have " +
				"begun keep their version. Within a minute after a canary was rolled back, `to` is required.",
			Example: wire.Rollback{Reason: "charges twice"}, Replies: rest.OK("The differences."),
			Refusals: []string{
				problem.UnknownVersion, problem.InvalidPipelines, problem.EventsWait, problem.NotReloadable, problem.CanaryRefused,
				problem.StoreUnavailable,
			},
		}, g.rollBack),
	}
}

// Version returns the hash of the version that begins with these digits.
func (g *Group) Version(ctx context.Context, digits string) (string, error) {
	v, err := g.Versions.Find(ctx, digits)
	return v.Version, ofVersion(err)
}

type versionsQuery struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"20" doc:"The most versions."`
}

type versionPath struct {
	Version string `path:"version" doc:"The version, or at least its first 4 digits, or current."`
}

type versionsPath struct {
	versionPath
	Other string `path:"other" doc:"The other version, or at least its first 4 digits, or current."`
}

// justEnded is how long after the end of a canary a rollback without a version may be meant for it.
const justEnded = time.Minute

type rollback struct {
	Body wire.Rollback `required:"false"`
}

func (g *Group) rollBack(c *rest.Call, in *rollback) (found diff.Diff, err error) {
	how := definitions.Change{To: in.Body.To, Drop: in.Body.Drop}
	t, err := g.Versions.LastTrial(c.Context())
	if err != nil {
		return found, err
	}
	if t.Lasts() {
		serves := t.Runs()
		v := definitions.Version{Version: t.Old}
		if how.To != "" {
			if v, err = g.Versions.Find(c.Context(), how.To); err != nil {
				return found, ofVersion(err)
			}
		}
		if v.Version == t.Old {
			if err := g.mayEnd(c, t); err != nil {
				return found, err
			}
			t, err := g.Versions.EndTrial(c.Context(), c.Actor(in.Body.Reason))
			if err != nil {
				return found, ofVersion(err)
			}
			if t.Phase != canary.Promoted && (!serves || t.Percent < 100) {
				found, err = g.Versions.Differ(c.Context(), t.New, t.Old)
				return found, ofVersion(err)
			}
			how.To = t.Old // the new version is current, or is about to be
		}
	}
	if how.To == "" {
		if t != nil && t.Phase == canary.RolledBack && time.Since(t.Ended) < justEnded {
			return found, problem.New(problem.CanaryRefused, "the canary of version %.12s is rolled back already: %s; "+
				"name a version to replace the current one, too", t.New, t.Why)
		}
		v, err := g.Versions.Previous(c.Context())
		if err != nil {
			return found, ofVersion(err)
		}
		how.To = v.Version
	}
	return g.change(c, how, in.Body.Reason)
}

type promotion struct {
	Body wire.Promotion `required:"false"`
}

func (g *Group) promote(c *rest.Call, in *promotion) (canary.View, error) {
	last, err := g.Versions.LastTrial(c.Context())
	if err != nil {
		return canary.View{}, err
	}
	if err := g.mayEnd(c, last); err != nil {
		return canary.View{}, err
	}
	t, err := g.Versions.ShareTrial(c.Context(), cmp.Or(in.Body.Percent, 100), in.Body.Hold, c.Actor(in.Body.Reason))
	return t.View(), ofVersion(err)
}

// mayEnd returns an error if the caller may not decide about a trial, since it changes what others own. Nil is no trial.
func (g *Group) mayEnd(c *rest.Call, t *canary.State) error {
	owners := rest.Granted(c.R).Owners
	if t == nil || owners == nil {
		return nil
	}
	return ofVersion(g.Versions.OwnedChange(c.Context(), owners, t.Old, t.New))
}

// ofVersion converts the error of a version or canary call to a problem.
func ofVersion(err error) error {
	if refused, ok := errors.AsType[*definitions.CanaryError](err); ok {
		return problem.New(problem.CanaryRefused, "%s", refused)
	}
	if refused, ok := errors.AsType[*definitions.OwnerError](err); ok {
		return problem.New(problem.Forbidden, "%s", refused)
	}
	if refused, ok := errors.AsType[*definitions.VersionError](err); ok {
		return problem.New(problem.UnknownVersion, "%s", refused)
	}
	return err
}
