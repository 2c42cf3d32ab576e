package store

import "context"

// UsageKept is how many days a store keeps what paths have used, the present one included.
const UsageKept = 90

// Usage stores what paths have used on each day.
type Usage interface {
	// AddUsage adds to what the store has of each day and path, and deletes what is older than a day. It writes either
	// everything or nothing. A day and path may occur once.
	AddUsage(ctx context.Context, uses []Use, oldest string) error

	// UsageSince passes what was used since a day, ordered by day and path.
	UsageSince(ctx context.Context, day string, each func(Use)) error

	// TimedSince is UsageSince for paths that had a target.
	TimedSince(ctx context.Context, day string, each func(Use)) error
}

// A Use is what a path has used on a day.
type Use struct {
	Day  string // 2006-01-02, in UTC
	Path string // a pipeline, a stage or a handler; empty for the nodes themselves
	UseCounts
}

// UseCounts are the counts of a [Use].
type UseCounts struct {
	Calls        int64 // of a handler: its attempts
	RequestBytes int64 // of the bodies that these calls sent
	Bytes        int64 // of their replies, in the memory of nodes
	CallMicros   int64 // time of these calls
	CPUMicros    int64 // processor time of nodes
	Runs         int64 // of a pipeline: those that ended
	StoredBytes  int64 // that these runs have in the store
	Timed        int64 // runs, or passes of a stage, that had a target
	Late         int64 // those of them that took longer
}

// Add adds other counts.
func (u *UseCounts) Add(o UseCounts) {
	u.Calls += o.Calls
	u.RequestBytes += o.RequestBytes
	u.Bytes += o.Bytes
	u.CallMicros += o.CallMicros
	u.CPUMicros += o.CPUMicros
	u.Runs += o.Runs
	u.StoredBytes += o.StoredBytes
	u.Timed += o.Timed
	u.Late += o.Late
}
