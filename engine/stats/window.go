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

// A window counts the durations of the last slots of one width.
type window = ring[[tookBins]uint32]

// sum adds up n slots, up to the one that is some slots before the present one.
func sum(w *window, n, before int, now time.Time) (bins [tookBins]uint32, total int64) {
	for counts := range w.last(n, before, now) {
		for b, count := range counts {
			bins[b] += count
			total += int64(count)
		}
	}
	return bins, total
}

// windows count the durations of two hours: of the last minute, ten minutes and hour, and of the
// hour before. They are not safe for concurrent use.
type windows struct{ minute, ten, hours window }

func newWindows() windows {
	return windows{
		minute: newRing[[tookBins]uint32](minuteSlot, int(time.Minute/minuteSlot)),
		ten:    newRing[[tookBins]uint32](tenSlot, int(10*time.Minute/tenSlot)),
		hours:  newRing[[tookBins]uint32](hourSlot, 2*perHour),
	}
}

// add counts a duration that ended now.
func (w *windows) add(took time.Duration, now time.Time) {
	bin := binOf(took, tookBinBase, tookBins)
	w.minute.at(now)[bin]++
	w.ten.at(now)[bin]++
	w.hours.at(now)[bin]++
}

// spans sums up the windows.
func (w *windows) spans(now time.Time) Spans {
	return Spans{
		Minute:     spanOf(sum(&w.minute, len(w.minute.slots), 0, now)),
		TenMinutes: spanOf(sum(&w.ten, len(w.ten.slots), 0, now)),
		Hour:       spanOf(sum(&w.hours, perHour, 0, now)),
		HourBefore: spanOf(sum(&w.hours, perHour, perHour, now)),
	}
}

func spanOf(bins [tookBins]uint32, total int64) Span {
	if total == 0 {
		return Span{}
	}
	p50, p99 := quantile(bins[:], tookBinBase, total, 0.5), quantile(bins[:], tookBinBase, total, 0.99)
	return Span{Ended: total, P50: &p50, P99: &p99}
}
