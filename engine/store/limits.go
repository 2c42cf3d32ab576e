package store

import (
	"context"
	"time"
)

// Limits keeps the limits that hold for each value, such as each customer. All nodes take their tokens here, by the clock of
// the store. So a limit is exact for all nodes together, and a node that dies takes nothing with it.
type Limits interface {
	// TakeTokens answers requests in order, in one transaction. A limit keeps a row for a value only while its bucket is
	// not full or runs wait for it. It keeps at most rows of them: beyond that, new values wait. After an error the outcome is
	// unknown, and tokens may be lost.
	TakeTokens(ctx context.Context, asks []TokenAsk, rows int) ([]Token, error)

	// SweepLimits removes a limited number of rows that no longer count, and returns how many each limit keeps.
	SweepLimits(ctx context.Context) (map[string]int, error)
}

// LimitRows is how many values of one limit a store keeps.
const LimitRows = 1_000_000

// A TokenAsk asks for a token of a value, or returns one.
type TokenAsk struct {
	Limit string        // path of the handler
	Value string        // identifies the value; it does not tell it
	Step  time.Duration // in which one token comes back
	Burst int64         // tokens of a full bucket, at least 1

	Waited bool  // the run was told to come back at this time, so it goes before others
	Skips  bool  // the run does not wait
	Back   int64 // the token that is returned; 0 asks for one
}

// A Token is the answer to a TokenAsk.
type Token struct {
	Until int64         // identifies a token that was granted, in order to return it; 0 if none was
	Wait  time.Duration // without a token: when to ask again
	Full  bool          // it waits because the limit has no row for another value
}

// A TokenBucket is what a store keeps of a value. Times are nanoseconds since 1970.
type TokenBucket struct {
	Due  int64 // when the bucket is full again
	Away int64 // when the next run may come back; the runs before it were told earlier times
	Step int64 // of the last request

	late int64 // when the next run may come back that came back late
}

// A LimitRoom is what a store keeps of a limit.
type LimitRoom struct {
	Rows int
	Away int64 // as in [TokenBucket], for values without a row
}

const (
	lateRun      = time.Second // a run that is later than this, and than a step, goes to the end
	longestQueue = time.Hour   // runs beyond it come back in between, in case others do not come back
	noRoomPause  = time.Second // before a new value asks again
)

// Counts reports whether the bucket must be kept.
func (b *TokenBucket) Counts(now int64) bool { return b.Until() > now }

// Until returns when the bucket need not be kept any more.
func (b *TokenBucket) Until() int64 { return max(b.Due, b.Away) }

// Answer answers a request. Of any two tokens beyond the burst, the second is granted a step later at the earliest.
//
// A run that must wait gets a time of its own, a step after the one before it. When it comes back then, its token is there:
// others take it only if it was left for a whole step.
func (b *TokenBucket) Answer(a *TokenAsk, now int64) Token {
	step := int64(a.Step)
	b.heed(step, a.Burst, now)
	if a.Back != 0 {
		// What has come back since needs no return, or the bucket would hold more than was taken.
		b.Due -= min(step, max(0, a.Back-now))
		return Token{}
	}
	free := b.Due - (a.Burst-1)*step
	queued := b.Away > now
	if free <= now && (a.Waited || !queued || free <= now-step) {
		b.Due = max(b.Due, now) + step
		return Token{Until: b.Due}
	}
	if a.Skips {
		return Token{Wait: a.Step}
	}
	free = max(free, now)
	if at := max(free, b.late); a.Waited && at-now <= max(step, int64(lateRun)) {
		b.late = at + step
		return Token{Wait: time.Duration(at - now)}
	}
	return Token{Wait: queue(&b.Away, free, step, now)}
}

// heed adapts the bucket to the rate of a request, and to a clock that was set back.
func (b *TokenBucket) heed(step, burst, now int64) {
	if b.Step != step && b.Step > 0 && b.Due > now {
		used := float64(b.Due-now) / float64(b.Step)
		b.Due = now + int64(min(used, float64(burst))*float64(step))
	}
	b.Step = step
	b.Due = min(b.Due, now+burst*step)
	b.Away = min(b.Away, b.Due+int64(longestQueue)+step)
}

// Turn returns when the run of a value asks again that the limit has no row for. Rows become free at least as fast as these
// runs come back, on average, if buckets are used up.
func (r *LimitRoom) Turn(a *TokenAsk, rows int, now int64) Token {
	pace := max(int64(time.Millisecond), a.Burst*int64(a.Step)/int64(max(1, rows)))
	return Token{Full: true, Wait: queue(&r.Away, now+int64(noRoomPause), pace, now)}
}

// queue takes the next place of a queue that begins at first.
func queue(away *int64, first, step, now int64) time.Duration {
	at := max(*away, first)
	if at-first >= int64(longestQueue) {
		at = first
	}
	*away = at + step
	return time.Duration(at - now)
}
