package ui

import (
	"context"
	"net/http"
	"time"

	"procaas/engine/api/ui/words"
	"procaas/engine/canary"
	"procaas/engine/definitions"
)

// A History tells the versions of the definition, and the trial of a new one.
type History interface {
	Versions(ctx context.Context, limit int) ([]definitions.Version, error)
	Canary() *canary.State
}

// shownVersions is how many versions their page lists.
const shownVersions = 50

type versionsData struct {
	Canary   canary.View
	Versions []definitions.Version
	More     bool // the store keeps others
}

// versions shows which versions the store keeps, and how the last canary did.
func (c *Console) versions(w http.ResponseWriter, r *http.Request) (err error) {
	d := versionsData{Canary: c.o.Engine.Canary().View()}
	if d.Versions, err = c.o.Engine.Versions(r.Context(), shownVersions+1); err != nil {
		return err
	}
	d.More = len(d.Versions) > shownVersions
	if d.More {
		d.Versions = d.Versions[:shownVersions]
	}
	c.show(w, r, http.StatusOK, "versions", "Versions", d)
	return nil
}

// canaryProblem tells of a version that was rolled back by itself not long ago.
func canaryProblem(t *canary.State, now time.Time) (problem, bool) {
	if !t.RolledBackLately(now) {
		return problem{}, false
	}
	return problem{
		Class: "fair", Name: words.ShortHash(t.New), Href: Root + "versions", Is: "was rolled back by itself", Since: &t.Ended, Once: true, Text: t.Why + ".",
	}, true
}
