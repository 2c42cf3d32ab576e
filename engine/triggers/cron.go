package triggers

import (
	"time"

	"github.com/robfig/cron/v3"
)

// A cronSchedule is a cron line in a time zone. A line that names hours, such as 2 or */2, refers to
// the wall clock. If that clock is set forward past a due time, the trigger is due at once. If it is
// set back, only the first time counts. A line for every hour uses elapsed time.
type cronSchedule struct {
	cron.Schedule
	zone   *time.Location
	byWall bool
}

func newCronSchedule(line string, zone *time.Location) (*cronSchedule, error) {
	s, err := cron.ParseStandard(line)
	if err != nil {
		return nil, err
	}
	const everyHour = 1<<24 - 1 // of the bits of hours
	spec, fields := s.(*cron.SpecSchedule)
	return &cronSchedule{Schedule: s, zone: zone, byWall: fields && spec.Hour&everyHour != everyHour}, nil
}

// next returns the first due time after t, or zero if there is none for years.
func (s *cronSchedule) next(t time.Time) time.Time {
	if !s.byWall {
		return s.Next(t.In(s.zone)).UTC()
	}
	for wall := s.wall(t); ; {
		wall = s.Next(wall)
		if wall.IsZero() {
			return wall
		}
		if due := s.instant(wall); due.After(t) {
			return due
		}
	}
}

// wall returns the zone's wall clock time, as if it were UTC.
func (s *cronSchedule) wall(t time.Time) time.Time {
	_, offset := t.In(s.zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// instant returns when the zone's clock first shows a time, or jumps over it.
func (s *cronSchedule) instant(wall time.Time) time.Time {
	const aside = 24 * time.Hour // more than any offset, less than between two changes of a clock
	_, before := wall.Add(-aside).In(s.zone).Zone()
	_, after := wall.Add(aside).In(s.zone).Zone()
	early := wall.Add(-time.Duration(max(before, after)) * time.Second)
	late := wall.Add(-time.Duration(min(before, after)) * time.Second)
	for _, t := range []time.Time{early, late} {
		if s.wall(t).Equal(wall) {
			return t
		}
	}
	jump, _ := late.In(s.zone).ZoneBounds()
	return jump.UTC()
}
