package stats

import "time"

// Durations of runs and stages are counted in bins as those of calls, but from a millisecond to
// about a day.
const (
	tookBins    = 64
	tookBinBase = time.Millisecond
)

// These are the slots of the windows. The last slot of a window is under way.
const (
	minuteSlot = 10 * time.Second
	tenSlot    = time.Minute
	hourSlot   = 5 * time.Minute
	perHour    = int(time.Hour / hourSlot)
)

// A tookCounts has the durations of one slot.
type tookCounts struct {
	bins [tookBins]uint32
	late uint32 // took longer than their target
}

// A window counts the durations of the last slots of one width.
type window = ring[tookCounts]

// sum adds up n slots, up to the one that is some slots before the present one.
func sum(w *window, n, before int, now time.Time) Span {
	var bins [tookBins]uint32
	var s Span
	for counts := range w.last(n, before, now) {
		for b, count := range counts.bins {
			bins[b] += count
			s.Ended += int64(count)
		}
		s.Late += int64(counts.late)
	}
	if s.Ended > 0 {
		s.P50, s.P99 = new(quantile(bins[:], tookBinBase, s.Ended, 0.5)), new(quantile(bins[:], tookBinBase, s.Ended, 0.99))
	}
	return s
}

// windows count the durations of two hours: of the last minute, ten minutes and hour, and of the
// hour before. They are not safe for concurrent use.
type windows struct{ minute, ten, hours window }

func newWindows() windows {
	return windows{
		minute: newRing[tookCounts](minuteSlot, int(time.Minute/minuteSlot)),
		ten:    newRing[tookCounts](tenSlot, int(10*time.Minute/tenSlot)),
		hours:  newRing[tookCounts](hourSlot, 2*perHour),
	}
}

// tookBin returns the bin of a duration of a run or of a stage.
func tookBin(took time.Duration) int { return binOf(took, tookBinBase, tookBins) }

// add counts a duration in a bin that ended now.
func (w *windows) add(bin int, late bool, now time.Time) {
	for _, counts := range []*tookCounts{w.minute.at(now), w.ten.at(now), w.hours.at(now)} {
		counts.bins[bin]++
		if late {
			counts.late++
		}
	}
}

// spans sums up the windows.
func (w *windows) spans(now time.Time) Spans {
	return Spans{
		Minute:     sum(&w.minute, len(w.minute.slots), 0, now),
		TenMinutes: sum(&w.ten, len(w.ten.slots), 0, now),
		Hour:       sum(&w.hours, perHour, 0, now),
		HourBefore: sum(&w.hours, perHour, perHour, now),
	}
}
