package admin

import (
	"context"
	"errors"
	"net/http"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/definitions"
	"procaas/engine/diff"
)

// Versions tells which definitions the store keeps.
type Versions interface {
	Versions(ctx context.Context, limit int) ([]definitions.Version, error)
	Show(ctx context.Context, name string) (definitions.VersionDetail, error)
	Differ(ctx context.Context, old, now string) (diff.Diff, error)
	Previous(ctx context.Context) (definitions.Version, error)
}

func (g *Group) versionOperations() []rest.Operation {
	refusals := []string{problem.UnknownVersion, problem.StoreUnavailable}
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/versions", ID: "list-versions", Tag: "admin",
			Summary: "List the versions of the pipelines, newest first",
			About: "A version is a set of pipelines that was current once. The store keeps all versions. `changes` names the first " +
				"difference to the version before.",
			Replies: rest.OK("The versions, the current one first."), Refusals: []string{problem.StoreUnavailable},
		}, func(c *rest.Call, in *versionsQuery) (wire.Page[definitions.Version], error) {
			return rest.Listed(g.Versions.Versions(c.Context(), in.Limit))
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/versions/{version}", ID: "get-version", Tag: "admin",
			Summary: "Read a version: its files, and what it changed", Replies: rest.OK("The version."), Refusals: refusals,
		}, func(c *rest.Call, in *versionPath) (definitions.VersionDetail, error) {
			d, err := g.Versions.Show(c.Context(), in.Version)
			return d, ofVersion(err)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/versions/{version}/diff/{other}", ID: "diff-versions", Tag: "admin",
			Summary: "Compare two versions", Replies: rest.OK("What the other version changes."), Refusals: refusals,
		}, func(c *rest.Call, in *versionsPath) (diff.Diff, error) {
			d, err := g.Versions.Differ(c.Context(), in.Version, in.Other)
			return d, ofVersion(err)
		}),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/rollback", ID: "roll-back", Tag: "admin",
			Summary: "Make an earlier version current on all nodes",
			About: "The server reads the version from its store and needs no files. The checks are those of a reload. Runs that have " +
				"begun keep their version.",
			Example: wire.Rollback{Reason: "charges twice"}, Replies: rest.OK("The differences."),
			Refusals: []string{
				problem.UnknownVersion, problem.InvalidPipelines, problem.EventsWait, problem.NotReloadable, problem.StoreUnavailable,
			},
		}, g.rollBack),
	}
}

type versionsQuery struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"20" doc:"The most versions."`
}

type versionPath struct {
	Version string `path:"version" doc:"The version, or at least its first 4 digits."`
}

type versionsPath struct {
	versionPath
	Other string `path:"other" doc:"The other version, or at least its first 4 digits."`
}

type rollback struct {
	Body wire.Rollback `required:"false"`
}

func (g *Group) rollBack(c *rest.Call, in *rollback) (found diff.Diff, err error) {
	how := definitions.Change{To: in.Body.To, Drop: in.Body.Drop}
	if how.To == "" {
		v, err := g.Versions.Previous(c.Context())
		if err != nil {
			return found, ofVersion(err)
		}
		how.To = v.Version
	}
	return g.change(c, how, in.Body.Reason)
}

// ofVersion says over HTTP that there is no such version.
func ofVersion(err error) error {
	if refused, ok := errors.AsType[*definitions.VersionError](err); ok {
		return problem.New(problem.UnknownVersion, "%s", refused)
	}
	return err
}
