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
type window struct {
	width time.Duration
	slots []windowSlot
}

// A windowSlot counts the durations that ended in one time slot.
type windowSlot struct {
	slot int64 // number of the slot since the Unix epoch; any other is stale
	bins [tookBins]uint32
}

func newWindow(width time.Duration, slots int) window {
	return window{width, make([]windowSlot, slots)}
}

// add counts a duration that ended now.
func (w *window) add(bin int, now time.Time) {
	slot := now.UnixNano() / int64(w.width)
	s := &w.slots[slot%int64(len(w.slots))]
	if s.slot != slot {
		*s = windowSlot{slot: slot}
	}
	s.bins[bin]++
}

// sum adds up n slots, up to the one that is some slots before the present one.
func (w *window) sum(n, before int, now time.Time) (bins [tookBins]uint32, total int64) {
	last := now.UnixNano()/int64(w.width) - int64(before)
	for i := range w.slots {
		s := &w.slots[i]
		if s.slot > last || s.slot <= last-int64(n) {
			continue
		}
		for b, count := range s.bins {
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
		minute: newWindow(minuteSlot, int(time.Minute/minuteSlot)),
		ten:    newWindow(tenSlot, int(10*time.Minute/tenSlot)),
		hours:  newWindow(hourSlot, 2*perHour),
	}
}

// add counts a duration that ended now.
func (w *windows) add(took time.Duration, now time.Time) {
	bin := binOf(took, tookBinBase, tookBins)
	w.minute.add(bin, now)
	w.ten.add(bin, now)
	w.hours.add(bin, now)
}

// spans sums up the windows.
func (w *windows) spans(now time.Time) Spans {
	return Spans{
		Minute:     spanOf(w.minute.sum(len(w.minute.slots), 0, now)),
		TenMinutes: spanOf(w.ten.sum(len(w.ten.slots), 0, now)),
		Hour:       spanOf(w.hours.sum(perHour, 0, now)),
		HourBefore: spanOf(w.hours.sum(perHour, perHour, now)),
	}
}

func spanOf(bins [tookBins]uint32, total int64) Span {
	if total == 0 {
		return Span{}
	}
	p50, p99 := quantile(bins[:], tookBinBase, total, 0.5), quantile(bins[:], tookBinBase, total, 0.99)
	return Span{Ended: total, P50: &p50, P99: &p99}
}
