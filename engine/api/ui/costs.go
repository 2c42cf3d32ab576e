package ui

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"procaas/engine/stats"
	"procaas/engine/store"
)

// costsShown is how many costs the page has. The command lists more.
const costsShown = 200

type costsData struct {
	By, Days string
	Groups   []string
	Ranges   []string
	Costs    []stats.Cost
	More     bool
	Kept     int
}

// costs shows what pipelines, owners or handlers cost on each of the last days.
func (c *Console) costs(w http.ResponseWriter, r *http.Request) error {
	d := costsData{
		By: cmp.Or(r.FormValue("by"), stats.ByPipeline), Days: cmp.Or(r.FormValue("days"), "7"),
		Groups: []string{stats.ByPipeline, stats.ByOwner, stats.ByHandler}, Ranges: []string{"1", "7", "30", strconv.Itoa(store.UsageKept)},
		Kept: store.UsageKept,
	}
	days, err := strconv.Atoi(d.Days)
	if err != nil || days < 1 || days > store.UsageKept {
		return &Refused{http.StatusBadRequest, "The store keeps costs of 1 to " + strconv.Itoa(store.UsageKept) + " days, not of " + d.Days + "."}
	}
	switch d.By {
	case stats.ByPipeline, stats.ByOwner, stats.ByHandler:
	default:
		return &Refused{http.StatusBadRequest, "Costs are by pipeline, by owner or by handler, not by " + d.By + "."}
	}
	costs, err := c.o.Engine.Costs(r.Context(), d.By, days, func(string) bool { return true })
	if err != nil {
		return err
	}
	d.Costs, d.More = costs[:min(len(costs), costsShown)], len(costs) > costsShown
	c.show(w, r, http.StatusOK, "costs", "Costs", d)
	return nil
}

// seconds is a time that was added up over many calls.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
