package wiring

import (
	"fmt"
	"strconv"
	"strings"
)

// A cronField is one of the five fields of a cron line.
type cronField struct {
	name     string
	min, max int
	names    string // of the values from min on, three letters each; empty for none
}

// The limits are those of the engine's scheduler: Sunday is 0, and never 7.
var cronFields = [5]cronField{
	{"minute", 0, 59, ""},
	{"hour", 0, 23, ""},
	{"day", 1, 31, ""},
	{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
	{"weekday", 0, 6, "sunmontuewedthufrisat"},
}

// checkCron returns what is wrong with a cron line, or "". It does not use the scheduler: the language needs
// none, accepts none of its extensions (@daily, TZ=), and can name the wrong field and its possible values.
func checkCron(line string) string {
	fields := strings.Fields(line)
	if len(fields) != len(cronFields) {
		return fmt.Sprintf("want five fields in cron, have %d: %q", len(fields), line)
	}
	for i, text := range fields {
		for part := range strings.SplitSeq(text, ",") {
			if problem := cronFields[i].check(part); problem != "" {
				return fmt.Sprintf("%s of cron, %q: %s", cronFields[i].name, text, problem)
			}
		}
	}
	return neverDue(fields[2], fields[3], fields[4])
}

// check returns what is wrong with one element of a list: *, 5 or 1-5, each with an optional /step.
func (f cronField) check(part string) string {
	span, step, stepped := strings.Cut(part, "/")
	if stepped {
		if n, err := strconv.Atoi(step); err != nil || n < 1 || n > f.max || !digits(step) {
			return fmt.Sprintf("want a step from 1 to %d, have %q", f.max, step)
		}
	}
	if span == "*" {
		return ""
	}
	first, last, ranged := strings.Cut(span, "-")
	low, ok := f.value(first)
	if !ok {
		return f.want(first)
	}
	if !ranged {
		return ""
	}
	high, ok := f.value(last)
	if !ok {
		return f.want(last)
	}
	if low > high {
		return fmt.Sprintf("the range %q runs backwards", span)
	}
	return ""
}

// want returns what the field may contain.
func (f cronField) want(have string) string {
	if f.names == "" {
		return fmt.Sprintf("want a number from %d to %d, have %q", f.min, f.max, have)
	}
	return fmt.Sprintf("want a number from %d to %d or a name such as %q, have %q", f.min, f.max, f.names[:3], have)
}

// value parses a number or a name.
func (f cronField) value(s string) (int, bool) {
	if len(s) == 3 {
		// Only at a multiple of three: anm, in janmar, is not a month.
		if i := strings.Index(f.names, strings.ToLower(s)); i >= 0 && i%3 == 0 {
			return f.min + i/3, true
		}
	}
	n, err := strconv.Atoi(s)
	return n, err == nil && digits(s) && n >= f.min && n <= f.max
}

// digits reports whether a number has no sign, which strconv would accept.
func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// neverDue returns which days the months of a line do not have, or "" if one of them comes. February has 29 days, since a
// line may be for leap years.
func neverDue(day, month, weekday string) string {
	if !everyValue(weekday) {
		return "" // cron is due on either, so the weekday makes it due
	}
	for m, longest := range [...]int{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31} {
		for d := 1; d <= longest; d++ {
			if cronFields[3].includes(month, m+1) && cronFields[2].includes(day, d) {
				return ""
			}
		}
	}
	return fmt.Sprintf("day %s of month %s never comes", day, month)
}

// everyValue reports whether a field of day or weekday leaves the choice to the other one.
func everyValue(field string) bool { return field == "*" || field == "*/1" }

// eitherDay reports whether a line names days and weekdays. Then one of them is enough.
func eitherDay(line string) bool {
	fields := strings.Fields(line)
	return !everyValue(fields[2]) && !everyValue(fields[4])
}
