package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/planner"
)

// This file explains handlers inside the run: in called pipelines, in repeated stages, and
// compensations. Less is stored about them than about others.

// An inner is a handler, with the calls and repeated stages around it.
type inner struct {
	*planner.Step
	within []*planner.Step // from outside to inside
	item   int             // requested item of its own for-each, from 1; 0 for all
}

// maxPlaces bounds the places of handlers in a run. A handler has one place for each call of its
// pipeline. Calls nest at most eight deep, but twenty at each level make more places than fit into
// memory.
const maxPlaces = 10_000

// placesIn lists up to most handlers of a run, those inside of others after them.
func placesIn(p *planner.Plan, most int) []inner {
	var out []inner
	for _, s := range p.Steps {
		out = append(out, inner{Step: s})
	}
	for _, s := range p.Steps {
		if s.Undo != nil {
			out = append(out, inner{Step: s.Undo})
		}
		if s.Callee == nil || len(out) >= most {
			continue
		}
		for _, in := range placesIn(s.Callee, most-len(out)) {
			// A pipeline never calls itself, so this ends.
			in.within = append([]*planner.Step{s}, in.within...)
			out = append(out, in)
		}
	}
	return out[:min(len(out), most)]
}

// where names what is around the handler, like the views of a run, but without items.
func (in inner) where() string {
	var paths []string
	for _, s := range in.within {
		paths = append(paths, s.Path)
	}
	return strings.Join(paths, model.IntoCall)
}

// withoutItems removes the indexes of items from a ref.
func withoutItems(ref string) string {
	parts := strings.Split(ref, model.IntoCall)
	for i, part := range parts {
		parts[i], _, _ = strings.Cut(part, "[")
	}
	return strings.Join(parts, model.IntoCall)
}

// cutItem splits the number of an item, from 1, off a name. It is 0 if there is none.
func cutItem(ref string) (path string, item int) {
	path, index, _ := strings.Cut(ref, "[")
	if n, err := strconv.Atoi(strings.TrimSuffix(index, "]")); err == nil && n >= 0 {
		return path, n + 1
	}
	return ref, 0
}

// explainInside explains a handler inside the run, at all known places, or at the one that a ref
// with an index names.
func (x *explainer) explainInside(all []inner, asked string) Explanation {
	x.out = Explanation{
		Run: x.record.ID, Pipeline: x.record.Pipeline, Status: x.record.Status, Path: x.s.Path, Outcome: "absent",
		Tries: []TryView{}, WaitedFor: []WaitedFor{}, Decisions: []Decision{}, Missing: []string{}, Now: []string{},
	}
	x.present()
	views, placed := []checkpoint.HandlerView{}, []string{}
	lists := false
	for _, in := range all {
		lists = lists || slices.ContainsFunc(in.within, func(s *planner.Step) bool { return s.Handler.ForEach != nil })
		of := x.viewsOf(in)
		if in.item > 0 {
			of = x.itemViews(in)
		}
		for _, v := range of {
			views, placed = append(views, v), append(placed, in.place(v))
		}
	}
	if i := strings.LastIndex(asked, model.IntoCall); i >= 0 && strings.Contains(asked[:i], "[") {
		one := slices.IndexFunc(views, func(v checkpoint.HandlerView) bool { return strings.HasSuffix("/"+v.Within, "/"+asked[:i]) })
		if one >= 0 {
			views, placed = views[one:one+1], placed[one:one+1]
		} else if len(views) > 0 {
			x.missing("what became of it in each item is not kept once the item is done, and may not be known before")
		}
	}
	if len(views) == 0 {
		x.out.DecidedBy = "not_reached"
		x.absentInside(all[0])
		return x.out
	}
	// The last one is explained in full, the others in one line each.
	n := len(views) - 1
	last := views[n]
	x.out.Handler, x.out.Outcome, x.out.At = &last, last.Outcome, last.Finished
	if last.Started != nil {
		x.out.At = last.Started
	}
	x.judge(&last)
	x.out.Summary = placed[n] + x.out.Summary
	const most = 100 // more than anybody reads
	if n > most {
		x.missing("what became of it at %d other places: %s runs show has all that is kept", n-most, "procaas")
	}
	for i, v := range views[:min(n, most)] {
		more := fmt.Sprintf("%sit is %s", placed[i], v.Outcome)
		if why := strings.TrimSpace(v.Error + " " + v.Reason); why != "" {
			more += ": " + why
		}
		x.out.Summary += "\n" + more
	}
	if lists {
		x.missing("what its expressions read in each element is not kept once the element is done")
	} else if !x.s.Undoes && all[0].item == 0 {
		x.missing("what its expressions read is not kept once the call is done")
	}
	return x.out
}

