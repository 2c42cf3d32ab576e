package wiring

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shifted returns what happens to a cron line when the clocks of its zone change, or "" if no firing is
// affected. A line for every hour follows elapsed time.
func shifted(line string, zone *time.Location) (what, otherwise string) {
	fields := strings.Fields(line)
	if strings.Contains(fields[1], "*") {
		return "", ""
	}
	var said []string
	_, at := time.Date(2026, 1, 1, 0, 0, 0, 0, zone).ZoneBounds()
	for ; at.Year() == 2026; _, at = at.ZoneBounds() {
		_, before := at.Add(-time.Second).In(zone).Zone()
		_, after := at.In(zone).Zone()
		at := at.UTC()
		wall := at.Add(time.Duration(min(before, after)) * time.Second) // the wall-clock time of the change
		end := at.Add(time.Duration(max(before, after)) * time.Second)
		for ; wall.Before(end); wall = wall.Add(time.Minute) {
			if !due(fields, wall) {
				continue
			}
			text, clock := "", wall.Format("15:04")
			if after > before {
				text = fmt.Sprintf("there is no %s when the clocks go forward, and it fires at %s", clock, end.Format("15:04"))
			} else {
				text = fmt.Sprintf("there are two %s when they go back, and it fires at the first", clock)
			}
			said, otherwise = append(said, text), fmt.Sprintf("%02d:%02d", (end.Hour()+1)%24, wall.Minute())
			break
		}
	}
	return strings.Join(said, "; "), otherwise
}

// due reports whether a line is due at a wall-clock time. As in any cron, one of day and weekday is enough if
// both are given.
func due(fields []string, wall time.Time) bool {
	have := []int{wall.Minute(), wall.Hour(), wall.Day(), int(wall.Month()), int(wall.Weekday())}
	on := func(i int) bool { return cronFields[i].includes(fields[i], have[i]) }
	day, weekday := on(2), on(4)
	if !everyValue(fields[2]) && !everyValue(fields[4]) {
		day = day || weekday
		weekday = day
	}
	return on(0) && on(1) && on(3) && day && weekday
}

// includes reports whether a valid list includes a value.
func (f cronField) includes(list string, n int) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(part string) bool { return f.holds(part, n) })
}

// holds reports whether an element of a valid list includes a value.
func (f cronField) holds(part string, n int) bool {
	span, step, stepped := strings.Cut(part, "/")
	low, high, every := f.min, f.max, 1
	if span != "*" {
		first, last, ranged := strings.Cut(span, "-")
		low, _ = f.value(first)
		if ranged {
			high, _ = f.value(last)
		} else if !stepped {
			high = low
		}
	}
	if stepped {
		every, _ = strconv.Atoi(step)
	}
	return n >= low && n <= high && (n-low)%every == 0
}
