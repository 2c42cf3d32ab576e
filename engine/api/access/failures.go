package access

import (
	"net/http"
	"sync"
	"time"
)

// Failures counts the wrong tokens or signatures of each address, to limit guesses. The zero value is
// ready to use.
type Failures struct {
	mu    sync.Mutex // guards the rest
	began time.Time
	count map[string]int
}

const (
	failureWindow  = 10 * time.Second
	mostFailures   = 20   // per address in a window
	mostAddresses  = 4096 // counted separately
	manyOthersName = "others"
)

// Allow reports whether the address of a request may try once more.
func (f *Failures) Allow(r *http.Request) bool { return f.allows(addressOf(r)) }

// Note counts a request as a wrong guess.
func (f *Failures) Note(r *http.Request) { f.note(addressOf(r)) }

// allows reports whether an address may try once more.
func (f *Failures) allows(address string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[f.key(address)] < mostFailures
}

// note counts a wrong token.
func (f *Failures) note(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[f.key(address)]++
}

// key returns the name of an address in the current window.
func (f *Failures) key(address string) string {
	if now := time.Now(); f.count == nil || now.Sub(f.began) >= failureWindow {
		f.began, f.count = now, map[string]int{}
	}
	if _, known := f.count[address]; !known && len(f.count) >= mostAddresses {
		return manyOthersName
	}
	return address
}
