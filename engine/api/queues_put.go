package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"procaas/dsl"
	"procaas/engine"
)

// This file puts tasks into the queue.

// putTasks puts tasks into the queue of tasks; pipeline is nil for a type that is none.
func (s *server) putTasks(w http.ResponseWriter, r *http.Request, kind string, pipeline *dsl.Pipeline) error {
	if len(granted(r).Paths) > 0 {
		if err := mayAt(r, kind); err != nil {
			return err
		}
	}
	v, err := s.readJSON(w, r)
	if err != nil {
		return err
	}
	list, many := v.([]any)
	if !many {
		list = []any{v}
	}
	if len(list) > maxTasks {
		return refuse(codeInvalidBody, "want at most %d in one array, have %d", maxTasks, len(list))
	}
	var (
		specs  []engine.TaskSpec
		faults []Fault
	)
	for i, item := range list {
		pointer := ""
		if many {
			pointer = "/" + strconv.Itoa(i)
		}
		f, fault := objectAt(pointer, item)
		if fault != nil {
			faults = append(faults, *fault)
			continue
		}
		specs = append(specs, s.specOf(f, kind, pipeline))
		faults = append(faults, f.faults...)
	}
	if err := faulty(faults); err != nil {
		return err
	}
	warning, err := s.mayServe(r.Context(), kind, pipeline)
	if err != nil {
		return err
	}
	out, err := s.tasks.PutTasks(r.Context(), specs)
	if err != nil {
		return err
	}
	return replyPut(w, kind, out, many, warning)
}

// replyPut replies 202 when every task was taken in, 207 when some were, and with a problem
// when none was.
func replyPut(w http.ResponseWriter, kind string, out []engine.TaskPut, many bool, warning string) error {
	receipts, refused := TaskReceipts{Tasks: []TaskReceipt{}, Warning: warning}, 0
	for _, one := range out {
		item := TaskReceipt{Outcome: string(one.Outcome)}
		if one.Err != nil {
			item.Error = one.Err.Error()
			refused++
		} else {
			item.ID = strconv.FormatInt(one.ID, 10)
		}
		receipts.Tasks = append(receipts.Tasks, item)
	}
	switch {
	case len(out) > 0 && refused == len(out):
		if errors.Is(out[0].Err, engine.ErrDraining) {
			return refuse(codeQueueDraining, "%q: %s; procaas queue resume %s opens it again", kind, out[0].Err, kind)
		}
		return refuse(codeInvalidTask, "%s", out[0].Err)
	case !many:
		receipts.Tasks[0].Warning = warning
		return writeJSON(w, http.StatusAccepted, receipts.Tasks[0])
	case refused > 0:
		return writeJSON(w, http.StatusMultiStatus, receipts)
	}
	return writeJSON(w, http.StatusAccepted, receipts)
}

// specOf reads a task. The queue section of its pipeline fills in what the caller does not say;
// a priority of 0 that is said is not the same as none.
func (s *server) specOf(f *fields, kind string, pipeline *dsl.Pipeline) engine.TaskSpec {
	spec := engine.TaskSpec{
		Type: kind, Key: f.label("key", engine.MaxTaskName), Priority: f.between("priority", -1<<30, 1<<30, 0), Tolerance: f.duration("delay_tolerance"),
		Delay: f.duration("delay"), At: f.instant("at"), Timeout: f.duration("timeout"), Unique: f.label("unique", engine.MaxTaskName),
		OnDuplicate: engine.Duplicate(f.str("on_duplicate")),
	}
	if spec.Delay > 0 && !spec.At.IsZero() {
		f.fault("delay", "want either delay or at, have both")
	}
	payload, err := json.Marshal(f.get("payload"))
	if err != nil {
		f.fault("payload", "%v", err)
	}
	spec.Payload = payload
	f.refuseUnknown()
	if pipeline != nil && len(f.faults) == 0 {
		var said []engine.TaskOption
		if f.values["priority"] != nil {
			said = append(said, engine.SaidPriority)
		}
		if f.values["delay_tolerance"] != nil {
			said = append(said, engine.SaidTolerance)
		}
		if err := engine.FillTask(pipeline, &spec, said...); err != nil {
			f.fault("payload", "%v", err)
		}
	}
	if spec.OnDuplicate != "" && !slices.Contains(engine.Duplicates(), spec.OnDuplicate) {
		f.fault("on_duplicate", "want one of %s, have %s", joined(engine.Duplicates()), shown(string(spec.OnDuplicate)))
	}
	if spec.OnDuplicate == engine.DuplicateMerge && spec.Merge == nil {
		f.fault("on_duplicate", "want keep, replace or rerun; merge is for pipelines whose queue section says how")
	}
	return spec
}
