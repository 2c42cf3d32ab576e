package tree

import (
	"fmt"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/expr"
)

// Times are expressions for durations that live settings decide, by the YAML names of the fields. The fields themselves have the
// durations that the files lead to.
type Times map[string]*expr.Value

// Keep adds an expression.
func (t *Times) Keep(name string, v *expr.Value) {
	if *t == nil {
		*t = Times{}
	}
	(*t)[name] = v
}

// shortestTime is the least duration of a field.
const shortestTime = time.Millisecond

// Time returns the duration of a field with these values of settings. ok is false if no setting decides it.
func (t Times) Time(name string, configs map[string]any) (d time.Duration, ok bool, err error) {
	v := t[name]
	if v == nil {
		return 0, false, nil
	}
	data, err := v.Eval(datum.Env{"configs": configs})
	if err != nil {
		return 0, true, err
	}
	converted, err := datum.Convert(datum.DurationKind, data)
	if err != nil {
		return 0, true, err
	}
	d, _ = converted.(time.Duration)
	if d < shortestTime {
		return 0, true, fmt.Errorf("want %s or more, have %s", shortestTime, datum.Plainly(data))
	}
	return d, true, nil
}

// Or returns the duration of a field with these values of settings. It returns length, that of the files, if no setting decides it,
// or if the values lead to none.
func (t Times) Or(name string, length time.Duration, configs map[string]any) time.Duration {
	if d, ok, err := t.Time(name, configs); ok && err == nil {
		return d
	}
	return length
}

// A LiveTime is a duration that live settings decide.
type LiveTime struct {
	Of    string // such as deadline of work/a/tell
	Value *expr.Value

	times Times
	name  string
}

// Check returns an error if these values of settings lead to no duration.
func (l *LiveTime) Check(configs map[string]any) error {
	_, _, err := l.times.Time(l.name, configs)
	return err
}

// LiveTimes lists the durations of a pipeline that live settings decide.
func (p *Pipeline) LiveTimes() []LiveTime {
	var out []LiveTime
	add := func(path string, times Times) {
		for _, name := range []string{"deadline", "timeout"} {
			if v := times[name]; v != nil {
				out = append(out, LiveTime{name + " of " + path, v, times, name})
			}
		}
	}
	add(p.ID, p.Live)
	for _, s := range p.Stages {
		add(p.ID+"/"+s.ID, s.Live)
		for _, h := range s.Handlers {
			add(h.Path, h.Live)
		}
	}
	return out
}

// Texts lists the fields with their expressions, for people.
func (t Times) Texts() []string {
	var out []string
	for _, name := range []string{"timeout", "deadline"} {
		if e := t[name].Expr(); e != nil {
			out = append(out, name+" by "+strings.Join(strings.Fields(e.Source), " "))
		}
	}
	return out
}
