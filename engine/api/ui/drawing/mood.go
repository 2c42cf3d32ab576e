package drawing

import "procaas/engine/stats"

// Mood is the class of a handler: how well it does.
func Mood(h stats.HandlerInfo) string {
	ratio := h.Ratio()
	switch {
	case h.Switch == "hold":
		return "held"
	case h.Switch != "on":
		return "off"
	case h.Fallback.IsOut():
		return "out"
	case ratio == nil:
		return "idle"
	case h.Fails():
		return "bad"
	case *ratio < 0.99:
		return "fair"
	}
	return "good"
}

// MoodText is the mood of a handler for people.
func MoodText(h stats.HandlerInfo) string {
	switch Mood(h) {
	case "off":
		return "switched off"
	case "held":
		return "held"
	case "out":
		return "fallback: " + h.Fallback.State
	case "idle":
		return "not called lately"
	case "good":
		return "works"
	case "fair":
		return "fails at times"
	}
	return "fails"
}