// absentInside says why nothing is known about a handler inside the run.
func (x *explainer) absentInside(in inner) {
	switch {
	case len(in.within) == 0 && in.item > 0:
		x.out.Summary = fmt.Sprintf("nothing is known of item %d: it has not begun, or is not of the list, or the handler is done", in.item-1)
		if h := x.find(x.s.Path); h != nil && h.Items != nil {
			x.out.Summary += fmt.Sprintf("; the handler is %s, of %s", h.Outcome, h.Items)
		}
		return
	case len(in.within) == 0:
		x.out.Summary = "the run had nothing of it to undo, or has not begun to"
		return
	}
	outer := in.within[0]
	h := x.find(outer.Path)
	switch {
	case h == nil:
		x.s = outer
		x.out.Summary = x.whyAbsent()
		x.s = in.Step
	case h.Items != nil && h.Items.Total == 0 && outer.Loops:
		x.out.DecidedBy, x.out.Summary = "stage", fmt.Sprintf("it never ran: the list of stage %s was empty", outer.Handler.ID)
	case h.Items != nil && h.Items.Total == 0:
		x.out.Summary = fmt.Sprintf("it never ran: the list of %s was empty", outer.Path)
	case h.Outcome == model.OutcomeSkipped && outer.Loops:
		x.out.DecidedBy, x.out.Summary = "stage", h.Reason
	case h.Outcome == model.OutcomeSkipped:
		x.out.Summary = fmt.Sprintf("it never ran: %s, which calls its pipeline, was left out: %s", outer.Path, h.Reason)
	case x.s.Undoes:
		x.out.Summary = "there was nothing of it to undo, or it has not begun to"
	case outer.Loops:
		x.out.Summary = fmt.Sprintf("no element of stage %s has got to it yet", outer.Handler.ID)
	case h.Finished != nil:
		x.out.Summary = fmt.Sprintf("the call by %s, which is %s, has not got to it", outer.Path, h.Outcome)
	default:
		x.out.Summary = fmt.Sprintf("the call by %s has not got to it yet", outer.Path)
	}
}

// viewsOf lists the views of a handler inside the run: in each call, and in each unfinished, failed
// or finished element of repeated stages.
func (x *explainer) viewsOf(in inner) []checkpoint.HandlerView {
	if x.inner == nil {
		x.inner = map[string][]checkpoint.HandlerView{}
		for _, h := range x.view.Handlers {
			at := withoutItems(h.Within) + model.IntoCall + h.Path
			x.inner[at] = append(x.inner[at], h)
		}
	}
	return x.inner[in.where()+model.IntoCall+in.Path]
}

// itemViews lists the view of one item of a for-each of the run's own handler.
func (x *explainer) itemViews(in inner) []checkpoint.HandlerView {
	saved, ok := x.kept(in.Step)
	if !ok || len(in.within) > 0 || saved.Each == nil {
		return nil
	}
	for _, item := range saved.Each.Of {
		if item.Item != in.item {
			continue
		}
		if item.Outcome == "" {
			item.Outcome = checkpoint.OutcomeOf(x.record.Status, item)
		}
		v := item.View()
		v.Path = in.Path
		return []checkpoint.HandlerView{v}
	}
	// Finished items are stored only as numbers, because large lists would not fit into a
	// checkpoint.
	if done, err := checkpoint.ReadNumbers(saved.Each.Done, saved.Each.Total); err == nil && slices.Contains(done, in.item) {
		return []checkpoint.HandlerView{{Path: in.Path, Outcome: model.OutcomeSucceeded, Attempts: 1}}
	}
	return nil
}

// place names the calls and elements around a view, for a sentence.
func (in inner) place(h checkpoint.HandlerView) string {
	var out []string
	parts := strings.Split(h.Within, model.IntoCall)
	for i, s := range in.within {
		if i >= len(parts) {
			break
		}
		switch _, item := cutItem(parts[i]); {
		case item > 0:
			out = append(out, fmt.Sprintf("item %d", item-1))
		case s.Handler.ForEach != nil:
			out = append(out, "in the items that are done")
		default:
			out = append(out, "in the call by "+s.Path)
		}
	}
	if in.item > 0 {
		out = append(out, fmt.Sprintf("item %d", in.item-1))
	}
	if len(out) == 0 {
		return ""
	}
	return strings.Join(out, ", ") + ": "
}

// inside lists the steps inside one of the run's own handlers, and its compensation, with at most
// most steps that the run has not reached.
func (x *explainer) inside(outer *planner.Step, most int) (out []StoryStep) {
	var all []inner
	if outer.Undo != nil {
		all = append(all, inner{Step: outer.Undo})
	}
	if outer.Callee != nil {
		for _, in := range placesIn(outer.Callee, most) {
			in.within = append([]*planner.Step{outer}, in.within...)
			all = append(all, in)
		}
	}
	for _, in := range all {
		x.s, x.out = in.Step, Explanation{}
		views := x.viewsOf(in)
		if len(views) == 0 && !in.Undoes {
			x.absentInside(in)
			out = append(out, StoryStep{Path: in.Path, Critical: in.Handler.IsCritical(), Outcome: "absent", Summary: x.out.Summary})
		}
		gone := "it is not kept inside of calls"
		if slices.ContainsFunc(in.within, func(s *planner.Step) bool { return s.Handler.ForEach != nil }) {
			gone = "there was one for each item"
		}
		for i := range views {
			x.out = Explanation{}
			x.judge(&views[i])
			out = append(out, StoryStep{
				Path: in.Path, Critical: in.Handler.IsCritical(), Outcome: views[i].Outcome, Handler: &views[i],
				Summary: in.place(views[i]) + x.out.Summary, RequestGone: gone, ResponseGone: gone,
			})
		}
	}
	return out
}
