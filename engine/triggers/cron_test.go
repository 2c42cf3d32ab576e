package triggers

import (
	"testing"
	"time"
)

// TestCronKeepsTheClockOnTheWall goes through the days on which clocks change:
// Berlin puts them forward on 2026-03-29 at 02:00 and back on 2026-10-25 at
// 03:00; Lord Howe by half an hour; Kolkata never.
func TestCronKeepsTheClockOnTheWall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, line, zone, from string
		want                   []string // in the zone, with its offset
	}{
		{
			"an hour that does not come is due when the clock jumps", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00+01:00",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		{
			"several times that do not come are due once", "0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-29T01:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00", "2026-03-30T02:00:00+02:00"},
		},
		{
			"an hour that comes twice is due once", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		{
			"also for a node that starts between", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00",
			[]string{"2026-10-26T02:30:00+01:00"},
		},
		{
			"every hour passes, though the clock jumps", "15 * * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00",
			[]string{"2026-03-29T01:15:00+01:00", "2026-03-29T03:15:00+02:00"},
		},
		{
			"every hour passes, though its name comes twice", "15 * * * *", "Europe/Berlin", "2026-10-25T01:30:00+02:00",
			[]string{"2026-10-25T02:15:00+02:00", "2026-10-25T02:15:00+01:00", "2026-10-25T03:15:00+01:00"},
		},
		{
			"a step of hours loses no firing when the clock jumps", "0 */2 * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00", "2026-03-29T06:00:00+02:00"},
		},
		{
			"nor doubles one when it is set back", "0 */2 * * *", "Europe/Berlin", "2026-10-25T01:30:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00"},
		},
		{
			"a step from an hour on", "0 1/2 * * *", "America/New_York", "2026-11-01T00:30:00-04:00",
			[]string{"2026-11-01T01:00:00-04:00", "2026-11-01T03:00:00-05:00"},
		},
		{
			"a range of all hours is every hour", "15 0-23 * * *", "Europe/Berlin", "2026-10-25T01:30:00+02:00",
			[]string{"2026-10-25T02:15:00+02:00", "2026-10-25T02:15:00+01:00", "2026-10-25T03:15:00+01:00"},
		},
		{
			"half an hour is jumped over", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		{
			"midnight that does not come", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00-04:00",
			[]string{"2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"},
		},
		{
			"a zone without changes", "30 8 * * 1", "Asia/Kolkata", "2026-03-29T00:00:00+05:30",
			[]string{"2026-03-30T08:30:00+05:30", "2026-04-06T08:30:00+05:30"},
		},
		{
			"a day of the month or of the week", "0 0 13 * fri", "UTC", "2026-02-01T00:00:00Z",
			[]string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-06T00:00:00Z"},
		},
		{
			"a step of weekdays ends with Saturday", "0 0 * * 1/2", "UTC", "2026-02-01T12:00:00Z",
			[]string{"2026-02-02T00:00:00Z", "2026-02-04T00:00:00Z", "2026-02-06T00:00:00Z", "2026-02-09T00:00:00Z"},
		},
		{
			"a day that seldom comes", "0 12 29 2 *", "UTC", "2026-01-01T00:00:00Z",
			[]string{"2028-02-29T12:00:00Z", "2032-02-29T12:00:00Z"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			s, err := newCronSchedule(c.line, zone)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if at = s.next(at); at.In(zone).Format(time.RFC3339) != want {
					t.Fatalf("want %s, have %s", want, at.In(zone).Format(time.RFC3339))
				}
			}
		})
	}
}

// TestStepsOfHoursKeepTheirNumber counts the firings of each day in zones that change their clocks at different hours,
// by half an hour, at midnight, or for Ramadan.
func TestStepsOfHoursKeepTheirNumber(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Europe/Berlin", "Europe/London", "Atlantic/Azores", "America/New_York", "America/Havana", "America/Santiago", "America/St_Johns",
		"America/Asuncion", "Asia/Beirut", "Asia/Jerusalem", "Africa/Cairo", "Africa/Casablanca", "Australia/Lord_Howe", "Pacific/Auckland",
		"Pacific/Chatham", "UTC",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for line, daily := range map[string]int{"0 */2 * * *": 12, "30 */3 * * *": 8, "0 1/4 * * *": 6, "45 0-22/2 * * *": 12} {
			s, err := newCronSchedule(line, zone)
			if err != nil {
				t.Fatal(err)
			}
			days := map[string]int{}
			at := time.Date(2024, 12, 31, 0, 0, 0, 0, time.UTC)
			for end := at.AddDate(1, 0, 2); at.Before(end); at = s.next(at) {
				days[at.In(zone).Format(time.DateOnly)]++
			}
			for day := time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC); day.Year() < 2026; day = day.AddDate(0, 0, 1) {
				// A time that the clock jumps over counts with the one at which it lands.
				if n := days[day.Format(time.DateOnly)]; n != daily && n != daily-1 {
					t.Fatalf("%s in %s: %d firings on %s, want %d", line, name, n, day.Format(time.DateOnly), daily)
				}
			}
		}
	}
}

// TestCronGoesForward walks two years of many lines, and holds each due time to
// the line by the clock on the wall.
func TestCronGoesForward(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca",
		"UTC",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"0 0 * * *", "30 2 * * *", "59 1,2,3 * * *", "*/15 0-4 * * 0"} {
			s, err := newCronSchedule(line, zone)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			days := map[string]bool{}
			for end := at.AddDate(2, 0, 0); at.Before(end); {
				next := s.next(at)
				if !next.After(at) {
					t.Fatalf("%s in %s: %s after %s", line, name, next, at)
				}
				wall := s.wall(next)
				jump, _ := next.In(zone).ZoneBounds()
				if of := s.Next(wall.Add(-time.Nanosecond)).Equal(wall); !of && !jump.Equal(next) {
					t.Fatalf("%s in %s: %s is not of the line", line, name, next.In(zone))
				}
				at = next
				days[wall.Format(time.DateOnly)] = true
			}
			if line != "*/15 0-4 * * 0" && len(days) < 729 {
				t.Errorf("%s in %s: due on %d days of two years", line, name, len(days))
			}
		}
	}
}
