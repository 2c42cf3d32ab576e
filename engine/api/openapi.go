package api

import (
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
)

// newDocument makes a description without operations. It has the version of the API, not of the
// program.
func newDocument(groups []Group) *rest.Document {
	tags := []*huma.Tag{
		{Name: "events", Description: "Submit events. Accepted events are durable."},
		{Name: "runs", Description: "Follow and control the runs of events."},
		{Name: "triggers", Description: "Look at triggers, and fire them."},
	}
	core := len(tags)
	for _, g := range groups {
		if g.Tag == "" {
			continue
		}
		at := slices.IndexFunc(tags[core:], func(t *huma.Tag) bool { return t.Name == g.Before })
		if at < 0 {
			at = len(tags) - core
		}
		tags = slices.Insert(tags, core+at, &huma.Tag{Name: g.Tag, Description: g.About})
	}
	tags = append(tags,
		&huma.Tag{Name: "admin", Description: "Operate the server."},
		&huma.Tag{Name: "status", Description: "Health, metrics, this description, and the console."},
	)
	return rest.NewDocument(&huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:   "procaas",
			Version: "1.0.0",
			Description: "Submit events, and look after the durable runs that they start. Errors are RFC 9457 problems with a stable `code`: " +
				"an unknown path is `" + problem.UnknownPath + "`, an unknown method `" + problem.UnknownMethod + "`. " +
				"Lists have pages with a cursor. Times are in RFC 3339.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers: []*huma.Server{{URL: "/", Description: "The server of this description."}},
		Tags:    tags,
		Components: &huma.Components{
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token": {Type: "http", Scheme: "bearer", Description: "A token from `POST /admin/v1/tokens`, or the admin token of the " +
					"server's configuration. As long as there is none, no call needs one. Each call names the role that it needs: viewer, " +
					"submitter, worker, operator, deployer or admin. An operator also has the roles viewer, submitter and worker. An admin has all roles. A " +
					"deployer also reads versions, canaries and nodes. " +
					"A token may be bound to paths: `pipeline`, `pipeline/stage`, `pipeline/stage/handler`."},
			},
		},
	})
}
